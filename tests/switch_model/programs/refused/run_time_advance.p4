#define PARSE packet.extract(hdr.plain); packet.advance((bit<32>)hdr.plain.value);
#include "base.p4"
