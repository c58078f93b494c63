// Frames from and to the controller.
#include "empty.p4"

const bit<9> CPU_PORT = 64;

@controller_header("packet_in")
header packet_in_h {
    bit<9> ingress_port;
    bit<4> reason;
    bit<35> cookie;
}

@controller_header("packet_out")
header packet_out_h {
    bit<3> flags;
    bit<9> egress_port;
    bit<4> pad;
}

header plain_h {
    bit<16> value;
}

struct headers_t {
    packet_out_h packet_out;
    packet_in_h packet_in;
    plain_h plain;
}

struct meta_t {
}

parser Parse(packet_in packet, out headers_t hdr, inout meta_t meta,
             inout standard_metadata_t standard_metadata) {
    state start {
        transition select(standard_metadata.ingress_port) {
            CPU_PORT: parse_packet_out;
            default: parse_plain;
        }
    }

    state parse_packet_out {
        packet.extract(hdr.packet_out);
        transition parse_plain;
    }

    state parse_plain {
        packet.extract(hdr.plain);
        transition accept;
    }
}

EMPTY_CHECKSUMS(headers_t, meta_t)

control TestIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        if (hdr.packet_out.isValid()) {
            standard_metadata.egress_spec = hdr.packet_out.egress_port;
            hdr.plain.value = hdr.plain.value + (bit<16>)hdr.packet_out.flags;
            hdr.packet_out.setInvalid();
        } else {
            standard_metadata.egress_spec = CPU_PORT;
        }
    }
}

control TestEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        if (standard_metadata.egress_port == CPU_PORT) {
            hdr.packet_in.setValid();
            hdr.packet_in.ingress_port = standard_metadata.ingress_port;
            hdr.packet_in.reason = 5;
            hdr.packet_in.cookie = 35w0x712345678;
        }
    }
}

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.packet_in);
        packet.emit(hdr.plain);
    }
}

SWITCH
