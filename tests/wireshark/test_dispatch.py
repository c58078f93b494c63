"""Which packets are taken for MRC's, and what preferences change."""

from dataclasses import fields, replace
from pathlib import Path

from nic_model.headers import UDP_PORT, UDP_PORT_OCP, DscpPlan, Opcode
from nic_model.packet import Wire
from nic_model.paths import srv6_ev
from tests.wireshark.frames import bth_at, corrupted, forwarded, shortened, trimmed
from tests.wireshark.packets import DSCP, ECMP, SRV6, scapy_frame, write
from tests.wireshark.tshark import TShark, number, write_capture

RC_WRITE_ONLY, CNP = 0x0A, 0x81
INFINIBAND = "infiniband.bth.opcode"


def test_other_opcodes_are_left_to_the_infiniband_dissector(tshark: TShark, capture: Path) -> None:
    """Malformed ones, too, which are then no error of the script."""
    rc = scapy_frame(RC_WRITE_ONLY, bytes(16))
    frames = [rc, scapy_frame(CNP, bytes(16)), scapy_frame(Opcode.NACK, bytes(20)), shortened(rc, bth_at(rc) + 14)]
    rc_row, cnp, nack, malformed = tshark.rows(write_capture(capture, frames), ["mrc", INFINIBAND, "_ws.malformed"])
    assert [number(row[INFINIBAND][0]) for row in (rc_row, cnp, malformed)] == [RC_WRITE_ONLY, CNP, RC_WRITE_ONLY]
    assert not rc_row["mrc"] and not cnp["mrc"] and not malformed["mrc"]
    assert nack["mrc"] and not nack[INFINIBAND]
    assert malformed["_ws.malformed"]


def on_port(port: int) -> bytes:
    return write(replace(ECMP, wire=Wire(udp_port=port)))


def is_mrc(tshark: TShark, capture: Path, *options: str) -> list[bool]:
    return [bool(row["mrc"]) for row in tshark.rows(capture, ["mrc"], *options)]


def test_ports(tshark: TShark, capture: Path) -> None:
    """One that is given up goes back to whoever had it."""
    write_capture(capture, [on_port(port) for port in (UDP_PORT, UDP_PORT_OCP, 5001, 5002)])
    assert is_mrc(tshark, capture) == [True, True, False, False]
    rows = tshark.rows(capture, ["mrc", INFINIBAND], "-o", "mrc.ports:4971,5000-5001")
    assert [bool(row["mrc"]) for row in rows] == [False, True, True, False]
    assert [bool(row[INFINIBAND]) for row in rows] == [True, False, False, False]


def test_preferences_of_infiniband_do_not_take_the_port_back(tshark: TShark, capture: Path) -> None:
    write_capture(capture, [on_port(UDP_PORT)])
    assert is_mrc(tshark, capture, "-o", "infiniband.try_heuristic_first:FALSE") == [True]


def test_decode_as_has_the_last_word(tshark: TShark, capture: Path) -> None:
    write_capture(capture, [on_port(UDP_PORT), on_port(UDP_PORT_OCP)])
    assert is_mrc(tshark, capture, "-d", "udp.port==4791,dns") == [False, True]


def test_an_entropy_value_may_be_a_well_known_source_port(tshark: TShark, capture: Path) -> None:
    """Uplink 62 of plane 0 is UDP source port 496, Auto-RP's: Wireshark asks the lower port first, unless told."""
    write_capture(capture, [write(replace(SRV6, ev=srv6_ev(0, 62))), write(ECMP)])
    assert is_mrc(tshark, capture) == [False, True]
    assert is_mrc(tshark, capture, "-o", "udp.try_heuristic_first:TRUE") == [True, True]


def test_the_roles_of_dscps(tshark: TShark, capture: Path) -> None:
    """By default as the codec's; as preferences, any."""
    roles = [role.name for role in fields(DscpPlan)]
    write_capture(capture, [forwarded(write(), dscp=getattr(DSCP, role)) for role in roles])
    rows = tshark.rows(capture, ["mrc.dscp.role"])
    assert [row["mrc.dscp.role"] for row in rows] == [[role.upper()] for role in roles]


def test_preferences(tshark: TShark, capture: Path) -> None:
    frames = [trimmed(write(), 128, dscp) for dscp in (DSCP.trimmed, 20, 21)]
    frames.append(corrupted(write(), bth_at(write()) + 100))
    options = ["-o", "mrc.dscp_trimmed:20", "-o", "mrc.dscp_trimmed_lasthop:21", "-o", "mrc.icrc:FALSE"]
    rows = tshark.rows(write_capture(capture, frames), ["mrc.trimmed", "mrc.icrc.status"], *options)
    assert [row["mrc.trimmed"] for row in rows] == [[], ["1"], ["2"], []]
    assert rows[-1]["mrc.icrc.status"] == [UNVERIFIED]


UNVERIFIED = "2"
