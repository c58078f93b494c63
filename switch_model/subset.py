"""What of v1model this target runs, and where it differs from BMv2. The rest is refused at load, by name."""

SUBSET = """\
Architecture   v1model, as p4c-bm2-ss compiles it; one ingress and one egress pipeline.
Headers        fixed size; int<> fields included. Not: stacks, unions, varbit.
Parser         extract, set, lookahead and advance by constants, verify, select with masks; no loops, no
               value sets. A packet that is too short sets parser_error and goes on, as on BMv2.
Expressions    + - * << >> & | ^ ~, saturating forms, comparisons, and/or/not, ?:, casts, isValid();
               / and % by a constant. Not: comparison of whole headers.
Actions        assign, setValid/setInvalid, header copies, mark_to_drop, count, exit, if/else, registers,
               random, hash (crc32, crc16, identity), truncate; log_msg is ignored.
Tables         exact, lpm, ternary, range, optional; const entries and defaults; hit/miss and action_run;
               direct counters; action profiles and selectors (crc32, crc16, identity). Not: meters, idle
               timeout.
P4Runtime      pipeline configs, arbitration with the default role, table entries, one-shot action sets, members
               and groups, direct and indirect counters, packet-in and packet-out; CONTINUE_ON_ERROR.
               Not: watch ports.
Not at all     clone, resubmit, recirculate, multicast, digests, checksums."""

DEVIATIONS = """\
Queues         have no capacity: only the program drops. BMv2 drops silently beyond 64 packets.
Random         seeded per device, with Python's generator; BMv2 seeds by thread.
Invalid header a field that was never extracted reads as 0; on BMv2 it is what an earlier packet left.
Lookahead      in a select key beyond the end of the packet is PacketTooShort; BMv2 reads past the end.
Signed fields  always wrap to their width; BMv2 keeps values between the two maxima.
Index          beyond the end of a counter or register does nothing, as on BMv2 with its checks compiled in.
truncate(0)    sends nothing; BMv2 sends an empty frame where the port can.
Empty groups   an entry whose group was emptied counts as a miss; BMv2's ingress thread spins.
Shared profile tables of one action profile work; BMv2 1.15.5 dies when another than the last of them is hit.
Equal priority the entry inserted first wins; BMv2 goes by its handles, which it reuses.
Error codes    where BMv2's target layer fails it answers UNKNOWN; here it is the specification's code: a full
               table RESOURCE_EXHAUSTED, an index beyond a counter OUT_OF_RANGE, constant entries
               PERMISSION_DENIED, the default entry's direct counter UNIMPLEMENTED, no entity INVALID_ARGUMENT,
               a used member or group and an entry on an empty group FAILED_PRECONDITION.
Members        of an action that is for the default entry only are refused (BMv2 takes them), and so are groups
               in a profile without selector; a group that can't be inserted is not there (PI leaves it empty).
Entries        an empty bytestring and is_const are refused in writes (BMv2 takes both); const entries are read
               with is_const and priorities from N down to 1; a range 0..2**8k-1 narrower than its field is
               accepted (PI takes it for the whole range).
Reads          filter by action, priority and metadata; direct counters of all tables at once can be read; members
               and groups of a profile with one-shots are none (PI answers INVALID_ARGUMENT).
Packet I/O     what can't be sent is answered with a StreamError; PI ignores packet-outs of clients that are not
               primary. Packet-ins are lost while 1000 messages wait for the client.
Devices        an unknown device_id is NOT_FOUND (BMv2 makes a device); a config that can't be loaded is refused
               with the reason and the old one stays (BMv2 exits or goes on without).
Saved config   VERIFY_AND_SAVE keeps the old program forwarding until COMMIT.
Arbitration    when the primary leaves, nobody is primary until a client asks (BMv2 promotes the next one)."""
