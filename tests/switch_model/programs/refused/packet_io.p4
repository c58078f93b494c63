#define HEADERS packet_in_h packet_in_header;
@controller_header("packet_in")
header packet_in_h { bit<16> port; }
#include "base.p4"
