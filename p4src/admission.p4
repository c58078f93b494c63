// Traffic class, and admission to a queue that has a limit: in, trimmed, or dropped.
//
//   DSCP -> queue, trimmable
//   data queue full:  a trimmable packet goes to the trim queue and is cut in egress, another is dropped
//   trim queue full:  dropped, never cut again
#ifndef ADMISSION_P4
#define ADMISSION_P4

#include "headers.p4"

control Admission(in headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    @name("classify")
    action classify(queue_t queue, bit<1> trimmable) {
        meta.queue = queue;
        meta.trimmable = (bool)trimmable;
    }

    // A DSCP that is not here is data, not trimmable (UEC 1.0 4.1).
    @name("traffic_class")
    table traffic_class {
        key = {
            hdr.ipv6.dscp: exact @name("dscp");
        }
        actions = {
            classify;
        }
        const default_action = classify(DATA_QUEUE, 0);
        size = 64;
    }

    packets_t data_limit = 0;
    packets_t trim_limit = 0;

    @name("set_limits")
    action set_limits(packets_t data_packets, packets_t trim_packets) {
        data_limit = data_packets;
        trim_limit = trim_packets;
    }

    // A port that is not here has no limits, and its packets are not counted.
    @name("queue_limits")
    table queue_limits {
        key = {
            standard_metadata.egress_spec: exact @name("egress_port");
        }
        actions = {
            set_limits;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = PORTS;
    }

    // Reading and writing in one action is one atomic step on BMv2, which runs ingress and egress in threads.
    @name("take_place")
    action take_place(packets_t limit) {
        bit<32> index = (bit<32>)standard_metadata.egress_spec * QUEUES_PER_PORT + (bit<32>)meta.queue;
        packets_t depth;
        occupancy.read(depth, index);
        meta.counted = depth < limit;
        occupancy.write(index, depth < limit ? depth + 1 : depth);
    }

    apply {
        traffic_class.apply();
        if (queue_limits.apply().hit) {
            if (meta.queue == DATA_QUEUE) {
                take_place(data_limit);
                if (!meta.counted) {
                    if (meta.trimmable) {
                        meta.trim = true;
                        meta.queue = TRIM_QUEUE;
                    } else {
                        meta.drop_reason = DropReason.DATA_QUEUE_FULL;
                    }
                }
            }
            if (meta.queue == TRIM_QUEUE) {
                take_place(trim_limit);
                if (!meta.counted) {
                    meta.drop_reason = DropReason.TRIM_QUEUE_FULL;
                }
            }
        }
        standard_metadata.priority = meta.queue;
    }
}

#endif
