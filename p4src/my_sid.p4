// Local SIDs: SRv6 End with NEXT-C-SID, "uN" (RFC 9800 4.1), block 32 bits, uSID 16 bits.
//
//   DA = block (32) | own uSID (16) | argument (80)
//   argument != 0:  DA <- block | argument | 0 (16), then an ordinary FIB lookup of the new DA
//   argument == 0:  the own uSID is the last one: not for a switch of this fabric, dropped
#ifndef MY_SID_P4
#define MY_SID_P4

#include "headers.p4"

control MySid(inout headers_t hdr, inout metadata_t meta) {
    @name("my_sid_packets")
    direct_counter(CounterType.packets_and_bytes) my_sid_packets;

    // The whole argument decides, not only the next 16 bits: after a gap of zeros the packet is shifted
    // and then finds no route, it is never taken for the end of the list (RFC 9800 4.1, rule N01).
    @name("end_un")
    action end_un() {
        my_sid_packets.count();
        meta.drop_reason = hdr.ipv6.dst_addr[79:0] == 0 ? DropReason.LAST_USID : meta.drop_reason;
        hdr.ipv6.dst_addr[95:0] = hdr.ipv6.dst_addr[79:0] ++ 16w0;
    }

    @name("my_sid")
    table my_sid {
        key = {
            hdr.ipv6.dst_addr: lpm @name("dst_addr");
        }
        actions = {
            end_un;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        counters = my_sid_packets;
        size = 1024;
    }

    apply {
        my_sid.apply();
    }
}

#endif
