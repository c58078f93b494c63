// May this frame enter the IPv6 pipeline? Sets a drop reason if not.
#ifndef ADMIT_P4
#define ADMIT_P4

#include "headers.p4"

control Admit(in headers_t hdr, inout metadata_t meta, in standard_metadata_t standard_metadata) {
    @name("my_station_frames")
    direct_counter(CounterType.packets_and_bytes) my_station_frames;

    @name("admit_frame")
    action admit_frame() {
        my_station_frames.count();
    }

    @name("refuse_frame")
    action refuse_frame() {
        my_station_frames.count();
        meta.drop_reason = DropReason.NOT_MY_STATION;
    }

    // The router's MAC on each port. Nothing that is addressed to another station is routed.
    @name("my_station")
    table my_station {
        key = {
            standard_metadata.ingress_port: exact @name("ingress_port");
            hdr.ethernet.dst_addr: exact @name("dst_mac");
        }
        actions = {
            admit_frame;
            @defaultonly refuse_frame;
        }
        const default_action = refuse_frame();
        counters = my_station_frames;
        size = 1024;
    }

    apply {
        if (standard_metadata.parser_error != error.NoError) {
            meta.drop_reason = DropReason.PARSER_ERROR;
        } else {
            my_station.apply();
        }
        if (meta.drop_reason == DropReason.NONE) {
            if (!hdr.ipv6.isValid() || hdr.ipv6.version != 6) {
                meta.drop_reason = DropReason.NOT_IPV6;
            } else if (hdr.ipv6.src_addr[127:120] == 0xff || hdr.ipv6.dst_addr[127:120] == 0xff
                       || hdr.ipv6.dst_addr[127:118] == 0x3fa) {
                meta.drop_reason = DropReason.MARTIAN;
            } else if (hdr.ipv6.hop_limit <= 1) {
                meta.drop_reason = DropReason.HOP_LIMIT;
            }
        }
    }
}

#endif
