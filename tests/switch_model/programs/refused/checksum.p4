#define CHECKSUM update_checksum(true, {hdr.plain.value}, hdr.plain.other, HashAlgorithm.csum16);
#include "base.p4"
