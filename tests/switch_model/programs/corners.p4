// Shapes that generated code must not trip over: a header without fields, parser arms and conditions that do nothing,
// fields that nobody reads, names that are words of Python.
#include "empty.p4"

header empty_h {}

header class_h {
    bit<8> lambda;
    bit<8> def;
    bit<8> head;
}

struct headers_t {
    class_h class;
    empty_h none;
}

struct meta_t {
    bit<8> unused;
    bit<8> entry;
}

parser Parse(packet_in packet, out headers_t hdr, inout meta_t meta,
             inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.class);
        transition select(hdr.class.lambda) {
            1: first;
            2 &&& 2: second;
            default: accept;
        }
    }

    state first {
        transition select(hdr.class.def) {
            7: second;
            default: accept;
        }
    }

    state second {
        meta.unused = 1;
        transition accept;
    }
}

EMPTY_CHECKSUMS(headers_t, meta_t)

control TestIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        if (hdr.class.lambda == 5) {
            hdr.none.setValid();
        }
        if (hdr.class.lambda == 6) {
            meta.unused = 3;
        } else {
            meta.entry = hdr.class.head;
        }
        hdr.class.def = meta.entry;
        standard_metadata.egress_spec = 1;
    }
}

control TestEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        if (hdr.none.isValid()) {
            hdr.class.head = 0xee;
        }
    }
}

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.class);
        packet.emit(hdr.none);
    }
}

SWITCH
