"""The packets that the DUT is to send: from the short form in a case to what each field must be.

A field is exact, or a case constrains it, or it is in OPEN with the reason why no rule fixes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.cases import bench
from tests.cases.arrivals import ENDPOINT_QPN, FTYPE, P_KEY, UDP_PORT, data_kind, reflection
from tests.cases.names import CaseError, Names, named, part
from tests.cases.schema import Case, Constraint, Expectation, Expected, Post, SentMessage
from tests.cases.wire import Fields, Kind, WireError, decode, field_names, is_data

OPEN = {
    "ev": "the choice of a path is the device's; that it fits port, addresses and labels is always checked",
    "hop_limit": "a deployment's choice",
    "outer_hop_limit": "a deployment's choice",
    "udp_checksum": "switches and receivers ignore it, the ICRC does not cover it",
    "ts": "a data packet may go without TSETH; if it has one, its time is checked",
    "rqmsn": "no rule says what a WRITE without immediate carries; exact in one that has one",
    "type": "no value is published",
    "nxt": "no value is published",
    "nh": "no value is published",
    "cc_type": "no value is published for a SACK; 2 in a NACK",
    "cc_fl": "no value is published",
    "vendor": "the vendor's",
    "probe_id": "the requester's choice",
    "rcvd_bytes": "exact where a case gives it",
    "ooo_count": "exact where a case gives it",
    "port_status_mask": "exact in a PORT_STATUS_UPDATE, of no meaning in an EV_PROBE",
}
"""Fields that are open in every case that does not give them, and why."""
_PSN_MASK = 0xFFFFFF
_TICKS = (128, 1000)
"""ns in a tick of tx_timestamp, by tsr."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A packet that the DUT has sent, found to be in order in itself."""

    at: int
    port: int
    kind: Kind
    fields: Fields
    payload: bytes

    def __str__(self) -> str:
        return f"{self.kind} at {self.at} on port {self.port}"


def read(frame: bytes, port: int, at: int, case: Case) -> Sent:
    """A frame from the DUT. Raises WireError if it breaks a rule that holds for every packet."""
    kind, fields, payload = decode(frame)
    ev = fields["udp_sport"] << 16 | fields["flow_label"]
    for name, value in _always(kind, fields, ev, port, case).items():
        if fields.get(name) != value:
            raise WireError(f"{kind}: {name} is {_text(name, fields.get(name))}, must be {_text(name, value)}")
    if case.mode == "ecmp" and "outer_dst" in fields:
        raise WireError("there is an outer header in ECMP mode")
    if is_data(kind) and fields["dscp"] not in (0, 4, 8):
        raise WireError(f"DSCP {fields['dscp']} is none of NO_TRIM, TRIMMABLE, TRIMMABLE_RETX")
    if "tsr" in fields and fields["tx_timestamp"] != at // _TICKS[fields["tsr"]] & 0xFFFF:
        raise WireError(f"{kind}: tx_timestamp is {fields['tx_timestamp']:#06x} at {at} ns")
    return Sent(at, port, kind, named(fields, ev, port), payload)


def _always(kind: Kind, fields: Fields, ev: int, port: int, case: Case) -> Fields:
    """What every packet of the DUT must have in the headers of network and transport."""
    data, endpoint = is_data(kind), kind.startswith("endpoint")
    exact = {
        "eth_src": bench.mac(bench.DUT_ROW, port),
        "eth_dst": bench.gateway(bench.DUT_ROW, port),
        "src": bench.address(bench.DUT_ROW, port),
        "dst": bench.address(bench.PEER_ROW, port),
        "ecn": 2 if data else 0,
        "flow_label": fields["flow_label"] & 0xFFFF,
        "udp_dport": UDP_PORT,
        "udp_sport": port << 13 | fields["udp_sport"] & 0x1FFF,
        "se": 0,
        "mig": 0,
        "tver": 0,
        "p_key": P_KEY,
        "r": 0,
        "dqpn": ENDPOINT_QPN if endpoint else bench.PEER_QPN,
    }
    if case.mode == "srv6":
        exact |= {
            "outer_src": exact["src"],
            "outer_dst": bench.leaving_da(ev),
            "outer_dscp": fields["dscp"],
            "outer_ecn": fields["ecn"],
            "outer_flow_label": fields["flow_label"],
        }
    if "ftype" in fields:
        exact["ftype"] = FTYPE
    return exact if data else exact | {"dscp": 46, "ts": 0}


@dataclass(slots=True)
class Wanted:
    """One packet that is to come."""

    kind: Kind
    exact: Fields
    constraints: dict[str, Constraint] = field(default_factory=dict)
    payload: bytes = b""

    def __str__(self) -> str:
        shown = ", ".join(f"{name}: {_text(name, value)}" for name, value in self.exact.items())
        return f"{self.kind} {{{shown}}}"

    def misfit(self, sent: Sent, names: Names) -> list[str]:
        """What of a packet is not as wanted, in words."""
        if sent.kind != self.kind:
            return [f"it is a {sent.kind}"]
        unlike = [
            f"{name} is {_text(name, sent.fields.get(name))}"
            for name, value in self.exact.items()
            if sent.fields.get(name) != value
        ]
        unlike += [
            f"{name} is {_text(name, sent.fields[name])}"
            for name, constraint in self.constraints.items()
            if not _allows(constraint, name, sent.fields[name], names)
        ]
        return unlike + (["the payload is another"] if sent.payload != self.payload else [])


def wanted(expectation: Expectation, names: Names, case: Case, posts: dict[int, Post], memory: bytes) -> list[Wanted]:
    """The packets of an expectation that is no `one_of`. `memory` is what the message's WRITE is to carry."""
    constraints = {name: value for name, value in expectation.fields.items() if isinstance(value, Constraint)}
    given = {
        name: names.number(value, name)
        for name, value in expectation.fields.items()
        if not isinstance(value, Constraint)
    }
    if expectation.message is not None:
        post = posts.get(expectation.message.wr_id)
        if post is None:
            raise CaseError(f"work request {expectation.message.wr_id} has not been posted")
        return list(_parts(expectation.message, given, constraints, names, case, post, memory))
    if expectation.kind is None:
        raise CaseError("one_of has no packet of its own")
    reflected = {}
    if expectation.answers is not None:
        reflected = reflection(expectation.kind, names.packet(expectation.answers), given)
    exact = _defaults(expectation.kind, expectation.fields, given) | reflected | given
    return [Wanted(expectation.kind, {n: v for n, v in exact.items() if n not in constraints}, constraints)]


def _parts(
    message: SentMessage,
    given: Fields,
    constraints: dict[str, Constraint],
    names: Names,
    case: Case,
    post: Post,
    memory: bytes,
) -> Iterator[Wanted]:
    mtu = case.qp.path_mtu
    packets = max(1, -(-len(memory) // mtu))
    numbers = [(nth, index) for nth in range(message.count) for index in part(message.part, packets)]
    for nth, index in numbers:
        payload = memory[index * mtu : (index + 1) * mtu]
        exact = {
            "psn": (message.psn + nth * packets + index) & _PSN_MASK,
            "pad": -len(payload) % 4,
            "a": int(index == packets - 1 or index in message.ack_req),
            "rtx": 0,
            "msn": (message.msn + nth) & 0xFFFF,
            "va": names.number(post.to, "va") + index * mtu,
            "rkey": names.number(post.to, "rkey"),
            "dmalen": len(memory),
        }
        if message.rqmsn is not None:
            exact["rqmsn"] = (message.rqmsn + nth) & 0xFFFF
        kind = data_kind(index, packets, post.imm is not None)
        if kind.endswith("_imm"):
            exact["imm"] = post.imm or 0
        exact |= given
        yield Wanted(kind, {n: v for n, v in exact.items() if n not in constraints}, constraints, payload)


def _defaults(kind: Kind, fields: dict[str, Expected], given: Fields) -> Fields:
    """The exact fields of a control packet that a case need not repeat."""
    identifiers = {"spdcid": bench.DUT_QPN & 0xFFFF, "dpdcid": bench.PEER_QPN & 0xFFFF}
    required = {"sack": "cack_psn", "nack": "reason", "transport_ack": "msn", "endpoint_request": "op"}.get(kind)
    if required is not None and required not in fields:
        raise CaseError(f"an expected {kind} needs {required}")
    if kind == "sack":
        zeros = dict.fromkeys(("m", "pr", "mpr", "sack_bitmap", "restore_cwnd", "rcv_cwnd_pen"), 0)
        return identifiers | zeros | {"psn": given["cack_psn"], "sack_offset": 1}
    if kind == "nack":
        return identifiers | {"cc_type": 2}
    if kind == "transport_ack":
        return {"syndrome": 0x1F}
    return identifiers if kind == "probe" else {}


def _allows(constraint: Constraint, name: str, value: int, names: Names) -> bool:
    return (
        (constraint.not_ is None or value not in [names.number(other, name) for other in constraint.not_])
        and (constraint.one_of is None or value in [names.number(other, name) for other in constraint.one_of])
        and (constraint.plane is None or bench.ev_plane(value) in constraint.plane)
        and (
            constraint.in_plane_of is None
            or value == (only := names.number(constraint.in_plane_of, name))
            or bench.ev_plane(value) != bench.ev_plane(only)
        )
    )


def example(packet: Wanted, number: int, at: int, planes: int) -> Fields:
    """What an expected packet may look like: for frames that reflect it, before any device has sent it."""
    port = number % planes
    ev = bench.ev(port, number // planes % bench.UPLINKS)
    unknown = dict.fromkeys(field_names(packet.kind), 0)
    stamp = {"tx_timestamp": at // _TICKS[0] & 0xFFFF, "probe_id": 1, "psn": 1}
    known = {name: value for name, value in stamp.items() if name in unknown}
    return named(unknown | known | packet.exact, ev, port)


def _text(name: str, value: int | None) -> str:
    decimal = name in (
        "at",
        "m",
        "pr",
        "a",
        "rtx",
        "ack_psn_offset",
        "sack_offset",
        "ooo_count",
        "rcvd_bytes",
        "dmalen",
    )
    return "absent" if value is None else str(value) if decimal else hex(value)
