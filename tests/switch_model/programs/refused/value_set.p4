#define PARSER_LOCALS value_set<bit<16>>(4) known;
#define PARSE packet.extract(hdr.plain); transition select(hdr.plain.value) { known: more; default: accept; } } \
    state more {
#include "base.p4"
