"""The topology file as an operator writes it, schema 1. What follows from it is in `controller.topology`.

Checked here: types, unknown keys, and what one value alone can get wrong. `controller.topology_checks` has the
rest.
"""

from __future__ import annotations

import re
from ipaddress import IPv6Network
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field

from nic_model.paths import MAX_INDEX, MAX_PLANES, DscpPlan, Mode

MAX_PORT = 509
"""v1model's ports have 9 bits; 510 is the switch program's CPU port and 511 means drop."""

MAX_THRESHOLD = 63
"""A queue of BMv2 holds 64 packets and loses what comes on top without a word. A threshold at or above that would
never be reached, and the count of packets in the queue would stay too high for ever."""

SMALLEST_TRIM: dict[Mode, int] = {"srv6": 128, "ecmp": 82}
"""Bytes of a frame that leave the transport headers whole, behind one IPv6 header or two (OCP MRC)."""

_ROLES = DscpPlan()
_USID_BITS = 16
_HOST_PORT = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\[\]{}:\s]+):(\d{1,5})")


def _at_most(limit: int, why: str) -> AfterValidator:
    def check(value: int) -> int:
        if value > limit:
            raise ValueError(f"does not fit: {why}, so at most {limit}")
        return value

    return AfterValidator(check)


def _of_length(low: int, high: int, why: str) -> AfterValidator:
    def check(network: IPv6Network) -> IPv6Network:
        if not low <= network.prefixlen <= high:
            lengths = f"a /{low}" if low == high else f"a /{low} to /{high}"
            raise ValueError(f"must be {lengths}: {why}")
        if network.is_multicast or network.is_link_local:
            raise ValueError("must be unicast and not link-local (RFC 4291)")
        return network

    return AfterValidator(check)


def _is_host_port(text: str) -> str:
    match = _HOST_PORT.fullmatch(text.replace("{name}", "name"))
    if not match or not 0 < int(match[2]) < 1 << 16:
        raise ValueError("must be HOST:PORT, an IPv6 host in brackets")
    return text


_Index = Annotated[int, Field(ge=1), _at_most(MAX_INDEX + 1, "a uSID has 10 bits for the index")]
_Rate = Annotated[float, Field(gt=0)]
_Delay = Annotated[int, Field(ge=0)]
_Port = Annotated[int, Field(ge=1), _at_most(MAX_PORT, "510 is a v1model switch's CPU port and 511 means drop")]
_GrpcAddress = Annotated[str, AfterValidator(_is_host_port)]
_Block = Annotated[IPv6Network, _of_length(32, 32, "uSIDs are F3216 (RFC 9800)")]
_Threshold = Annotated[
    int, Field(ge=1), _at_most(MAX_THRESHOLD, "BMv2 loses packets silently in a queue of 64 or more")
]
_Packets = Annotated[int, Field(ge=0)]
_Dscp = Annotated[int, Field(ge=0), _at_most(63, "a DSCP has 6 bits")]
_TrimSize = Annotated[int, Field(ge=1), _at_most(0xFFFF, "it is cut from a packet with a 16-bit length")]


class LinkModel(BaseModel):
    """Rate in Gb/s and propagation delay in ns of a kind of link."""

    rate_gbps: _Rate
    delay_ns: _Delay


class PfcModel(BaseModel):
    """Priority-based flow control of the data class (IEEE 802.1Qbb), at every port of a switch.

    A switch that holds more than `xoff_bytes` which came in through one port stops that port's neighbour for
    `pause_quanta` (of 512 bit times each), again and again until it holds `xon_bytes` or less. `headroom_bytes` take
    what still comes meanwhile; without a number they follow from the link's rate and delay. No queue limit drops or
    trims data then. The P4 program has no part in it: the virtual-time fabric pauses, BMv2 cannot.
    """

    xoff_bytes: Annotated[int, Field(ge=1)]
    xon_bytes: Annotated[int, Field(ge=0)]
    headroom_bytes: Annotated[int, Field(ge=0)] | None = None
    pause_quanta: Annotated[int, Field(ge=1), _at_most(0xFFFF, "the field has 16 bits")] = 0xFFFF


class LinksModel(BaseModel):
    """The links between NICs and T0s, and those between T0s and T1s; with `pfc` they are lossless for data."""

    nic: LinkModel
    fabric: LinkModel
    pfc: PfcModel | None = None


class ControlModel(BaseModel):
    """Where the switches serve P4Runtime: HOST:PORT, with `{name}` for the switch's name."""

    address: _GrpcAddress


class SwitchOverride(BaseModel):
    """Where one switch serves P4Runtime, as far as it differs."""

    address: _GrpcAddress | None = None
    device_id: Annotated[int, Field(ge=1, lt=1 << 64)] | None = None


class QueuesModel(BaseModel):
    """Thresholds of a port's queues, in packets.

    A data packet that finds `data_packets` in the data queue is trimmed, or dropped if it may not be; a trimmed one
    that finds `trim_packets` in the trim queue is dropped. Towards a switch, packets that leave more than `mark_from`
    in the data queue are ECN-marked with a probability that rises to 1 at `mark_to`; with `mark_last_hop` towards a NIC
    too, as DCQCN needs it. With `links.pfc` data has no limit: `data_packets` has no meaning and may not be given.
    """

    data_packets: _Threshold = 48
    trim_packets: _Threshold = 60
    mark_from: _Packets = 10
    mark_to: _Packets = 38
    mark_last_hop: bool = False


class DscpModel(BaseModel):
    """The DSCP of each role (OCP MRC)."""

    no_trim: _Dscp = _ROLES.no_trim
    trimmable: _Dscp = _ROLES.trimmable
    trimmable_retx: _Dscp = _ROLES.trimmable_retx
    trimmed: _Dscp = _ROLES.trimmed
    trimmed_lasthop: _Dscp = _ROLES.trimmed_lasthop
    control: _Dscp = _ROLES.control


class TenantModel(BaseModel):
    """A tenant: the block of its uSIDs, and its NICs as names and ranges (`nic3`, `nic8..15`)."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    block: _Block
    nics: Annotated[list[str], Field(min_length=1)]


class LinkOverride(BaseModel):
    """What differs on the link between two nodes; `ports` gives port numbers by switch name."""

    between: tuple[str, str]
    rate_gbps: _Rate | None = None
    delay_ns: _Delay | None = None
    ports: dict[str, _Port] = {}
    queues: QueuesModel = QueuesModel()
    """Only what is set in the file counts."""


class OverridesModel(BaseModel):
    """The exceptions to what the rest of the file says."""

    switches: dict[str, SwitchOverride] = {}
    links: list[LinkOverride] = []


class TopologyModel(BaseModel):
    """The topology file, schema 1. It has either `block`, for a tenant that owns all NICs, or `tenants`."""

    schema_: Literal[1] = Field(alias="schema")
    name: Annotated[str, Field(min_length=1)]
    planes: Annotated[int, Field(ge=1), _at_most(MAX_PLANES, "a uSID has 3 bits for the plane")]
    rows: _Index
    t1_per_plane: _Index
    nics_per_row: _Index
    mode: Mode = "srv6"
    block: _Block | None = None
    tenants: Annotated[list[TenantModel], Field(min_length=1)] | None = None
    guard: bool = True
    nic_prefix: Annotated[IPv6Network, _of_length(48, 48, "16 bits number the rows, a /64 each")]
    switch_prefix: Annotated[IPv6Network, _of_length(1, 128 - _USID_BITS, "a switch's uSID ends its address")]
    links: LinksModel
    queues: QueuesModel = QueuesModel()
    trim_size: _TrimSize = SMALLEST_TRIM["srv6"]
    dscp: DscpModel = DscpModel()
    control: ControlModel
    overrides: OverridesModel = OverridesModel()
