// Fields that share bytes, long fields that nothing writes, temporaries whose operands change.
#include "empty.p4"

header shared_h {
    bit<3> a;
    int<5> b;
    bit<7> c;
    bit<10> d;
    int<7> e;
    bit<12> f;
    bit<4> g;
}

header long_h {
    bit<48> address;
    bit<24> three;
    bit<16> result;
    bit<32> total;
}

struct headers_t {
    shared_h shared;
    long_h long;
    shared_h made;
}

struct meta_t {
    bit<8> code;
}

parser Parse(packet_in packet, out headers_t hdr, inout meta_t meta,
             inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.shared);
        packet.extract(hdr.long);
        transition accept;
    }
}

EMPTY_CHECKSUMS(headers_t, meta_t)

register<bit<32>>(1024) cells;

control TestIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t standard_metadata) {
    counter(1024, CounterType.packets_and_bytes) flows;

    action write_shared() {
        hdr.shared.b = hdr.shared.b + 3;
        hdr.shared.c = hdr.shared.c - 1;
        hdr.shared.e = -hdr.shared.e;
        hdr.shared.f = hdr.shared.f |+| 0xf00;
    }

    // What is counted and read is the value from before the change.
    action operands_change() {
        bit<32> index = (bit<32>)hdr.shared.d;
        bit<32> before = (bit<32>)hdr.shared.d + 1;
        hdr.shared.d = 5;
        flows.count(index);
        bit<32> cell;
        cells.read(cell, before & 0x3ff);
        cells.write(before & 0x3ff, cell + 1);
        hdr.long.total = cell;
    }

    action use_before_change() {
        bit<16> sum = (bit<16>)hdr.shared.g + (bit<16>)hdr.shared.a;
        hdr.long.result = sum;
        hdr.shared.g = 15;
        hdr.long.total = (bit<32>)hdr.shared.g;
    }

    action slices() {
        hdr.long.result = hdr.long.address[33:18];
        hdr.long.total = hdr.long.address[47:40] ++ hdr.long.three[23:16] ++ hdr.long.address[15:0];
    }

    action saturating() {
        hdr.long.total = (bit<32>)hdr.shared.c |-| (bit<32>)hdr.shared.d;
        hdr.long.result = (bit<16>)(hdr.shared.f |-| 0x100);
    }

    action make() {
        hdr.made.setValid();
        hdr.made.b = hdr.shared.b;
        hdr.made.d = 0x155;
        hdr.made.e = -1;
    }

    action copy() {
        hdr.made = hdr.shared;
        hdr.made.a = 7;
    }

    apply {
        standard_metadata.egress_spec = 1;
        if (hdr.shared.a == 0) {
            write_shared();
        } else if (hdr.shared.a == 1) {
            operands_change();
        } else if (hdr.shared.a == 2) {
            use_before_change();
        } else if (hdr.shared.a == 3) {
            slices();
        } else if (hdr.shared.a == 4) {
            saturating();
        } else if (hdr.shared.a == 5) {
            make();
        } else if (hdr.shared.a == 6) {
            copy();
        } else if (hdr.shared.b < 0 && hdr.shared.e > -5) {
            hdr.long.result = 1;
        } else {
            bit<8> code = 0;
            if (hdr.shared.g == 3) {
                code = 7;
            }
            hdr.long.result = (bit<16>)code;
        }
    }
}

control TestEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        if (hdr.shared.g == 9) {
            hdr.shared.g = 8;
            hdr.shared.b = -hdr.shared.b;
        }
    }
}

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.shared);
        packet.emit(hdr.long);
        packet.emit(hdr.made);
    }
}

SWITCH
