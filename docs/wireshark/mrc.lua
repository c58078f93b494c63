-- A Wireshark dissector for MRC (Multipath Reliable Connection, OCP MRC 1.0) over UDP. README.md says how to use it.
--
-- From the top: the specification's numbers; its headers, as tables; what Wireshark is told of both; how a packet
-- lies in its frame; its headers and what follows from them; payload and ICRC; the info column; which packets are MRC.
--
-- It runs on Lua 5.2 (Wireshark 4.0) to 5.4 (4.4): no operator of one of them alone, bits through Wireshark's `bit`.

local mrc = Proto("mrc", "Multipath Reliable Connection")

-- ---- the specification's numbers ------------------------------------------------------------------------------

local OPCODES = {
    [0xC6] = "RDMA WRITE First",
    [0xC7] = "RDMA WRITE Middle",
    [0xC8] = "RDMA WRITE Last",
    [0xC9] = "RDMA WRITE Last with Immediate",
    [0xCA] = "RDMA WRITE Only",
    [0xCB] = "RDMA WRITE Only with Immediate",
    [0xD1] = "Transport ACK",
    [0xD8] = "Endpoint Request",
    [0xD9] = "Endpoint Response",
    [0xDC] = "SACK",
    [0xDD] = "NACK",
    [0xDE] = "Reliability Probe Request",
}
local IS_WRITE = { [0xC6] = true, [0xC7] = true, [0xC8] = true, [0xC9] = true, [0xCA] = true, [0xCB] = true }
local HAS_IMMDT = { [0xC9] = true, [0xCB] = true }
local OPCODE_CLASS = 0x06 -- the opcode's upper 3 bits, 0b110
local MARKS = { [0] = "NONE", [1] = "SKIP_ONCE", [2] = "ALWAYS_SKIP" }
local SKIP_ONCE = 1
local ALWAYS_SKIP = 2
local NACK_REASONS = {
    [0x01] = "TRIMMED",
    [0x02] = "TRIMMED_LASTHOP",
    [0x06] = "NO_BITMAP",
    [0x07] = "NO_PKT_BUFFER",
    [0x0A] = "NO_RESOURCE",
    [0x0B] = "PSN_OOR_WINDOW",
    [0x19] = "UNEXP_EVENT",
}
local TRIM_REASONS = { TRIMMED = 0x01, TRIMMED_LASTHOP = 0x02 } -- by the role of the DSCP
local ENDPOINT_OPS = { [0] = "PORT_STATUS_UPDATE", [1] = "EV_PROBE" }
local PORT_STATUS_UPDATE = 0
-- InfiniBand 9.7.5.2: an ACK, whose credit field MRC holds at 0x1F, and the NAK codes.
local SYNDROMES = {
    [0x1F] = "ACK",
    [0x60] = "NAK: PSN sequence error",
    [0x61] = "NAK: invalid request",
    [0x62] = "NAK: remote access error",
    [0x63] = "NAK: remote operational error",
    [0x64] = "NAK: invalid RD request",
}
local NAK = 0x03 -- the syndrome's upper 3 bits, 0b011
local TSR = { "ticks of 1 us", "ticks of 128 ns" } -- of 1, of 0
local TICK_NS = { [0] = 128, [1] = 1000 }
local ECN = { [0] = "Not-ECT", [1] = "ECT(1)", [2] = "ECT(0)", [3] = "CE" } -- RFC 3168
local CE = 3
local TVER = 0
local PSN_MODULUS = 0x1000000
local MPR_UNIT = 128 -- PSNs
local RCVD_BYTES_UNIT = 256 -- bytes
local BITMAP_BITS = 64

local IPV6_SIZE = 40
local IPV6_IN_IPV6 = 41
local ROUTING_HEADER = 43
local UDP_SIZE = 8
local ICRC_SIZE = 4
local WORD_SIZE = 4 -- BTH.pad fills the payload up to a multiple of this

-- ---- headers as tables ----------------------------------------------------------------------------------------

local fields = {}

local function own(field)
    fields[#fields + 1] = field
    return field
end

local POW2 = { [0] = 1 }
for n = 1, 32 do
    POW2[n] = POW2[n - 1] * 2
end

-- `width` bits of a number of at most 32 bits, from bit `shift` on.
local function bits(number, shift, width)
    return math.floor(number / POW2[shift]) % POW2[width]
end

local UNSIGNED = {
    [8] = ftypes.UINT8, [16] = ftypes.UINT16, [24] = ftypes.UINT24, [32] = ftypes.UINT32, [64] = ftypes.UINT64,
}

local function field_of(abbr, row, word)
    local mask = #word > 1 and (POW2[row.bits] - 1) * POW2[row.shift] or nil
    local kind = row.signed and ftypes.INT16 or UNSIGNED[word.bits]
    if not kind then
        return ProtoField.bytes(abbr, row.label)
    elseif row.bits == 1 then
        return ProtoField.new(row.label, abbr, ftypes.BOOLEAN, row.strings, word.bits, mask)
    end
    return ProtoField.new(row.label, abbr, kind, row.strings, row.base or base.DEC, mask)
end

-- A header from its rows in wire order, most significant bit first: {name, bits, label}, and where they apply
-- base, strings, signed. Rows are read together in words, the shortest that end on a byte.
local function header(abbr, title, rows)
    local field = own(ProtoField.none("mrc." .. abbr, title))
    local made = { abbr = abbr, title = title, size = 0, words = {}, field = field }
    local word = { at = 0, bits = 0 }
    for _, row in ipairs(rows) do
        row.name, row.bits, row.label = row[1], row[2], row[3] or row[1]
        word[#word + 1] = row
        word.bits = word.bits + row.bits
        if word.bits % 8 == 0 then
            local shift = word.bits
            for _, member in ipairs(word) do
                shift = shift - member.bits
                member.shift = shift
                member.field = own(field_of("mrc." .. abbr .. "." .. member.name, member, word))
            end
            word.size = math.floor(word.bits / 8)
            made.words[#made.words + 1] = word
            made.size = made.size + word.size
            word = { at = made.size, bits = 0 }
        end
    end
    return made
end

local HEX = base.HEX

local BTH = header("bth", "Base Transport Header (BTH)", {
    { "opcode", 8, "Opcode", base = HEX, strings = OPCODES },
    { "se", 1, "SE" },
    { "m", 1, "M" },
    { "pad", 2, "Pad count, bytes" },
    { "tver", 4, "Transport version" },
    { "p_key", 16, "P_Key", base = HEX },
    { "res0", 8, "Reserved" },
    { "dqpn", 24, "Destination QPN", base = HEX },
    { "a", 1, "AckReq (a)" },
    { "r", 1, "R" },
    { "rtx", 1, "Retransmission (rtx)" },
    { "ts", 1, "TSETH present (ts)" },
    { "res1", 4, "Reserved" },
    { "psn", 24, "PSN" },
})
local METH = header("meth", "Message numbers (METH)", {
    { "rqmsn", 16, "RQMSN" },
    { "msn", 16, "MSN" },
})
local TSETH = header("tseth", "Timestamp (TSETH)", {
    { "tx_timestamp", 16, "tx_timestamp" },
    { "tsr", 1, "Timestamp resolution (tsr)", strings = TSR },
    { "res", 11, "Reserved" },
    { "ftype", 4, "ftype" },
})
local RETH = header("reth", "RDMA (RETH)", {
    { "va", 64, "Virtual address of this packet (VA)", base = HEX },
    { "rkey", 32, "rkey", base = HEX },
    { "dmalen", 32, "Length of the message, bytes (dmalen)" },
})
local IMMDT = header("immdt", "Immediate data (ImmDt)", {
    { "imm", 32, "Immediate", base = HEX },
})
local AETH = header("aeth", "Transport ACK (AETH)", {
    { "syndrome", 8, "Syndrome", base = HEX, strings = SYNDROMES },
    { "msn", 24, "MSN" },
})
local SETH = header("sack", "SACK (SETH)", {
    { "type", 4 },
    { "nxt", 5 },
    { "m", 2, "Mark (m)", strings = MARKS },
    { "res0", 3, "Reserved" },
    { "pr", 1, "Answers a probe (pr)" },
    { "res1", 1, "Reserved" },
    { "ack_psn_offset", 16, "ack_psn_offset, or with pr the probe_id", signed = true },
    { "entropy", 32, "Reflected entropy value (entropy)", base = HEX },
    { "spdcid", 16, "spdcid", base = HEX },
    { "dpdcid", 16, "dpdcid", base = HEX },
    { "res2", 8, "Reserved" },
    { "cack_psn", 24, "Cumulatively acknowledged PSN (cack_psn)" },
    { "cc_type", 4 },
    { "cc_fl", 4 },
    { "mpr", 8, "Maximum PSN range, units of 128 PSNs (mpr)" },
    { "offset", 16, "Bitmap's first PSN - cack_psn (sack_offset)", signed = true },
    { "bitmap", 64, "Bitmap (sack_bitmap)", base = HEX },
})
local CC_STATE = header("cc_state", "Congestion control (CC_STATE)", {
    { "tx_timestamp", 16, "tx_timestamp, reflected" },
    { "res", 1, "Reserved" },
    { "ooo_count", 15 },
    { "restore_cwnd", 1 },
    { "rcv_cwnd_pen", 7 },
    { "rcvd_bytes", 24, "Received, units of 256 bytes (rcvd_bytes)" },
})
local NETH = header("nack", "NACK (NETH)", {
    { "type", 4 },
    { "nxt", 5 },
    { "res0", 7, "Reserved" },
    { "reason", 8, "Reason", base = HEX, strings = NACK_REASONS },
    { "vendor", 8, "Vendor", base = HEX },
    { "entropy", 32, "Reflected entropy value (entropy)", base = HEX },
    { "spdcid", 16, "spdcid", base = HEX },
    { "dpdcid", 16, "dpdcid", base = HEX },
    { "res1", 8, "Reserved" },
    { "psn", 24, "Refused PSN (nack_psn)" },
    { "cc_type", 4 },
    { "cc_fl", 4 },
    { "res2", 8, "Reserved" },
    { "tx_timestamp", 16, "tx_timestamp, reflected" },
})
local PETH = header("peth", "Reliability probe (PETH)", {
    { "type", 4 },
    { "nh", 5 },
    { "res0", 7, "Reserved" },
    { "res1", 8, "Reserved" },
    { "vendor", 8, "Vendor", base = HEX },
    { "probe_id", 16 },
    { "res2", 16, "Reserved" },
    { "spdcid", 16, "spdcid", base = HEX },
    { "dpdcid", 16, "dpdcid", base = HEX },
    { "tx_timestamp", 16 },
    { "tsr", 1, "Timestamp resolution (tsr)", strings = TSR },
    { "res3", 11, "Reserved" },
    { "ftype", 4 },
})
local ERTH = header("erth", "Endpoint request (ERTH)", {
    { "type", 4 },
    { "nxt", 5 },
    { "res0", 5, "Reserved" },
    { "op", 2, "Operation (op)", strings = ENDPOINT_OPS },
    { "res1", 8, "Reserved" },
    { "vendor", 8, "Vendor", base = HEX },
    { "port_status_mask", 32, "Reachable ports (port_status_mask)", base = HEX },
    { "res2", 32, "Reserved" },
    { "tx_timestamp", 16 },
    { "tsr", 1, "Timestamp resolution (tsr)", strings = TSR },
    { "res3", 11, "Reserved" },
    { "ftype", 4 },
})
local EETH = header("eeth", "Endpoint response (EETH)", {
    { "type", 4 },
    { "nxt", 5 },
    { "res0", 3, "Reserved" },
    { "op", 2, "Operation (op)", strings = ENDPOINT_OPS },
    { "res1", 2, "Reserved" },
    { "res2", 26 * 8, "Reserved" },
    { "tx_timestamp", 16, "tx_timestamp, reflected" },
    { "res3", 6 * 8, "Reserved" },
})

-- ---- what is not on the wire as such: shown in brackets -------------------------------------------------------

-- Wireshark's own values of a checksum's status.
local ICRC_STATUS = { [0] = "Bad", [1] = "Good", [2] = "Unverified" }
local BAD, GOOD, UNVERIFIED = 0, 1, 2

local PAYLOAD = own(ProtoField.bytes("mrc.payload", "Payload"))
local PAYLOAD_LEN = own(ProtoField.uint16("mrc.payload_len", "Payload length as sent, bytes"))
local PAD = own(ProtoField.bytes("mrc.pad", "Pad"))
local REST = own(ProtoField.bytes("mrc.rest", "Rest"))
local ICRC = own(ProtoField.uint32("mrc.icrc", "ICRC", HEX))
local ICRC_STATE = own(ProtoField.uint8("mrc.icrc.status", "ICRC status", base.DEC, ICRC_STATUS))
local ICRC_CALCULATED = own(ProtoField.uint32("mrc.icrc.calculated", "Calculated ICRC", HEX))
local DSCP = own(ProtoField.uint8("mrc.dscp", "DSCP of the outermost IPv6"))
local DSCP_ROLE = own(ProtoField.string("mrc.dscp.role", "Role of the DSCP"))
local ECN_SEEN = own(ProtoField.uint8("mrc.ecn", "ECN of the outermost IPv6", base.DEC, ECN))
local TRIM = own(ProtoField.uint8("mrc.trimmed", "Trimmed", base.DEC, NACK_REASONS))
local TRIM_MISSING = own(ProtoField.uint16("mrc.trimmed.missing", "Bytes cut off"))
local ACK_PSN = own(ProtoField.uint24("mrc.sack.ack_psn", "PSN that caused this SACK"))
local ACKED = own(ProtoField.uint24("mrc.sack.acked", "Acknowledged beyond cack_psn"))
local ACKED_RANGES = own(ProtoField.string("mrc.sack.acked_ranges", "Acknowledged beyond cack_psn"))
local PROBE_ID = own(ProtoField.uint16("mrc.probe_id", "Probe id"))
local REQUEST_ID = own(ProtoField.uint16("mrc.request_id", "Request id"))
local PORT_UP = own(ProtoField.uint8("mrc.port_up", "Reachable port"))

-- The fields of an entropy value: its own, and the plane and uplink in it.
local function ev_fields(abbr, label)
    return {
        value = own(ProtoField.uint32(abbr, label, HEX)),
        plane = own(ProtoField.uint8(abbr .. ".plane", "Plane")),
        uplink = own(ProtoField.uint16(abbr .. ".uplink", "Uplink")),
    }
end

local EV = ev_fields("mrc.ev", "Entropy value (UDP source port, flow label)")
local REFLECTED_EV = ev_fields("mrc.reflected_ev", "Path of the packet that this answers")

mrc.fields = fields

-- ---- expert infos and preferences -----------------------------------------------------------------------------

local experts = {}

local function raises(abbr, text, group, severity)
    local made = ProtoExpert.new("mrc.expert." .. abbr, text, group, severity)
    experts[#experts + 1] = made
    return made
end

local NOTE, WARN, ERROR = expert.severity.NOTE, expert.severity.WARN, expert.severity.ERROR
local IS_TRIMMED = raises("trimmed", "Trimmed by a switch", expert.group.SEQUENCE, NOTE)
local IS_REMARKED = raises("remarked", "Remarked as trimmed, but whole", expert.group.SEQUENCE, NOTE)
local IS_RTX = raises("rtx", "Retransmission", expert.group.SEQUENCE, NOTE)
local IS_CE = raises("ce", "ECN-marked on the way", expert.group.SEQUENCE, NOTE)
local IS_SKIP = raises("skip", "The path is to be skipped", expert.group.SEQUENCE, NOTE)
local IS_NACK = raises("nack", "A packet is refused", expert.group.RESPONSE_CODE, WARN)
local IS_NAK = raises("nak", "A message is refused", expert.group.RESPONSE_CODE, WARN)
local BAD_ICRC = raises("icrc", "The ICRC is not that of the bytes", expert.group.CHECKSUM, ERROR)
local BAD_LENGTH = raises("length", "Lengths contradict each other", expert.group.MALFORMED, ERROR)
local BAD_END = raises("end", "Ends inside a header", expert.group.MALFORMED, ERROR)
local BAD_OPCODE = raises("opcode", "Not an opcode of MRC", expert.group.UNDECODED, WARN)
local BAD_TVER = raises("tver", "tver is not 0", expert.group.PROTOCOL, WARN)
local BAD_FLOW_LABEL = raises("flow_label", "Outer and inner flow label differ", expert.group.PROTOCOL, WARN)
local NOT_CAPTURED = raises("not_captured", "The capture ends before the packet does", expert.group.UNDECODED, NOTE)

mrc.experts = experts

mrc.prefs.ports = Pref.range("UDP destination ports", "4791,4971", "RoCEv2's, and the OCP text's", 65535)
mrc.prefs.icrc = Pref.bool("Verify the ICRC", true, "In Lua: some 0.2 ms for 4 KB")

local ROLES = { "NO_TRIM", "TRIMMABLE", "TRIMMABLE_RETX", "TRIMMED", "TRIMMED_LASTHOP", "CONTROL" }
local DEFAULT_DSCPS = {
    NO_TRIM = 0, TRIMMABLE = 4, TRIMMABLE_RETX = 8, TRIMMED = 12, TRIMMED_LASTHOP = 16, CONTROL = 46,
}
for _, role in ipairs(ROLES) do
    mrc.prefs["dscp_" .. role:lower()] = Pref.uint("DSCP " .. role, DEFAULT_DSCPS[role], "A deployment's choice")
end

local function role_of(dscp)
    for _, role in ipairs(ROLES) do
        if mrc.prefs["dscp_" .. role:lower()] == dscp then
            return role
        end
    end
    return nil
end

-- ---- how a packet lies in its frame ---------------------------------------------------------------------------

-- Asking for these two has Wireshark build them for every packet, and so tells where UDP and IPv6 begin.
local udp_length = Field.new("udp.length")
local ipv6_version = Field.new("ipv6.version")

local function read_ipv6(frame, at)
    local first = frame(at, 4):uint()
    return {
        at = at,
        dscp = bits(first, 22, 6),
        ecn = bits(first, 20, 2),
        flow_label = bits(first, 0, 20),
        payload_len = frame(at + 4, 2):uint(),
        next_header = frame(at + 6, 1):uint(),
    }
end

-- Whether the IPv6 header carries the one at `at`: in it, or behind a routing header (RFC 8754).
local function encapsulates(frame, outer, at)
    local behind = outer.at + IPV6_SIZE
    if outer.next_header == ROUTING_HEADER then
        return at == behind + (frame(behind + 1, 1):uint() + 1) * 8
    end
    return outer.next_header == IPV6_IN_IPV6 and at == behind
end

-- The frame around a UDP payload. `outer` is nil in ECMP mode, `inner` where UDP does not follow an IPv6 header.
-- `present` counts the bytes from UDP on that are there, `udp_len` those that were sent.
local function locate(tvb)
    local lengths, ips = { udp_length() }, { ipv6_version() }
    local udp = lengths[#lengths]
    local place = { frame = udp.source, udp_at = udp.offset - 4, present = tvb:reported_len() + UDP_SIZE }
    place.udp_len = place.frame(place.udp_at + 4, 2):uint()
    local inner = ips[#ips]
    if not inner or inner.offset + IPV6_SIZE ~= place.udp_at then
        return place
    end
    place.inner = read_ipv6(place.frame, inner.offset)
    place.outermost = place.inner
    local before = ips[#ips - 1]
    local outer = before and before.offset < inner.offset and read_ipv6(place.frame, before.offset)
    if outer and encapsulates(place.frame, outer, inner.offset) then
        place.outer = outer
        place.outermost = outer
    end
    place.present = place.outermost.at + IPV6_SIZE + place.outermost.payload_len - place.udp_at
    return place
end

-- ---- a packet: what is read of it and said of it --------------------------------------------------------------

-- p.tvb, from BTH on; p.tree; p.place; p.cut, whether trimming shortened it; p.info and p.tags, the words of the info
-- column; and under each header's name its values, once it has been read.

local function say(p, text, ...)
    p.info[#p.info + 1] = text:format(...)
end

local function tag(p, text, ...)
    p.tags[#p.tags + 1] = " [" .. text:format(...) .. "]"
end

local function generated(tree, field, range, value)
    local item = tree:add(field, range, value)
    item:set_generated()
    return item
end

-- A header's values by name, its item as `item` and theirs in `items`; nil if it is not all there.
local function read(p, layout, at)
    if p.tvb:len() < at + layout.size then
        return nil
    end
    local values = { item = p.tree:add(layout.field, p.tvb(at, layout.size)), items = {}, at = at }
    for _, word in ipairs(layout.words) do
        local range = p.tvb(at + word.at, word.size)
        for _, row in ipairs(word) do
            values.items[row.name] = values.item:add(row.field, range)
            if row.signed then
                values[row.name] = range:int()
            elseif row.bits <= 32 then
                values[row.name] = bits(range:uint(), row.shift, row.bits)
            end
        end
    end
    return values
end

-- What is left of a header at `at` that is not all there, and why.
local function unfinished(p, layout, at)
    local left = p.tvb:len() - at
    if left > 0 then
        p.tree:add(REST, p.tvb(at, left)):append_text(" (of " .. layout.title .. ")")
    end
    if p.tvb:len() < p.tvb:reported_len() then
        p.tree:add_proto_expert_info(NOT_CAPTURED)
        tag(p, "not captured")
    elseif not p.cut then
        p.tree:add_proto_expert_info(BAD_END, "Ends inside " .. layout.title)
        tag(p, "ends inside " .. layout.title)
    end
end

local function bad_length(p, text, ...)
    p.tree:add_proto_expert_info(BAD_LENGTH, text:format(...))
    tag(p, text, ...)
end

-- ---- entropy values -------------------------------------------------------------------------------------------

-- The plane and, in SRv6 mode, the uplink of an entropy value: its bits 31:29 and 28:19.
local function path_of(p, ev)
    return bits(ev, 29, 3), p.place.outer and bits(ev, 19, 10) or nil
end

local function path_name(p, ev)
    local plane, uplink = path_of(p, ev)
    return uplink and ("p%du%d"):format(plane, uplink) or ("EV=0x%08x"):format(ev)
end

local function add_ev(p, tree, names, range, ev)
    local plane, uplink = path_of(p, ev)
    local item = generated(tree, names.value, range, ev)
    generated(item, names.plane, range, plane)
    if uplink then
        generated(item, names.uplink, range, uplink)
        item:append_text((", plane %d, uplink %d"):format(plane, uplink))
    end
    return item
end

-- ---- what follows from each header ----------------------------------------------------------------------------

-- layout.explain(p, values) adds what the header says beyond its fields, to the tree and to the info column.

local function explain_tick(values)
    local ns = values.tx_timestamp * TICK_NS[values.tsr]
    values.items.tx_timestamp:append_text((" (%d ns, modulo %d)"):format(ns, 0x10000 * TICK_NS[values.tsr]))
end

local function explain_reflected_ev(p, values)
    add_ev(p, values.item, REFLECTED_EV, p.tvb(values.at + 4, 4), values.entropy)
end

function BTH.explain(p, bth)
    local name = OPCODES[bth.opcode] or ("Opcode 0x%02x"):format(bth.opcode)
    bth.item:append_text((", %s, PSN %d"):format(name, bth.psn))
    say(p, "%s QP=0x%06x", name, bth.dqpn)
    if IS_WRITE[bth.opcode] then
        say(p, "PSN=%d", bth.psn)
    end
    if not OPCODES[bth.opcode] then
        bth.items.opcode:add_proto_expert_info(BAD_OPCODE)
    end
    if bth.tver ~= TVER then
        bth.items.tver:add_proto_expert_info(BAD_TVER)
        tag(p, "tver %d", bth.tver)
    end
    if bth.rtx == 1 then
        bth.items.rtx:add_proto_expert_info(IS_RTX)
        tag(p, "rtx")
    end
    if bth.a == 1 then
        tag(p, "AckReq")
    end
end

function METH.explain(p, meth)
    say(p, "MSN=%d", meth.msn)
end

function TSETH.explain(_, tseth)
    explain_tick(tseth)
end

function IMMDT.explain(p, immdt)
    say(p, "RQMSN=%d Imm=0x%08x", p.meth.rqmsn, immdt.imm)
end

function AETH.explain(p, aeth)
    say(p, "MSN=%d", aeth.msn)
    if bits(aeth.syndrome, 5, 3) == NAK then
        local text = SYNDROMES[aeth.syndrome] or ("syndrome 0x%02x"):format(aeth.syndrome)
        aeth.items.syndrome:add_proto_expert_info(IS_NAK, text)
        tag(p, text)
    end
end

-- The distances from cack_psn, ascending, of the PSNs beyond it that a SACK acknowledges.
local function acked_distances(p, sack)
    local halves = { p.tvb(sack.at + 24, 4):uint(), p.tvb(sack.at + 20, 4):uint() }
    local distances, caused = {}, sack.pr == 0 and sack.ack_psn_offset or 0
    for bit_number = 0, BITMAP_BITS - 1 do
        local distance = sack.offset + bit_number
        local half = halves[bit_number < 32 and 1 or 2]
        if distance > 0 and bits(half, bit_number % 32, 1) == 1 then
            distances[#distances + 1] = distance
        end
    end
    if caused > 0 then
        for _, distance in ipairs(distances) do
            if distance == caused then
                return distances
            end
        end
        distances[#distances + 1] = caused
        table.sort(distances)
    end
    return distances
end

-- "102-105,110": PSNs at ascending distances from `cack_psn`.
local function ranges_of(cack_psn, distances)
    local texts, first = {}, 1
    for i, distance in ipairs(distances) do
        if distances[i + 1] ~= distance + 1 then
            local low, high = (cack_psn + distances[first]) % PSN_MODULUS, (cack_psn + distance) % PSN_MODULUS
            texts[#texts + 1] = first == i and ("%d"):format(low) or ("%d-%d"):format(low, high)
            first = i + 1
        end
    end
    return table.concat(texts, ",")
end

function SETH.explain(p, sack)
    say(p, "cack=%d", sack.cack_psn)
    local distances = acked_distances(p, sack)
    if #distances > 0 then
        local range = p.tvb(sack.at + 20, 8)
        local text = ranges_of(sack.cack_psn, distances)
        local item = generated(sack.item, ACKED_RANGES, range, text)
        for _, distance in ipairs(distances) do
            generated(item, ACKED, range, (sack.cack_psn + distance) % PSN_MODULUS)
        end
        say(p, "+%s", text)
    end
    local cause = p.tvb(sack.at + 2, 2)
    if sack.pr == 1 then
        generated(sack.item, PROBE_ID, cause, cause:uint())
        say(p, "probe=%d", cause:uint())
    else
        local psn = (sack.cack_psn + sack.ack_psn_offset) % PSN_MODULUS
        generated(sack.item, ACK_PSN, cause, psn)
        say(p, "for PSN=%d", psn)
    end
    explain_reflected_ev(p, sack)
    say(p, "on %s", path_name(p, sack.entropy))
    if sack.m == SKIP_ONCE or sack.m == ALWAYS_SKIP then
        sack.items.m:add_proto_expert_info(IS_SKIP, MARKS[sack.m] .. " " .. path_name(p, sack.entropy))
        tag(p, MARKS[sack.m])
    end
    sack.items.mpr:append_text((" (%d PSNs)"):format(sack.mpr * MPR_UNIT))
end

function CC_STATE.explain(_, cc_state)
    cc_state.items.rcvd_bytes:append_text((" (%d bytes)"):format(cc_state.rcvd_bytes * RCVD_BYTES_UNIT))
end

function NETH.explain(p, nack)
    local reason = NACK_REASONS[nack.reason] or ("reason 0x%02x"):format(nack.reason)
    nack.items.reason:add_proto_expert_info(IS_NACK, ("NACK of PSN %d: %s"):format(nack.psn, reason))
    explain_reflected_ev(p, nack)
    say(p, "%s PSN=%d on %s", reason, nack.psn, path_name(p, nack.entropy))
end

function PETH.explain(p, peth)
    explain_tick(peth)
    generated(peth.item, PROBE_ID, p.tvb(peth.at + 4, 2), peth.probe_id)
    say(p, "probe=%d", peth.probe_id)
end

local function explain_operation(p, values)
    local request_id = p.bth.psn % 0x10000
    generated(values.item, REQUEST_ID, p.tvb(p.bth.at + 10, 2), request_id)
    say(p, "%s request=%d", ENDPOINT_OPS[values.op] or ("op %d"):format(values.op), request_id)
end

function ERTH.explain(p, erth)
    explain_tick(erth)
    explain_operation(p, erth)
    if erth.op == PORT_STATUS_UPDATE then
        local ports = {}
        for port = 0, 31 do
            if bits(erth.port_status_mask, port, 1) == 1 then
                generated(erth.items.port_status_mask, PORT_UP, p.tvb(erth.at + 4, 4), port)
                ports[#ports + 1] = port
            end
        end
        say(p, "reachable=%s", #ports > 0 and table.concat(ports, ",") or "none")
    end
end

EETH.explain = explain_operation

local HEADERS = { -- of control packets, behind BTH
    [0xD1] = { AETH },
    [0xD8] = { ERTH },
    [0xD9] = { EETH },
    [0xDC] = { SETH, CC_STATE },
    [0xDD] = { NETH },
    [0xDE] = { PETH },
}

local function headers_behind(bth)
    if not IS_WRITE[bth.opcode] then
        return HEADERS[bth.opcode] or {}
    end
    local layouts = { METH, RETH }
    if bth.ts == 1 then
        table.insert(layouts, 2, TSETH)
    end
    if HAS_IMMDT[bth.opcode] then
        layouts[#layouts + 1] = IMMDT
    end
    return layouts
end

-- ---- ICRC -----------------------------------------------------------------------------------------------------

-- CRC-32 four bytes at a time: CRC[k][b] is what byte b does with k bytes behind it.
local CRC = { [0] = {}, {}, {}, {} }
for b = 0, 255 do
    local crc = b
    for _ = 1, 8 do
        local shifted = bit.rshift(crc, 1)
        crc = crc % 2 == 1 and bit.bxor(shifted, 0xEDB88320) or shifted
    end
    CRC[0][b] = crc
end
for k = 1, 3 do
    for b = 0, 255 do
        local crc = CRC[k - 1][b]
        CRC[k][b] = bit.bxor(bit.rshift(crc, 8), CRC[0][crc % 256])
    end
end

-- The CRC-32 of a string whose length is a multiple of 4.
local function crc32(text)
    local bxor, rshift, byte = bit.bxor, bit.rshift, string.byte
    local crc0, crc1, crc2, crc3 = CRC[0], CRC[1], CRC[2], CRC[3]
    local crc = 0xFFFFFFFF
    for i = 1, #text, 4 do
        local b0, b1, b2, b3 = byte(text, i, i + 3)
        crc = bxor(crc, b0 + b1 * 0x100 + b2 * 0x10000 + b3 * 0x1000000)
        crc = bxor(crc3[crc % 256], crc2[rshift(crc, 8) % 256], crc1[rshift(crc, 16) % 256], crc0[rshift(crc, 24)])
    end
    return bit.bnot(crc) % POW2[32]
end

-- The RoCEv2 rule (InfiniBand annex A17) on the inner IPv6: 8 bytes of ones, then the packet, with traffic class,
-- flow label, hop limit, UDP checksum and BTH's byte 4 as ones.
local function calculate_icrc(place)
    local frame, ip, udp = place.frame, place.inner.at, place.udp_at
    local bth, icrc = udp + UDP_SIZE, udp + place.udp_len - ICRC_SIZE
    return crc32(table.concat({
        ("\255"):rep(8), "\111\255\255\255", frame:raw(ip + 4, 3), "\255", frame:raw(ip + 8, 32),
        frame:raw(udp, 6), "\255\255", frame:raw(bth, 4), "\255", frame:raw(bth + 5, icrc - bth - 5),
    }))
end

local function add_icrc(p, at)
    local range = p.tvb(at, ICRC_SIZE)
    local item = p.tree:add_le(ICRC, range)
    local status = UNVERIFIED
    local place = p.place
    if mrc.prefs.icrc and place.inner and place.udp_len == place.present and place.udp_len % WORD_SIZE == 0 then
        local calculated = calculate_icrc(place)
        status = calculated == range:le_uint() and GOOD or BAD
        if status == BAD then
            generated(item, ICRC_CALCULATED, range, calculated)
            item:add_proto_expert_info(BAD_ICRC)
            tag(p, "bad ICRC")
        end
    end
    generated(item, ICRC_STATE, range, status)
end

-- ---- a whole packet -------------------------------------------------------------------------------------------

-- Entropy value, class and trimming, from the headers around the packet.
local function explain_network(p)
    local place = p.place
    if not place.inner then
        return
    end
    local frame, outermost = place.frame, place.outermost
    local class = frame(outermost.at, 2)
    p.ev = frame(place.udp_at, 2):uint() * POW2[16] + place.inner.flow_label % POW2[16]
    local ev_item = add_ev(p, p.tree, EV, frame(place.udp_at, 2), p.ev)
    if outermost.flow_label ~= place.inner.flow_label then
        ev_item:add_proto_expert_info(BAD_FLOW_LABEL)
        tag(p, "flow labels differ")
    end

    local role = role_of(outermost.dscp)
    local dscp_item = generated(p.tree, DSCP, class, outermost.dscp)
    if role then
        generated(dscp_item, DSCP_ROLE, class, role)
        dscp_item:append_text(", " .. role)
    end
    local ecn_item = generated(p.tree, ECN_SEEN, class, outermost.ecn)
    if outermost.ecn == CE then
        ecn_item:add_proto_expert_info(IS_CE)
        tag(p, "CE")
    end

    local reason = TRIM_REASONS[role]
    p.cut = reason and place.udp_len > place.present
    if reason then
        local missing = math.max(0, place.udp_len - place.present)
        local item = generated(p.tree, TRIM, class, reason)
        generated(item, TRIM_MISSING, frame(place.udp_at + 4, 2), missing)
        if p.cut then
            item:add_proto_expert_info(IS_TRIMMED, ("%s: %d bytes cut off"):format(role, missing))
            tag(p, "%s, %d bytes cut off", role, missing)
        else
            item:add_proto_expert_info(IS_REMARKED)
            tag(p, "%s, whole", role)
        end
    end
end

local function check_lengths(p)
    local place = p.place
    if place.udp_len ~= place.present and not p.cut then
        bad_length(p, "UDP length %d, %d bytes are there", place.udp_len, place.present)
    elseif place.outer and place.inner.payload_len ~= place.udp_len then
        bad_length(p, "inner IPv6 payload length %d, UDP length %d", place.inner.payload_len, place.udp_len)
    end
end

-- Where payload ends and pad and ICRC begin, counted from BTH, in the packet as it was sent.
local function measure(p, headers_end)
    p.icrc_at = p.place.udp_len - UDP_SIZE - ICRC_SIZE
    p.pad_at = p.icrc_at - p.bth.pad
    local payload_len = p.pad_at - headers_end
    local is_write, is_control = IS_WRITE[p.bth.opcode], HEADERS[p.bth.opcode]
    if is_write and payload_len >= 0 and p.place.udp_len % WORD_SIZE == 0 then
        generated(p.tree, PAYLOAD_LEN, p.place.frame(p.place.udp_at + 4, 2), payload_len)
        say(p, "Len=%d", payload_len)
    elseif is_write or is_control and payload_len ~= 0 then
        bad_length(p, "UDP length %d does not fit the headers", p.place.udp_len)
    elseif is_control and p.cut then
        bad_length(p, "a control packet, and cut")
    end
end

local function add_payload(p, at)
    local captured = p.tvb:len()
    local stop = math.min(p.cut and captured or p.pad_at, captured)
    if stop > at then
        local item = p.tree:add(p.cut and REST or PAYLOAD, p.tvb(at, stop - at))
        if p.cut then
            item:append_text(" (of the payload)")
        end
    end
    if not p.cut and p.pad_at >= at and captured >= p.icrc_at + ICRC_SIZE then
        if p.bth.pad > 0 then
            p.tree:add(PAD, p.tvb(p.pad_at, p.bth.pad))
        end
        add_icrc(p, p.icrc_at)
    elseif captured < p.tvb:reported_len() then
        p.tree:add_proto_expert_info(NOT_CAPTURED)
        tag(p, "not captured")
    end
end

-- Reads one header and says what follows from it; false if it is not all there.
local function dissect_header(p, layout, at)
    local values = read(p, layout, at)
    if not values then
        unfinished(p, layout, at)
        return false
    end
    p[layout.abbr] = values
    if layout.explain then
        layout.explain(p, values)
    end
    return true
end

local function dissect_packet(p)
    if not dissect_header(p, BTH, 0) then
        return
    end
    local at, all_there = BTH.size, true
    for _, layout in ipairs(headers_behind(p.bth)) do
        all_there = all_there and dissect_header(p, layout, at)
        at = at + layout.size
    end
    measure(p, at)
    if all_there then
        add_payload(p, at)
    end
end

local function dissect(tvb, pinfo, root)
    local p = { tvb = tvb, tree = root:add(mrc, tvb()), place = locate(tvb), info = {}, tags = {} }
    explain_network(p)
    check_lengths(p)
    dissect_packet(p)
    if p.ev then
        say(p, "via %s", path_name(p, p.ev))
    end
    pinfo.cols.protocol = "MRC"
    pinfo.cols.info = table.concat(p.info, " ") .. table.concat(p.tags)
    return tvb:len()
end

-- ---- which packets are MRC's ----------------------------------------------------------------------------------

local udp_ports = DissectorTable.get("udp.port")
local claimed = {} -- port -> the dissector that had it before, false if none
local wanted = {} -- port -> true, from the preference

local function is_mrc(tvb, pinfo)
    return wanted[pinfo.dst_port] and tvb:len() > 0 and bits(tvb(0, 1):uint(), 5, 3) == OPCODE_CLASS
end

-- Another opcode of RoCEv2 goes to whoever had the port, which is Wireshark's InfiniBand dissector. Where that finds a
-- packet malformed, Wireshark has shown it and `call` raises besides: nothing of ours is wrong.
function mrc.dissector(tvb, pinfo, tree)
    if is_mrc(tvb, pinfo) then
        return dissect(tvb, pinfo, tree)
    end
    local other = claimed[pinfo.match_uint]
    if not other then
        return 0
    end
    local well_formed, consumed = pcall(other.call, other, tvb, pinfo, tree)
    return well_formed and consumed or tvb:len()
end

-- Used before the ports' dissectors if `udp.try_heuristic_first` is set: a source port, half of an EV, may be the
-- well-known port of another protocol, and Wireshark asks the lower port's dissector first.
mrc:register_heuristic("udp", function(tvb, pinfo, tree)
    return is_mrc(tvb, pinfo) and dissect(tvb, pinfo, tree) > 0 or false
end)

-- Takes a port from the dissector that has it: the first time, and when it has come back (InfiniBand's preferences
-- do that), but not from one that the user has chosen by "Decode As".
local function claim(port)
    local holder = udp_ports:get_dissector(port)
    local known = claimed[port]
    if tostring(holder) ~= mrc.name and (known == nil or not holder or tostring(holder) == tostring(known)) then
        claimed[port] = holder or false
        udp_ports:add(port, mrc)
    end
end

local function release(port)
    udp_ports:remove(port, mrc)
    if claimed[port] then
        udp_ports:add(port, claimed[port])
    end
    claimed[port] = nil
end

-- Claims the ports of the preference, again for each file.
local function claim_ports()
    wanted = {}
    for first, last in mrc.prefs.ports:gmatch("(%d+)-?(%d*)") do
        for port = tonumber(first), tonumber(last) or tonumber(first) do
            wanted[port] = true
            claim(port)
        end
    end
    for port in pairs(claimed) do
        if not wanted[port] then
            release(port)
        end
    end
end

mrc.init = claim_ports
mrc.prefs_changed = claim_ports
claim_ports()
