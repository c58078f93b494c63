// FIB on the destination address (after the shift), then the next hop with its port and MACs.
#ifndef ROUTE_P4
#define ROUTE_P4

#include "headers.p4"

control Route(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    @name("fib_packets")
    direct_counter(CounterType.packets_and_bytes) fib_packets;

    @name("next_hop_packets")
    direct_counter(CounterType.packets_and_bytes) next_hop_packets;

    @name("route_to")
    action route_to(next_hop_id_t next_hop_id) {
        fib_packets.count();
        meta.next_hop_id = next_hop_id;
    }

    @name("discard")
    action discard() {
        fib_packets.count();
        meta.drop_reason = DropReason.DISCARD_ROUTE;
    }

    @name("no_route")
    action no_route() {
        fib_packets.count();
        meta.drop_reason = DropReason.NO_ROUTE;
    }

    @name("fib")
    table fib {
        key = {
            hdr.ipv6.dst_addr: lpm @name("dst_addr");
        }
        actions = {
            route_to;
            discard;
            @defaultonly no_route;
        }
        const default_action = no_route();
        counters = fib_packets;
        size = 4096;
    }

    @name("forward")
    action forward(port_num_t port, mac_addr_t src_mac, mac_addr_t dst_mac) {
        next_hop_packets.count();
        standard_metadata.egress_spec = port;
        hdr.ethernet.src_addr = src_mac;
        hdr.ethernet.dst_addr = dst_mac;
        hdr.ipv6.hop_limit = hdr.ipv6.hop_limit - 1;
    }

    @name("no_next_hop")
    action no_next_hop() {
        next_hop_packets.count();
        meta.drop_reason = DropReason.NO_NEXT_HOP;
    }

    @name("next_hop")
    table next_hop {
        key = {
            meta.next_hop_id: exact @name("next_hop_id");
        }
        actions = {
            forward;
            @defaultonly no_next_hop;
        }
        const default_action = no_next_hop();
        counters = next_hop_packets;
        size = 1024;
    }

    apply {
        fib.apply();
        if (meta.drop_reason == DropReason.NONE) {
            next_hop.apply();
        }
    }
}

#endif
