#define HEADERS bytes_h bytes;
#define PARSE packet.extract(hdr.bytes, 16);
#include "base.p4"
