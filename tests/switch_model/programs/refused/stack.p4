#define HEADERS plain_h[2] stack;
#define PARSE packet.extract(hdr.stack.next);
#include "base.p4"
