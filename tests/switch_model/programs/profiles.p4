// Action selectors by hash algorithm, action profiles shared by tables, hit, miss and action_run behind them.
#include "empty.p4"

header command_h {
    bit<8> code;
    bit<8> group;
    bit<16> flow;
    bit<48> address;
    bit<16> result;
}

header option_h {
    bit<4> kind;
    bit<12> value;
}

struct headers_t {
    command_h command;
    option_h option;
}

struct meta_t {
}

parser Parse(packet_in packet, out headers_t hdr, inout meta_t meta,
             inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.command);
        transition select(hdr.command.code) {
            0x80 &&& 0x80: parse_option;
            default: accept;
        }
    }

    state parse_option {
        packet.extract(hdr.option);
        transition accept;
    }
}

EMPTY_CHECKSUMS(headers_t, meta_t)

control TestIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t standard_metadata) {
    action set_result(bit<16> value) {
        hdr.command.result = value;
    }

    action leave() {
        exit;
    }

    action_selector(HashAlgorithm.crc16, 32w64, 32w16) crc16_members;
    direct_counter(CounterType.packets_and_bytes) crc16_frames;

    // The fields of an invalid header are left out of the hash.
    table by_crc16 {
        key = {
            hdr.command.group: exact @name("group");
            hdr.option.kind: selector;
            hdr.command.flow: selector;
            hdr.option.value: selector;
        }
        actions = {
            set_result;
            leave;
            @defaultonly NoAction;
        }
        implementation = crc16_members;
        counters = crc16_frames;
        size = 16;
    }

    @max_group_size(4)
    action_selector(HashAlgorithm.crc32, 32w64, 32w32) crc32_members;

    table by_crc32 {
        key = {
            hdr.command.group: lpm @name("group");
            hdr.command.flow: selector;
            hdr.command.address: selector;
        }
        actions = {
            set_result;
            leave;
        }
        implementation = crc32_members;
        size = 16;
    }

    // BMv2 takes 32 bits of the hash.
    action_selector(HashAlgorithm.identity, 32w64, 32w64) identity_members;

    table by_identity {
        key = {
            hdr.command.group: ternary @name("group");
            hdr.command.address: selector;
        }
        actions = {
            set_result;
        }
        implementation = identity_members;
        size = 16;
    }

    action add(bit<16> value) {
        hdr.command.result = hdr.command.result + value;
    }

    action_profile(32w8) shared_members;

    table first_shared {
        key = {
            hdr.command.group: exact @name("group");
        }
        actions = {
            add;
            leave;
        }
        implementation = shared_members;
    }

    table second_shared {
        key = {
            hdr.command.flow: exact @name("flow");
        }
        actions = {
            add;
            leave;
        }
        implementation = shared_members;
    }

    apply {
        standard_metadata.egress_spec = 1;
        bit<8> code = hdr.command.code & 0x7f;
        if (code == 1) {
            if (!by_crc16.apply().hit) {
                hdr.command.result = 0xdead;
            }
        } else if (code == 2) {
            by_crc32.apply();
        } else if (code == 3) {
            switch (by_identity.apply().action_run) {
                set_result: { hdr.command.group = 0xaa; }
                default: { hdr.command.group = 0xbb; }
            }
        } else if (code == 4) {
            first_shared.apply();
            second_shared.apply();
        }
        hdr.command.code = hdr.command.code | 0x40;
    }
}

EMPTY_EGRESS(headers_t, meta_t)

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.command);
        packet.emit(hdr.option);
    }
}

SWITCH
