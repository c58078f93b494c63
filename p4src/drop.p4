// The one place where the ingress drops. Each drop is counted by its reason; reasons that the controller asked
// for (`punt`) go to it instead.
#ifndef DROP_P4
#define DROP_P4

#include "headers.p4"

control Drop(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    @name("drop_reasons")
    counter(DROP_REASONS, CounterType.packets_and_bytes) drop_reasons;

    // The packet as it was received: nothing but the destination may have changed on the way here.
    @name("punt_to_controller")
    action punt_to_controller() {
        hdr.ipv6.dst_addr = meta.received_dst_addr;
        standard_metadata.egress_spec = CPU_PORT;
        standard_metadata.priority = DATA_QUEUE;
    }

    @name("drop_packet")
    action drop_packet() {
        mark_to_drop(standard_metadata);
    }

    @name("punt")
    table punt {
        key = {
            meta.drop_reason: exact @name("drop_reason");
        }
        actions = {
            punt_to_controller;
            @defaultonly drop_packet;
        }
        const default_action = drop_packet();
        size = DROP_REASONS;
    }

    apply {
        drop_reasons.count((bit<32>)(bit<8>)meta.drop_reason);
        punt.apply();
    }
}

#endif
