// Headers and per-packet metadata of the MRC fabric switch.
#ifndef HEADERS_P4
#define HEADERS_P4

typedef bit<9> port_num_t;
typedef bit<48> mac_addr_t;
typedef bit<128> ipv6_addr_t;
typedef bit<16> next_hop_id_t;
typedef bit<16> group_id_t;
typedef bit<3> queue_t;
typedef bit<6> dscp_t;
typedef bit<32> packets_t; // a number of packets in a queue

const bit<16> ETHERTYPE_IPV6 = 0x86dd;
const bit<8> PROTO_UDP = 17;
const bit<8> PROTO_IPV6 = 41;
const bit<8> PROTO_ROUTING = 43;

const bit<32> PORTS = 512;
const port_num_t CPU_PORT = 510; // BMv2: --cpu-port 510

// Strict priority: a higher number is served first.
const bit<32> QUEUES_PER_PORT = 8;
const queue_t DATA_QUEUE = 0;
const queue_t TRIM_QUEUE = 1;
const queue_t CONTROL_QUEUE = 2;

// What the controller gets with a packet that is punted to it.
@controller_header("packet_in")
header packet_in_h {
    port_num_t ingress_port;
    bit<7> pad;
    bit<8> reason; // a DropReason
}

// What it sends along: the port that the packet leaves through.
@controller_header("packet_out")
header packet_out_h {
    port_num_t egress_port;
    bit<7> pad;
}

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

const bit<2> ECN_ECT1 = 1; // RFC 3168 5
const bit<2> ECN_ECT0 = 2;
const bit<2> ECN_CE = 3;

header udp_h {
    bit<16> src_port;
    bit<16> dst_port;
    bit<16> length;
    bit<16> checksum;
}

struct headers_t {
    packet_out_h packet_out;
    packet_in_h packet_in;
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
    MARTIAN = 9, // multicast source, multicast or link-local destination (RFC 4291 2.5.6, 2.7)
    GUARD = 10, // a host port's packet with a source not its own, or for a place outside its tenant
    DATA_QUEUE_FULL = 11, // refused by the data queue, and not trimmable
    TRIM_QUEUE_FULL = 12 // trimmed, here or before, and refused by the trim queue too
}
const bit<32> DROP_REASONS = 16;
struct metadata_t {
    DropReason drop_reason;
    ipv6_addr_t received_dst_addr; // before any shift: what a punted packet shows
    next_hop_id_t next_hop_id;
    mac_addr_t next_src_mac;
    mac_addr_t next_dst_mac;
    group_id_t group_id; // 0: no group, the next hop is known
    bit<32> seed;
    queue_t queue;
    bool trimmable;
    bool trim; // to be cut in egress
    bool counted; // holds a place in `occupancy`, to be given back in egress
}

// Packets in each queue that has a limit, index port x 8 + queue. The ingress takes a place for a packet that it
// admits, the egress gives it back; P4 owns the count, so that what a full queue refuses can be trimmed instead.
register<packets_t>(PORTS * QUEUES_PER_PORT) occupancy;

#endif
