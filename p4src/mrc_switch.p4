// The switch of an MRC fabric: SRv6 uN micro-segments over static routes, for v1model (BMv2 and switch_model).
//
//   ingress:  drop by default
//             Admit   my station? parsed? IPv6? hop limit > 1?
//             MySid   own uSID in front: shift it out of the destination address
//             Route   FIB on the new destination -> next hop -> port and MACs
//             Drop    the only mark_to_drop, counted by reason
//   egress:   counters per port
//
// Every table is written over P4Runtime; see controller/.
#include <core.p4>
#include <v1model.p4>

#include "admit.p4"
#include "drop.p4"
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
    MySid() sid;
    Route() route;
    Drop() drop;

    apply {
        // Untouched, egress_spec is 0, a port like any other: start from drop (BMv2 issue 992).
        mark_to_drop(standard_metadata);
        port_rx.count((bit<32>)standard_metadata.ingress_port);
        admit.apply(hdr, meta, standard_metadata);
        if (meta.drop_reason == DropReason.NONE) {
            sid.apply(hdr, meta);
        }
        if (meta.drop_reason == DropReason.NONE) {
            route.apply(hdr, meta, standard_metadata);
        }
        drop.apply(meta, standard_metadata);
    }
}

control FabricEgress(inout headers_t hdr, inout metadata_t meta,
                     inout standard_metadata_t standard_metadata) {
    @name("port_tx")
    counter(PORTS, CounterType.packets_and_bytes) port_tx;

    apply {
        port_tx.count((bit<32>)standard_metadata.egress_port);
    }
}

// No header of this fabric has a checksum that a switch changes: IPv6 has none, and the UDP checksum
// belongs to the end points (RFC 9800 6.5).
control FabricComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

V1Switch(FabricParser(), FabricVerifyChecksum(), FabricIngress(), FabricEgress(), FabricComputeChecksum(),
         FabricDeparser()) main;
