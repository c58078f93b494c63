// A program around one construct: a file defines some of these macros and includes this one.
#include "../empty.p4"

#ifndef HEADERS
#define HEADERS
#endif
#ifndef META
#define META
#endif
#ifndef PARSE
#define PARSE packet.extract(hdr.plain);
#endif
#ifndef PARSER_LOCALS
#define PARSER_LOCALS
#endif
#ifndef LOCALS
#define LOCALS
#endif
#ifndef BODY
#define BODY standard_metadata.egress_spec = 1;
#endif

header plain_h {
    bit<16> value;
    bit<16> other;
}

header bytes_h {
    varbit<64> bytes;
}

struct headers_t {
    plain_h plain;
    HEADERS
}

struct meta_t {
    META
}

parser Parse(packet_in packet, out headers_t hdr, inout meta_t meta,
             inout standard_metadata_t standard_metadata) {
    PARSER_LOCALS
    state start {
        PARSE
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout meta_t meta) { apply {} }

#ifndef CHECKSUM
#define CHECKSUM
#endif
control Compute(inout headers_t hdr, inout meta_t meta) { apply { CHECKSUM } }

control TestIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t standard_metadata) {
    LOCALS
    apply {
        BODY
    }
}

#ifndef EGRESS
#define EGRESS
#endif
control TestEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t standard_metadata) {
    apply { EGRESS }
}

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.plain);
    }
}

SWITCH
