#define BODY hash(hdr.plain.value, HashAlgorithm.xor16, 16w0, {hdr.plain.other}, 32w16);
#include "base.p4"
