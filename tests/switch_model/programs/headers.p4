// Headers that come, go and are copied; packet_length and truncate.
#include "empty.p4"

header outer_h {
    bit<8> command;
    bit<8> type;
}

header tag_h {
    bit<3> priority;
    bit<1> flag;
    bit<12> id;
}

header report_h {
    bit<32> length;
    bit<8> tags; // validity of tag and of copy
}

struct headers_t {
    report_h report;
    outer_h outer;
    tag_h tag;
    tag_h copy;
}

struct meta_t {}

const bit<8> TYPE_TAGGED = 1;

parser Parse(packet_in packet, out headers_t hdr, inout meta_t meta,
             inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.outer);
        transition select(hdr.outer.type) {
            TYPE_TAGGED: parse_tag;
            default: accept;
        }
    }

    state parse_tag {
        packet.extract(hdr.tag);
        transition accept;
    }
}

EMPTY_CHECKSUMS(headers_t, meta_t)

control TestIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t standard_metadata) {
    action push() {
        hdr.tag.setValid();
        hdr.tag.id = 0xabc;
        hdr.outer.type = TYPE_TAGGED;
    }

    action pop() {
        hdr.tag.setInvalid();
        hdr.outer.type = 0;
    }

    action duplicate() {
        hdr.copy = hdr.tag;
        hdr.copy.flag = 1;
    }

    action shorten() {
        truncate(12);
        truncate(6);
        truncate(9);
    }

    action vanish() {
        truncate(0);
    }

    table command {
        key = {
            hdr.outer.command: exact @name("command");
        }
        actions = {
            push;
            pop;
            duplicate;
            shorten;
            vanish;
            NoAction;
        }
        const entries = {
            1: push();
            2: pop();
            3: duplicate();
            4: shorten();
            5: vanish();
        }
        const default_action = NoAction();
    }

    apply {
        command.apply();
        standard_metadata.egress_spec = 1;
    }
}

control TestEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        hdr.report.setValid();
        hdr.report.length = standard_metadata.packet_length;
        if (hdr.tag.isValid()) {
            hdr.report.tags[1:1] = 1;
        }
        if (hdr.copy.isValid()) {
            hdr.report.tags[0:0] = 1;
        }
    }
}

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.report);
        packet.emit(hdr.outer);
        packet.emit(hdr.tag);
        packet.emit(hdr.copy);
    }
}

SWITCH
