// The edge of the SR domain (RFC 8402 8.2): what a host port may send, and where to.
#ifndef GUARD_P4
#define GUARD_P4

#include "headers.p4"

control Guard(in headers_t hdr, inout metadata_t meta, in standard_metadata_t standard_metadata) {
    @name("guard_packets")
    direct_counter(CounterType.packets_and_bytes) guard_packets;

    @name("guard_this_port")
    action guard_this_port() {
        meta.drop_reason = DropReason.GUARD; // until the guard lets it pass
    }

    @name("host_port")
    table host_port {
        key = {
            standard_metadata.ingress_port: exact @name("ingress_port");
        }
        actions = {
            guard_this_port;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = PORTS;
    }

    @name("pass_guard")
    action pass_guard() {
        guard_packets.count();
        meta.drop_reason = DropReason.NONE;
    }

    // The port's own address, and what its tenant may reach: `block : own T0` with uSIDs, or NIC prefixes.
    @name("guard")
    table guard {
        key = {
            standard_metadata.ingress_port: exact @name("ingress_port");
            hdr.ipv6.src_addr: exact @name("src_addr");
            hdr.ipv6.dst_addr: lpm @name("dst_addr");
        }
        actions = {
            pass_guard;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        counters = guard_packets;
        size = 2048;
    }

    apply {
        if (host_port.apply().hit) {
            if (!hdr.inner_ipv6.isValid() || hdr.inner_ipv6.src_addr == hdr.ipv6.src_addr) {
                guard.apply();
            }
        }
    }
}

#endif
