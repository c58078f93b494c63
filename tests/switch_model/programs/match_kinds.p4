// One table per match kind and mix of them; each writes a result of its own.
#include "empty.p4"

header keys_h {
    bit<8> k8;
    bit<16> k16;
    bit<32> k32;
}

header results_h {
    bit<16> exact;
    bit<16> prefix;
    bit<16> exact_prefix;
    bit<16> masked;
    bit<16> range;
    bit<16> optional;
    bit<16> mixed;
    bit<16> constant;
}

struct headers_t {
    keys_h keys;
    results_h results;
}

struct meta_t {}

parser Parse(packet_in packet, out headers_t hdr, inout meta_t meta,
             inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.keys);
        packet.extract(hdr.results);
        transition accept;
    }
}

EMPTY_CHECKSUMS(headers_t, meta_t)

#define TABLE(NAME, KEYS, SIZE) \
    action set_##NAME(bit<16> value) { hdr.results.NAME = value; } \
    @name(#NAME) table NAME##_table { \
        key = { KEYS } \
        actions = { set_##NAME; @defaultonly NoAction; } \
        default_action = NoAction(); \
        size = SIZE; \
    }

control TestIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t standard_metadata) {
    TABLE(exact, hdr.keys.k8: exact @name("k8"); hdr.keys.k16: exact @name("k16");, 64)
    TABLE(prefix, hdr.keys.k32: lpm @name("k32");, 64)
    TABLE(exact_prefix, hdr.keys.k8: exact @name("k8"); hdr.keys.k32: lpm @name("k32");, 64)
    TABLE(masked, hdr.keys.k16: ternary @name("k16"); hdr.keys.k8: ternary @name("k8");, 64)
    TABLE(range, hdr.keys.k16: range @name("k16"); hdr.keys.k8: exact @name("k8");, 64)
    TABLE(optional, hdr.keys.k8: optional @name("k8"); hdr.keys.k16: optional @name("k16");, 64)
    TABLE(mixed, hdr.keys.k8: ternary @name("k8"); hdr.keys.k32: lpm @name("k32"); hdr.keys.k16: range @name("k16");, 4)

    action set_constant(bit<16> value) {
        hdr.results.constant = value;
    }

    @name("constant")
    table constant_table {
        key = {
            hdr.keys.k16: ternary @name("k16");
            hdr.keys.k32: lpm @name("k32");
            hdr.keys.k8: range @name("k8");
        }
        actions = {
            set_constant;
            @defaultonly NoAction;
        }
        const entries = {
            (0x1200 &&& 0xff00, 0x0a000000 &&& 0xff000000, 5): set_constant(11);
            (0x1200 &&& 0xff00, 0x0a000000 &&& 0xff000000, 5 .. 10): set_constant(12);
            (_, 0x0a000000 &&& 0xff000000, _): set_constant(13);
            (0x1234, _, _): set_constant(14);
        }
        const default_action = NoAction();
    }

    apply {
        exact_table.apply();
        prefix_table.apply();
        exact_prefix_table.apply();
        masked_table.apply();
        range_table.apply();
        optional_table.apply();
        mixed_table.apply();
        constant_table.apply();
        standard_metadata.egress_spec = 1;
    }
}

EMPTY_EGRESS(headers_t, meta_t)

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.keys);
        packet.emit(hdr.results);
    }
}

SWITCH
