// Every operator that p4c-bm2-ss emits, one result each.
#include "empty.p4"

header input_h {
    bit<16> a;
    bit<16> b;
    bit<8> n;
    int<8> s;
    int<8> t;
    bit<128> wide;
}

header output_h {
    bit<16> sum;
    bit<16> difference;
    bit<16> product;
    bit<16> both;
    bit<16> either;
    bit<16> differing;
    bit<16> inverse;
    bit<16> saturated_sum;
    bit<16> saturated_difference;
    bit<16> left;
    bit<16> right;
    bit<16> left3;
    bit<16> right3;
    bit<32> joined;
    bit<8> middle;
    bit<16> larger;
    bit<8> compared; // < <= > >= == != && ||
    int<8> signed_sum;
    int<8> signed_saturated_sum;
    int<8> signed_saturated_difference;
    int<8> signed_right;
    int<16> widened;
    bit<8> signed_less;
    bit<128> shifted;
    bit<4> nibble_high;
    bit<4> nibble_low;
}

struct headers_t {
    input_h in_;
    output_h out_;
}

struct meta_t {}

parser Parse(packet_in packet, out headers_t hdr, inout meta_t meta,
             inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.in_);
        transition accept;
    }
}

EMPTY_CHECKSUMS(headers_t, meta_t)

control TestIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        hdr.out_.setValid();
        hdr.out_.sum = hdr.in_.a + hdr.in_.b;
        hdr.out_.difference = hdr.in_.a - hdr.in_.b;
        hdr.out_.product = hdr.in_.a * hdr.in_.b;
        hdr.out_.both = hdr.in_.a & hdr.in_.b;
        hdr.out_.either = hdr.in_.a | hdr.in_.b;
        hdr.out_.differing = hdr.in_.a ^ hdr.in_.b;
        hdr.out_.inverse = ~hdr.in_.a;
        hdr.out_.saturated_sum = hdr.in_.a |+| hdr.in_.b;
        hdr.out_.saturated_difference = hdr.in_.a |-| hdr.in_.b;
        hdr.out_.left = hdr.in_.a << hdr.in_.n;
        hdr.out_.right = hdr.in_.a >> hdr.in_.n;
        hdr.out_.left3 = hdr.in_.a << 3;
        hdr.out_.right3 = hdr.in_.a >> 3;
        hdr.out_.joined = hdr.in_.a ++ hdr.in_.b;
        hdr.out_.middle = hdr.in_.a[11:4];
        hdr.out_.larger = hdr.in_.a > hdr.in_.b ? hdr.in_.a : hdr.in_.b;
        hdr.out_.compared = 0;
        if (hdr.in_.a < hdr.in_.b) {
            hdr.out_.compared[7:7] = 1;
        }
        if (hdr.in_.a <= hdr.in_.b) {
            hdr.out_.compared[6:6] = 1;
        }
        if (hdr.in_.a > hdr.in_.b) {
            hdr.out_.compared[5:5] = 1;
        }
        if (hdr.in_.a >= hdr.in_.b) {
            hdr.out_.compared[4:4] = 1;
        }
        if (hdr.in_.a == hdr.in_.b) {
            hdr.out_.compared[3:3] = 1;
        }
        if (hdr.in_.a != hdr.in_.b) {
            hdr.out_.compared[2:2] = 1;
        }
        bool low = hdr.in_.n < 8;
        bool even = hdr.in_.a[0:0] == 0;
        hdr.out_.compared[1:1] = low && even ? 1w1 : 1w0;
        hdr.out_.compared[0:0] = (low == even) || !low ? 1w1 : 1w0;
        hdr.out_.signed_sum = hdr.in_.s + hdr.in_.t;
        hdr.out_.signed_saturated_sum = hdr.in_.s |+| hdr.in_.t;
        hdr.out_.signed_saturated_difference = hdr.in_.s |-| hdr.in_.t;
        hdr.out_.signed_right = hdr.in_.s >> 2;
        hdr.out_.widened = (int<16>)hdr.in_.s;
        hdr.out_.signed_less = hdr.in_.s < hdr.in_.t ? 8w1 : 8w0;
        hdr.out_.shifted = (hdr.in_.wide << 16) | (bit<128>)hdr.in_.a;
        hdr.out_.nibble_high = hdr.in_.n[3:0];
        hdr.out_.nibble_low = hdr.in_.n[7:4];
        standard_metadata.egress_spec = 1;
    }
}

EMPTY_EGRESS(headers_t, meta_t)

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.in_);
        packet.emit(hdr.out_);
    }
}

SWITCH
