// Headers and per-packet metadata of the MRC fabric switch.
#ifndef HEADERS_P4
#define HEADERS_P4

typedef bit<9> port_num_t;
typedef bit<48> mac_addr_t;
typedef bit<128> ipv6_addr_t;
typedef bit<16> next_hop_id_t;

const bit<16> ETHERTYPE_IPV6 = 0x86dd;
const bit<8> PROTO_UDP = 17;
const bit<8> PROTO_IPV6 = 41;
const bit<8> PROTO_ROUTING = 43;

header ethernet_h {
    mac_addr_t dst_addr;
    mac_addr_t src_addr;
    bit<16> ether_type;
}

header ipv6_h {
    bit<4> version;
    bit<6> dscp;
    bit<2> ecn;
    bit<20> flow_label;
    bit<16> payload_len;
    bit<8> next_hdr;
    bit<8> hop_limit;
    ipv6_addr_t src_addr;
    ipv6_addr_t dst_addr;
}

// The fixed part of a routing header: in this fabric a segment routing header (RFC 8754 2). The switch recognises it and leaves it alone:
// a uN shift does not look at it (RFC 9800 4.1), and End with an SRH is outside this program.
header srh_h {
    bit<8> next_hdr;
    bit<8> hdr_ext_len;
    bit<8> routing_type;
    bit<8> segments_left;
    bit<8> last_entry;
    bit<8> flags;
    bit<16> tag;
}

header udp_h {
    bit<16> src_port;
    bit<16> dst_port;
    bit<16> length;
    bit<16> checksum;
}

struct headers_t {
    ethernet_h ethernet;
    ipv6_h ipv6;
    srh_h srh;
    ipv6_h inner_ipv6;
    udp_h udp;
}

// Why a packet was dropped: the index of the counter `drop_reasons`. 0 means that it was not.
enum bit<8> DropReason {
    NONE = 0,
    PARSER_ERROR = 1, // too short for the headers that it announces
    NOT_MY_STATION = 2, // the frame is not for the router's MAC on this port
    NOT_IPV6 = 3,
    HOP_LIMIT = 4, // 0 or 1 on arrival (RFC 8200 3, RFC 9800 4.1)
    NO_ROUTE = 5, // no FIB entry for the destination, after the shift if there was one
    LAST_USID = 6, // own uN and argument 0: a switch of this fabric is never the last uSID
    DISCARD_ROUTE = 7, // a FIB entry says so
    NO_NEXT_HOP = 8, // the FIB names a next hop that is not there
    MARTIAN = 9 // multicast source, multicast or link-local destination (RFC 4291 2.5.6, 2.7)
}
const bit<32> DROP_REASONS = 16;
const bit<32> PORTS = 512;

struct metadata_t {
    DropReason drop_reason;
    next_hop_id_t next_hop_id;
}

#endif
