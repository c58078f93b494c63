// The switch of an MRC fabric: SRv6 uN micro-segments over static routes, ECMP, packet trimming and ECN, for
// v1model (BMv2 and switch_model).
//
//   ingress:  drop by default
//             Admit      my station? parsed? IPv6? hop limit > 1?
//             Guard      on host ports: own source address, own tenant's destinations
//             MySid      own uSID in front: shift it out of the destination address
//             Route      FIB on the new destination -> (ECMP group ->) next hop -> port and MACs
//             Admission  traffic class -> queue; a full queue: trim or drop
//             then, if there is no reason to drop it, the next hop's MACs and hop limit - 1; else
//             Drop       the only mark_to_drop, counted by reason; or to the controller, as it was received
//   egress:   give back the queue place, mark ECN, cut what is to be trimmed, count per port
//
// Every table is written over P4Runtime; see controller/.
#include <core.p4>
#include <v1model.p4>

#include "admission.p4"
#include "admit.p4"
#include "drop.p4"
#include "egress.p4"
#include "guard.p4"
#include "headers.p4"
#include "my_sid.p4"
#include "parser.p4"
#include "route.p4"

control FabricVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control FabricIngress(inout headers_t hdr, inout metadata_t meta,
                      inout standard_metadata_t standard_metadata) {
    @name("port_rx")
    counter(PORTS, CounterType.packets_and_bytes) port_rx;

    Admit() admit;
    Guard() guard;
    MySid() sid;
    Route() route;
    Admission() admission;
    Drop() drop;

    apply {
        // Untouched, egress_spec is 0, a port like any other: start from drop (BMv2 issue 992).
        mark_to_drop(standard_metadata);
        port_rx.count((bit<32>)standard_metadata.ingress_port);
        meta.received_dst_addr = hdr.ipv6.dst_addr;
        if (hdr.packet_out.isValid()) {
            standard_metadata.egress_spec = hdr.packet_out.egress_port;
            standard_metadata.priority = CONTROL_QUEUE;
            hdr.packet_out.setInvalid();
        } else {
            admit.apply(hdr, meta, standard_metadata);
            if (meta.drop_reason == DropReason.NONE) {
                guard.apply(hdr, meta, standard_metadata);
            }
            if (meta.drop_reason == DropReason.NONE) {
                sid.apply(hdr, meta);
            }
            if (meta.drop_reason == DropReason.NONE) {
                route.apply(hdr, meta, standard_metadata);
            }
            if (meta.drop_reason == DropReason.NONE) {
                admission.apply(hdr, meta, standard_metadata);
            }
            if (meta.drop_reason == DropReason.NONE) {
                hdr.ethernet.src_addr = meta.next_src_mac;
                hdr.ethernet.dst_addr = meta.next_dst_mac;
                hdr.ipv6.hop_limit = hdr.ipv6.hop_limit - 1;
            } else {
                drop.apply(hdr, meta, standard_metadata);
            }
        }
    }
}

// No header of this fabric has a checksum that a switch changes: IPv6 has none, and the UDP checksum
// belongs to the end points (RFC 9800 6.5).
control FabricComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

V1Switch(FabricParser(), FabricVerifyChecksum(), FabricIngress(), FabricEgress(), FabricComputeChecksum(),
         FabricDeparser()) main;
