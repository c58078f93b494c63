// Registers, counters, hashes, random numbers, exit, hit and miss, action_run, the queue's metadata.
#include "empty.p4"

header command_h {
    bit<8> code;
    bit<16> argument;
    bit<16> result;
}

header queue_h {
    bit<8> egress_port;
    bit<32> enq_timestamp;
    bit<24> enq_qdepth;
    bit<32> deq_timedelta;
    bit<24> deq_qdepth;
    bit<48> ingress_time;
    bit<48> egress_time;
}

struct headers_t {
    command_h command;
    queue_h queue;
}

struct meta_t {
    bit<16> value;
}

register<bit<16>>(8) shared_cells; // by ingress and egress

parser Parse(packet_in packet, out headers_t hdr, inout meta_t meta,
             inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.command);
        transition accept;
    }
}

EMPTY_CHECKSUMS(headers_t, meta_t)

control TestIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t standard_metadata) {
    counter(16, CounterType.packets_and_bytes) commands;

    action accumulate() {
        bit<16> cell;
        shared_cells.read(cell, (bit<32>)hdr.command.argument);
        if (cell < 3) {
            cell = cell + 1;
            hdr.command.result = cell;
        } else {
            cell = 0;
            hdr.command.result = 0xffff;
        }
        shared_cells.write((bit<32>)hdr.command.argument, cell);
    }

    action draw() {
        random(hdr.command.result, 10, hdr.command.argument);
    }

    action hash_crc32() {
        hash(hdr.command.result, HashAlgorithm.crc32, 16w100, {hdr.command.code, hdr.command.argument}, 16w1000);
    }

    action hash_crc16() {
        hash(hdr.command.result, HashAlgorithm.crc16, 16w0, {hdr.command.argument, 4w5, hdr.command.code}, 32w0x10000);
    }

    action hash_identity() {
        hash(hdr.command.result, HashAlgorithm.identity, 16w0, {hdr.command.argument}, 32w0x10000);
    }

    action leave() {
        hdr.command.result = 1;
        exit;
    }

    action set_priority() {
        standard_metadata.priority = (bit<3>)hdr.command.argument;
    }

    action reject() {
        mark_to_drop(standard_metadata);
    }

    table commands_table {
        key = {
            hdr.command.code: exact @name("code");
        }
        actions = {
            accumulate;
            draw;
            hash_crc32;
            hash_crc16;
            hash_identity;
            leave;
            set_priority;
            reject;
            NoAction;
        }
        const default_action = NoAction();
        const entries = {
            1: accumulate();
            2: draw();
            3: hash_crc32();
            4: hash_crc16();
            5: hash_identity();
            6: leave();
            7: set_priority();
            8: reject();
        }
    }

    direct_counter(CounterType.packets_and_bytes) known_frames;

    action known(bit<16> value) {
        known_frames.count();
        meta.value = value;
    }

    table known_arguments {
        key = {
            hdr.command.argument: exact @name("argument");
        }
        actions = {
            known;
            @defaultonly NoAction;
        }
        default_action = NoAction();
        counters = known_frames;
        size = 4;
    }

    action one() {}
    action two() {}
    action stop() {
        exit;
    }

    table choose {
        key = {
            meta.value: exact @name("value");
        }
        actions = {
            one;
            two;
            stop;
            NoAction;
        }
        default_action = NoAction();
    }

    apply {
        standard_metadata.egress_spec = 1;
        commands.count((bit<32>)hdr.command.code);
        commands_table.apply();
        if (hdr.command.code == 9) {
            if (known_arguments.apply().hit) {
                hdr.command.result = meta.value;
            } else {
                hdr.command.result = 0xdead;
            }
            switch (choose.apply().action_run) {
                one: { hdr.command.result = hdr.command.result + 1; }
                two: { hdr.command.result = hdr.command.result + 2; }
                default: { hdr.command.result = hdr.command.result + 0x1000; }
            }
        }
        if (hdr.command.code == 6) {
            hdr.command.result = 2; // never reached: exit
        }
    }
}

control TestEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        if (hdr.command.code == 10) {
            hdr.queue.setValid();
            hdr.queue.egress_port = (bit<8>)standard_metadata.egress_port;
            hdr.queue.enq_timestamp = standard_metadata.enq_timestamp;
            hdr.queue.enq_qdepth = (bit<24>)standard_metadata.enq_qdepth;
            hdr.queue.deq_timedelta = standard_metadata.deq_timedelta;
            hdr.queue.deq_qdepth = (bit<24>)standard_metadata.deq_qdepth;
            hdr.queue.ingress_time = standard_metadata.ingress_global_timestamp;
            hdr.queue.egress_time = standard_metadata.egress_global_timestamp;
        }
        if (hdr.command.code == 11) {
            mark_to_drop(standard_metadata);
        }
        if (hdr.command.code == 12) {
            shared_cells.read(hdr.command.result, (bit<32>)hdr.command.argument);
        }
    }
}

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.command);
        packet.emit(hdr.queue);
    }
}

SWITCH
