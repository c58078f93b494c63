#define BODY assert(hdr.plain.value != 0);
#include "base.p4"
