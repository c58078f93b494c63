"""What the dissector makes of the fields: paths, acknowledged PSNs, ids, trimming, faults, the info column."""

from dataclasses import dataclass, field

import pytest

from nic_model.headers import (
    AETH,
    BTH,
    EETH,
    ERTH,
    METH,
    NETH,
    PETH,
    RETH,
    TSETH,
    UDP,
    Ecn,
    Ethernet,
    IPv6,
    NackReason,
    Opcode,
    SackMark,
)
from nic_model.icrc import SIZE as ICRC_SIZE
from tests.wireshark.frames import bth_at, corrupted, forwarded, trimmed, with_routing_header, with_udp_length
from tests.wireshark.packets import (
    DSCP,
    ECMP,
    ECMP_EV,
    EV,
    OTHER_EV,
    control,
    endpoint,
    nack,
    over_ipv4,
    sack,
    scapy_frame,
    write,
)
from tests.wireshark.tshark import Row, TShark, number, write_capture


@dataclass(frozen=True)
class Case:
    """A frame and what it shows: numbers, or texts, by filter; no number where the list is empty."""

    name: str
    frame: bytes
    shows: dict[str, list[int] | list[str]]
    info: str
    """What the info column contains."""
    experts: list[str] = field(default_factory=list)
    """mrc's own, without their prefix."""


BTH_AT = bth_at(write())
FULL_UDP_LEN = UDP.SIZE + BTH.SIZE + METH.SIZE + TSETH.SIZE + RETH.SIZE + 4096 + ICRC_SIZE
"""Of `write()`."""

CASES = [
    Case(
        "the path of a data packet in SRv6 mode",
        write(),
        {"mrc.ev": [EV], "mrc.ev.plane": [5], "mrc.ev.uplink": [777], "mrc.payload_len": [4096], "mrc.trimmed": []},
        "RDMA WRITE Middle QP=0x123456 PSN=4000 MSN=9 Len=4096 via p5u777",
    ),
    Case(
        "a path in ECMP mode has a plane only",
        write(ECMP),
        {"mrc.ev": [ECMP_EV], "mrc.ev.plane": [6], "mrc.ev.uplink": []},
        "via EV=0xc1234567",
    ),
    Case(
        "a segment routing header between the IPv6 headers",
        with_routing_header(write()),
        {"mrc.ev": [EV], "mrc.ev.uplink": [777], "mrc.icrc.status": [1], "mrc.dscp.role": ["TRIMMABLE"]},
        "via p5u777",
    ),
    Case(
        "the outer class counts, not the inner",
        forwarded(write(), dscp=DSCP.trimmable_retx, ecn=Ecn.CE),
        {"mrc.dscp": [8], "mrc.dscp.role": ["TRIMMABLE_RETX"], "mrc.ecn": [3], "mrc.icrc.status": [1]},
        "via p5u777 [CE]",
        ["ce"],
    ),
    Case(
        "a retransmission with immediate",
        write(opcode=Opcode.WRITE_ONLY_IMM, imm=0xCAFE, rqmsn=7, rtx=True, ack_req=True, payload=b"abc"),
        {"mrc.payload_len": [3], "mrc.bth.pad": [1], "mrc.icrc.status": [1]},
        "RQMSN=7 Imm=0x0000cafe Len=3 via p5u777 [rtx] [AckReq]",
        ["rtx"],
    ),
    Case(
        "a write of no bytes",
        write(opcode=Opcode.WRITE_ONLY, payload=b"", tseth=None),
        {"mrc.payload_len": [0], "mrc.payload": [], "mrc.icrc.status": [1]},
        "Len=0 via",
    ),
    Case(
        "a SACK of nothing beyond cack_psn",
        sack(ack_psn_offset=-3),
        {
            "mrc.sack.ack_psn": [97],
            "mrc.sack.acked": [],
            "mrc.sack.acked_ranges": [],
            "mrc.reflected_ev": [OTHER_EV],
            "mrc.reflected_ev.plane": [2],
            "mrc.reflected_ev.uplink": [3],
            "mrc.probe_id": [],
        },
        "SACK QP=0x000011 cack=100 for PSN=97 on p2u3 via p5u777",
    ),
    Case(
        "both ends of the bitmap, and a cause between them",
        sack(ack_psn_offset=12, sack_offset=2, sack_bitmap=1 << 63 | 0b1011),
        {
            "mrc.sack.ack_psn": [112],
            "mrc.sack.acked": [102, 103, 105, 112, 165],
            "mrc.sack.acked_ranges": ["102-103,105,112,165"],
        },
        "cack=100 +102-103,105,112,165 for PSN=112",
    ),
    Case(
        "a cause that the bitmap has, too",
        sack(ack_psn_offset=33, sack_offset=1, sack_bitmap=1 << 32),
        {"mrc.sack.acked": [133], "mrc.sack.acked_ranges": ["133"]},
        "+133 for PSN=133",
    ),
    Case(
        "PSNs wrap at 2^24",
        sack(cack_psn=0xFFFFFE, sack_offset=1, sack_bitmap=0b111, ack_psn_offset=3),
        {"mrc.sack.acked": [0xFFFFFF, 0, 1], "mrc.sack.ack_psn": [1], "mrc.sack.acked_ranges": ["16777215-1"]},
        "cack=16777214 +16777215-1 for PSN=1",
    ),
    Case(
        "a bitmap that begins before cack_psn",
        sack(sack_offset=-2, sack_bitmap=0b1_1111),
        {"mrc.sack.acked": [101, 102], "mrc.sack.acked_ranges": ["101-102"]},
        "+101-102",
    ),
    Case(
        "a window far behind",
        sack(sack_offset=30000, sack_bitmap=1, ack_psn_offset=-30000),
        {"mrc.sack.acked": [30100], "mrc.sack.ack_psn": [0xFFFFFF - 29899]},
        "+30100",
    ),
    Case(
        "a SACK that answers a probe",
        sack(pr=True, ack_psn_offset=-2, sack_bitmap=1),
        {"mrc.probe_id": [0xFFFE], "mrc.sack.ack_psn": [], "mrc.sack.acked": [101]},
        "cack=100 +101 probe=65534 on p2u3",
    ),
    Case(
        "SKIP_ONCE",
        sack(m=SackMark.SKIP_ONCE),
        {"mrc.sack.m": [1]},
        "[SKIP_ONCE]",
        ["skip"],
    ),
    Case(
        "ALWAYS_SKIP, in ECMP mode",
        sack(ECMP, m=SackMark.ALWAYS_SKIP),
        {"mrc.reflected_ev": [OTHER_EV], "mrc.reflected_ev.plane": [2], "mrc.reflected_ev.uplink": []},
        "on EV=0x40180000 via EV=0xc1234567 [ALWAYS_SKIP]",
        ["skip"],
    ),
    Case(
        "a NACK",
        nack(NackReason.NO_PKT_BUFFER),
        {"mrc.nack.psn": [77], "mrc.reflected_ev": [OTHER_EV], "mrc.reflected_ev.uplink": [3]},
        "NACK QP=0x000011 NO_PKT_BUFFER PSN=77 on p2u3 via p5u777",
        ["nack"],
    ),
    Case(
        "a NACK of no known reason",
        nack(0x55),
        {"mrc.nack.reason": [0x55]},
        "NACK QP=0x000011 reason 0x55 PSN=77",
        ["nack"],
    ),
    Case(
        "a reliability probe",
        control(Opcode.RELIABILITY_PROBE, PETH(probe_id=0xFFFE, spdcid=1, dpdcid=2, tx_timestamp=0)),
        {"mrc.probe_id": [0xFFFE]},
        "Reliability Probe Request QP=0x000011 probe=65534 via p5u777",
    ),
    Case(
        "port states",
        endpoint(Opcode.ENDPOINT_REQUEST, ERTH(op=0, port_status_mask=1 << 31 | 0b101, tx_timestamp=0)),
        {"mrc.request_id": [0x34], "mrc.port_up": [0, 2, 31]},
        "PORT_STATUS_UPDATE request=52 reachable=0,2,31 via",
    ),
    Case(
        "no port is up",
        endpoint(Opcode.ENDPOINT_REQUEST, ERTH(op=0, tx_timestamp=0)),
        {"mrc.port_up": []},
        "reachable=none",
    ),
    Case(
        "an EV probe has no port states",
        endpoint(Opcode.ENDPOINT_REQUEST, ERTH(op=1, port_status_mask=1, tx_timestamp=0)),
        {"mrc.request_id": [0x34], "mrc.port_up": []},
        "Endpoint Request QP=0x000011 EV_PROBE request=52 via",
    ),
    Case(
        "the answer to an EV probe",
        endpoint(Opcode.ENDPOINT_RESPONSE, EETH(op=1, tx_timestamp=0)),
        {"mrc.request_id": [0x34]},
        "Endpoint Response QP=0x000011 EV_PROBE request=52 via",
    ),
    Case(
        "messages acknowledged",
        control(Opcode.TRANSPORT_ACK, AETH(syndrome=0x1F, msn=3)),
        {"mrc.aeth.msn": [3]},
        "Transport ACK QP=0x000011 MSN=3 via p5u777",
    ),
    Case(
        "a message refused",
        control(Opcode.TRANSPORT_ACK, AETH(syndrome=0x62, msn=3)),
        {"mrc.aeth.syndrome": [0x62]},
        "[NAK: remote access error]",
        ["nak"],
    ),
    # ---- trimming
    Case(
        "trimmed inside RETH",
        trimmed(write(), 128, DSCP.trimmed),
        {
            "mrc.trimmed": [1],
            "mrc.trimmed.missing": [FULL_UDP_LEN - (128 - 94)],
            "mrc.payload_len": [4096],
            "mrc.tseth.tx_timestamp": [0xBEEF],
            "mrc.reth.va": [],
            "mrc.rest": ["000000000001"],
            "mrc.icrc": [],
        },
        "Len=4096 via p5u777 [TRIMMED, 4110 bytes cut off]",
        ["trimmed"],
    ),
    Case(
        "trimmed on the last hop, after the headers",
        trimmed(write(payload=b"\xab" * 4096), 140, DSCP.trimmed_lasthop),
        {
            "mrc.trimmed": [2],
            "mrc.trimmed.missing": [4098],
            "mrc.reth.va": [0x10000],
            "mrc.rest": ["abab"],
            "mrc.payload": [],
        },
        "[TRIMMED_LASTHOP, 4098 bytes cut off]",
        ["trimmed"],
    ),
    Case(
        "trimmed right behind TSETH, in ECMP mode",
        trimmed(write(ECMP), 82, DSCP.trimmed),
        {"mrc.trimmed.missing": [FULL_UDP_LEN - (82 - 54)], "mrc.tseth.tsr": [1], "mrc.rest": []},
        "[TRIMMED, 4116 bytes cut off]",
        ["trimmed"],
    ),
    Case(
        "trimmed, so short that it is whole",
        trimmed(write(payload=b""), 200, DSCP.trimmed),
        {"mrc.trimmed": [1], "mrc.trimmed.missing": [0], "mrc.icrc.status": [1]},
        "[TRIMMED, whole]",
        ["remarked"],
    ),
    Case(
        "a SACK is never trimmed",
        trimmed(sack(), 128, DSCP.trimmed),
        {"mrc.trimmed.missing": [26], "mrc.sack.cack_psn": []},
        "[a control packet, and cut]",
        ["trimmed", "length"],
    ),
    # ---- malformed
    Case(
        "shortened, but not remarked",
        trimmed(write(), 128, DSCP.trimmable),
        {"mrc.trimmed": [], "mrc.meth.msn": [9]},
        "[UDP length 4144, 34 bytes are there] [ends inside RDMA (RETH)]",
        ["length", "end"],
    ),
    Case(
        "a corrupted payload",
        corrupted(write(), BTH_AT + 100),
        {"mrc.icrc.status": [0], "mrc.payload_len": [4096]},
        "[bad ICRC]",
        ["icrc"],
    ),
    Case(
        "the ICRC leaves out what switches change",
        corrupted(forwarded(write(ECMP), hops=9, dscp=DSCP.no_trim, ecn=Ecn.CE), Ethernet.SIZE + 3),
        {"mrc.icrc.status": [1], "mrc.ev": [ECMP_EV ^ 0x10]},
        "[CE]",
        ["ce"],
    ),
    Case(
        "the ICRC is scapy's",
        scapy_frame(Opcode.NACK, bytes(range(NETH.SIZE))),
        {"mrc.icrc.status": [1], "mrc.nack.psn": [0x0D0E0F]},
        "NACK QP=0x000003 TRIMMED_LASTHOP PSN=855567",
        ["nack"],
    ),
    Case(
        "UDP ends before the frame does",
        with_udp_length(write(), FULL_UDP_LEN - 4),
        {"mrc.payload_len": [4092], "mrc.icrc.status": [2]},
        "[UDP length 4140, 4144 bytes are there]",
        ["length"],
    ),
    Case(
        "UDP ends inside RETH",
        with_udp_length(write(), UDP.SIZE + 24),
        {"mrc.payload_len": [], "mrc.tseth.ftype": [1], "mrc.icrc": []},
        "[ends inside RDMA (RETH)] [UDP length 32 does not fit the headers]",
        ["length", "end", "length"],
    ),
    Case(
        "inner lengths that contradict each other",
        corrupted(write(), Ethernet.SIZE + IPv6.SIZE + 5),
        {"mrc.payload_len": [4096], "mrc.icrc": []},
        "[inner IPv6 payload length 4128, UDP length 4144]",
        ["length"],
    ),
    Case(
        "outer and inner flow label differ",
        corrupted(write(), Ethernet.SIZE + 2),
        {"mrc.ev": [EV], "mrc.icrc.status": [1]},
        "[flow labels differ]",
        ["flow_label"],
    ),
    Case(
        "an opcode of the class that MRC does not have",
        corrupted(write(), BTH_AT),
        {"mrc.bth.opcode": [0xD7], "mrc.icrc.status": [0], "mrc.meth.msn": []},
        "Opcode 0xd7 QP=0x123456 via p5u777",
        ["opcode", "icrc"],
    ),
    Case(
        "another transport version",
        corrupted(write(), BTH_AT + 1, 0x02),
        {"mrc.bth.tver": [2], "mrc.icrc.status": [0]},
        "[tver 2]",
        ["tver", "icrc"],
    ),
    Case(
        "over IPv4 there is no flow label, so no EV",
        over_ipv4(write()[BTH_AT:]),
        {"mrc.ev": [], "mrc.icrc.status": [2], "mrc.payload_len": [4096]},
        "RDMA WRITE Middle QP=0x123456 PSN=4000 MSN=9 Len=4096",
    ),
]

EXPERTS = {name for case in CASES for name in case.experts}
TEXTS = {"mrc.dscp.role", "mrc.sack.acked_ranges", "mrc.rest", "mrc.payload"}


@pytest.fixture(scope="module")
def shown(tshark: TShark, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Row]:
    """What tshark makes of each case, by its name; of all fields that any case names."""
    capture = tmp_path_factory.mktemp("cases") / "cases.pcap"
    fields = {name for case in CASES for name in case.shows} | {expert(name) for name in EXPERTS} | {INFO}
    rows = tshark.rows(write_capture(capture, [case.frame for case in CASES]), sorted(fields))
    return {case.name: row for case, row in zip(CASES, rows, strict=True)}


INFO = "_ws.col.Info"


def expert(name: str) -> str:
    return f"mrc.expert.{name}"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_follows_from_the_fields(case: Case, shown: dict[str, Row]) -> None:
    row = shown[case.name]
    found = {name: row[name] if name in TEXTS else [number(text) for text in row[name]] for name in case.shows}
    assert found == case.shows
    assert case.info in row[INFO][0]
    assert sorted(case.experts) == sorted(name for name in EXPERTS for _ in row[expert(name)])
