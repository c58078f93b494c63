// What happens to a packet as it leaves its queue: give back its place, mark it, cut it.
#ifndef EGRESS_P4
#define EGRESS_P4

#include "headers.p4"

const bit<32> ETHERNET_AND_IPV6_BYTES = 54;

control FabricEgress(inout headers_t hdr, inout metadata_t meta,
                     inout standard_metadata_t standard_metadata) {
    @name("port_tx")
    counter(PORTS, CounterType.packets_and_bytes) port_tx;

    @name("port_trims")
    counter(PORTS, CounterType.packets) port_trims;

    @name("port_marks")
    counter(PORTS, CounterType.packets) port_marks;

    packets_t depth = 0; // of this packet's queue, behind it

    @name("give_back_place")
    action give_back_place() {
        bit<32> index = (bit<32>)standard_metadata.egress_port * QUEUES_PER_PORT + (bit<32>)meta.queue;
        packets_t before;
        occupancy.read(before, index);
        depth = before |-| 1;
        occupancy.write(index, depth);
    }

    bit<32> trim_size = 0;
    dscp_t trimmed_dscp = 0;
    packets_t mark_from = 0;
    packets_t mark_span = 0;

    // Towards a NIC: a trim is TRIMMED_LASTHOP, and nothing is marked, for no other path avoids this port (arXiv
    // 2605.04333).
    @name("host_role")
    action host_role(dscp_t dscp, bit<32> size) {
        trimmed_dscp = dscp;
        trim_size = size;
    }

    // Towards a switch: marks ECN-capable packets with a probability that rises from 0 at `from` packets in the
    // queue to 1 at `from + span`.
    @name("fabric_role")
    action fabric_role(dscp_t dscp, bit<32> size, packets_t from, packets_t span) {
        trimmed_dscp = dscp;
        trim_size = size;
        mark_from = from;
        mark_span = span;
    }

    @name("port_role")
    table port_role {
        key = {
            standard_metadata.egress_port: exact @name("egress_port");
        }
        actions = {
            host_role;
            fabric_role;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = PORTS;
    }

    @name("mark")
    action mark() {
        hdr.ipv6.ecn = ECN_CE;
        port_marks.count((bit<32>)standard_metadata.egress_port);
    }

    // The outer header tells the new length; UDP's length stays, so that the receiver learns the old one. ECN, flow
    // label, inner header and checksums stay as they are. A packet that is not longer is only marked as trimmed.
    @name("cut")
    action cut() {
        bit<16> longest = (bit<16>)(trim_size - ETHERNET_AND_IPV6_BYTES);
        hdr.ipv6.dscp = trimmed_dscp;
        hdr.ipv6.payload_len = hdr.ipv6.payload_len < longest ? hdr.ipv6.payload_len : longest;
        truncate(trim_size);
        port_trims.count((bit<32>)standard_metadata.egress_port);
    }

    apply {
        if (meta.counted) {
            give_back_place();
        }
        if (standard_metadata.egress_port == CPU_PORT) {
            hdr.packet_in.setValid();
            hdr.packet_in.ingress_port = standard_metadata.ingress_port;
            hdr.packet_in.pad = 0;
            hdr.packet_in.reason = (bit<8>)meta.drop_reason;
        } else if (port_role.apply().hit) {
            if (meta.trim) {
                cut();
            } else if (meta.counted && meta.queue == DATA_QUEUE && mark_span != 0 && depth > mark_from
                       && (hdr.ipv6.ecn == ECN_ECT0 || hdr.ipv6.ecn == ECN_ECT1)) {
                packets_t chance;
                random(chance, 0, mark_span - 1);
                if (depth - mark_from > chance) {
                    mark();
                }
            }
        }
        port_tx.count((bit<32>)standard_metadata.egress_port);
    }
}

#endif
