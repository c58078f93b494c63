// The one place where the ingress drops, each drop counted by its reason.
#ifndef DROP_P4
#define DROP_P4

#include "headers.p4"

control Drop(inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    @name("drop_reasons")
    counter(DROP_REASONS, CounterType.packets_and_bytes) drop_reasons;

    apply {
        if (meta.drop_reason != DropReason.NONE) {
            drop_reasons.count((bit<32>)(bit<8>)meta.drop_reason);
            mark_to_drop(standard_metadata);
        }
    }
}

#endif
