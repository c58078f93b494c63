#define LOCALS action_selector(HashAlgorithm.xor16, 8, 8) members; \
    action forward(bit<9> port) { standard_metadata.egress_spec = port; } \
    table choose { \
        key = { hdr.plain.value: exact; hdr.plain.other: selector; } \
        actions = { forward; } \
        implementation = members; \
    }
#define BODY choose.apply();
#include "base.p4"
