// Every frame leaves through port 1, cut to 64 bytes, and a clone of it by session 5: is the clone cut too?
#include <core.p4>
#include <v1model.p4>

header ethernet_h {
    bit<48> dst_addr;
    bit<48> src_addr;
    bit<16> ether_type;
}

struct headers_t {
    ethernet_h ethernet;
}

struct metadata_t {
}

parser CloneParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                   inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.ethernet);
        transition accept;
    }
}

control CloneIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        standard_metadata.egress_spec = 1;
        truncate(64);
        clone(CloneType.I2E, 5);
    }
}

control CloneEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {}
}

control CloneDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
    }
}

control CloneChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

V1Switch(CloneParser(), CloneChecksum(), CloneIngress(), CloneEgress(), CloneChecksum(), CloneDeparser()) main;
