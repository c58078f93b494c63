// FIB on the destination address (after the shift), an ECMP group if the route names one, then the next hop
// with its port and MACs, which the packet gets when a queue has taken it (mrc_switch.p4). A uN path has one next hop;
// groups serve plain IPv6 routes.
#ifndef ROUTE_P4
#define ROUTE_P4

#include "headers.p4"

control Route(in headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    @name("fib_packets")
    direct_counter(CounterType.packets_and_bytes) fib_packets;

    @name("next_hop_packets")
    direct_counter(CounterType.packets_and_bytes) next_hop_packets;

    @name("route_to")
    action route_to(next_hop_id_t next_hop_id) {
        fib_packets.count();
        meta.next_hop_id = next_hop_id;
    }

    @name("route_to_group")
    action route_to_group(group_id_t group_id, bit<32> seed) {
        fib_packets.count();
        meta.group_id = group_id;
        meta.seed = seed;
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
            route_to_group;
            discard;
            @defaultonly no_route;
        }
        const default_action = no_route();
        counters = fib_packets;
        size = 4096;
    }

    bit<16> src_port = 0;
    bit<16> dst_port = 0;
    bit<16> flow_hash = 0;

    // CRC-32 alone is affine: flows that share a member under one seed would share one under any other, and
    // switches in a row would polarise. Two odd multiplications break that (as MurmurHash3 finishes).
    @name("hash_flow")
    action hash_flow() {
        bit<32> h;
        hash(h, HashAlgorithm.crc32, 32w0,
             { hdr.ipv6.src_addr, hdr.ipv6.dst_addr, hdr.ipv6.flow_label, hdr.ipv6.next_hdr, src_port, dst_port },
             64w0x100000000);
        h = (h + meta.seed) * 32w0x9E3779B1;
        h = h ^ (h >> 15);
        h = h * 32w0x85EBCA77;
        flow_hash = h[31:16];
    }

    @name("set_next_hop")
    action set_next_hop(next_hop_id_t next_hop_id) {
        meta.next_hop_id = next_hop_id;
    }

    @name("ecmp_members")
    action_selector(HashAlgorithm.identity, 32w4096, 32w16) ecmp_members;

    @name("ecmp_group")
    table ecmp_group {
        key = {
            meta.group_id: exact @name("group_id");
            flow_hash: selector;
        }
        actions = {
            set_next_hop;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        implementation = ecmp_members;
        size = 1024;
    }

    @name("forward")
    action forward(port_num_t port, mac_addr_t src_mac, mac_addr_t dst_mac) {
        next_hop_packets.count();
        standard_metadata.egress_spec = port;
        meta.next_src_mac = src_mac;
        meta.next_dst_mac = dst_mac;
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
            if (meta.group_id != 0) {
                if (hdr.udp.isValid()) {
                    src_port = hdr.udp.src_port;
                    dst_port = hdr.udp.dst_port;
                }
                hash_flow();
                ecmp_group.apply();
            }
            next_hop.apply();
        }
    }
}

#endif
