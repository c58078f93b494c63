#define LOCALS action forward(bit<9> port) { standard_metadata.egress_spec = port; } \
    table ageing { \
        key = { hdr.plain.value: exact; } \
        actions = { forward; } \
        support_timeout = true; \
    }
#define BODY ageing.apply();
#include "base.p4"
