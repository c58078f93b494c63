#define BODY digest<bit<16>>(1, hdr.plain.value);
#include "base.p4"
