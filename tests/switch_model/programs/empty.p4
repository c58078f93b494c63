// The blocks that these programs leave empty.
#include <core.p4>
#include <v1model.p4>

#define EMPTY_CHECKSUMS(headers_t, meta_t) \
    control Verify(inout headers_t hdr, inout meta_t meta) { apply {} } \
    control Compute(inout headers_t hdr, inout meta_t meta) { apply {} }

#define EMPTY_EGRESS(headers_t, meta_t) \
    control TestEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t standard_metadata) { apply {} }

#define SWITCH V1Switch(Parse(), Verify(), TestIngress(), TestEgress(), Compute(), Deparse()) main;
