// Parser: masks, several keys, lookahead, advance, verify, and what a short packet does.
#include "empty.p4"

error { BadVersion }

header first_h {
    bit<4> version;
    bit<4> kind;
    bit<8> code;
}

header even_h {
    bit<16> value;
}

header odd_h {
    bit<8> value;
}

header report_h {
    bit<8> error_code;
    bit<8> peeked;
    bit<8> path;
}

struct headers_t {
    report_h report;
    first_h first;
    even_h even;
    odd_h odd;
}

struct meta_t {
    bit<8> peeked;
    bit<8> path;
}

parser Parse(packet_in packet, out headers_t hdr, inout meta_t meta,
             inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.first);
        verify(hdr.first.version == 4, error.BadVersion);
        transition select(hdr.first.kind, hdr.first.code) {
            (1, 0x10 &&& 0xf0): parse_even;
            (2, _): parse_odd;
            (3, 7): skip;
            (4, _): peek;
            default: accept;
        }
    }

    state parse_even {
        meta.path = 1;
        packet.extract(hdr.even);
        transition select(hdr.even.value) {
            0x8000 &&& 0x8000: parse_odd;
            default: accept;
        }
    }

    state parse_odd {
        meta.path = meta.path + 2;
        packet.extract(hdr.odd);
        transition accept;
    }

    state skip {
        meta.path = 8;
        packet.advance(16);
        transition parse_odd;
    }

    state peek {
        meta.path = 16;
        meta.peeked = packet.lookahead<bit<8>>();
        transition select(packet.lookahead<bit<16>>()) {
            0x0102: parse_even;
            default: accept;
        }
    }
}

EMPTY_CHECKSUMS(headers_t, meta_t)

control TestIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        hdr.report.setValid();
        if (standard_metadata.parser_error == error.PacketTooShort) {
            hdr.report.error_code = 1;
        } else if (standard_metadata.parser_error == error.BadVersion) {
            hdr.report.error_code = 2;
        }
        hdr.report.peeked = meta.peeked;
        hdr.report.path = meta.path;
        standard_metadata.egress_spec = 1;
    }
}

EMPTY_EGRESS(headers_t, meta_t)

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.report);
        packet.emit(hdr.first);
        packet.emit(hdr.even);
        packet.emit(hdr.odd);
    }
}

SWITCH
