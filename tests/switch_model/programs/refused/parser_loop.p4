#define PARSE packet.extract(hdr.plain); transition select(hdr.plain.value) { 0: start; default: accept; } } state unused {
#include "base.p4"
