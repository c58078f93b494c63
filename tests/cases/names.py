"""What the expressions in a case stand for: bytes of patterns, memory regions, fields of packets that have a name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256

from tests.cases.bench import REMOTE, Region, ev, region
from tests.cases.schema import Case, Value
from tests.cases.wire import Fields

CONSTANTS: dict[str, dict[str, int]] = {
    "m": {"NONE": 0, "SKIP_ONCE": 1, "ALWAYS_SKIP": 2},
    "reason": {
        "TRIMMED": 0x01,
        "TRIMMED_LASTHOP": 0x02,
        "NO_BITMAP": 0x06,
        "NO_PKT_BUFFER": 0x07,
        "NO_RESOURCE": 0x0A,
        "PSN_OOR_WINDOW": 0x0B,
        "UNEXP_EVENT": 0x19,
    },
    "op": {"PORT_STATUS_UPDATE": 0, "EV_PROBE": 1},
    "dscp": {"NO_TRIM": 0, "TRIMMABLE": 4, "TRIMMABLE_RETX": 8, "TRIMMED": 12, "TRIMMED_LASTHOP": 16, "CONTROL": 46},
    "ecn": {"NOT_ECT": 0, "ECT1": 1, "ECT0": 2, "CE": 3},
    "syndrome": {"ACK": 0x1F, "NAK_INVALID_REQUEST": 0x61, "NAK_REMOTE_ACCESS": 0x62, "NAK_REMOTE_OPERATION": 0x63},
}
"""Numbers that have a name, by field."""
CONSTANTS |= {f"outer_{name}": CONSTANTS[name] for name in ("dscp", "ecn")}

_PATH = re.compile(r"(\d)/(\d+)")
_EXPRESSION = re.compile(r"(?P<name>[a-z_]+)(?P<index>\d+)?(?:\.(?P<field>\w+))?(?P<delta>[+-]\d+)?")
_SLICE = re.compile(r"(?P<name>[a-z_]+)(?P<seed>\d+)?\((?:(?P<start>\d+):)?(?P<end>\d+)\)")
_RANGE = re.compile(r"(\d+)(?:\.\.(\d+))?")


class CaseError(Exception):
    """A case that makes no sense."""


@lru_cache(maxsize=64)
def pattern(seed: int, length: int) -> bytes:
    """SHA-256 of (seed, block number), both as 4 bytes big-endian, block after block."""
    blocks = range(-(-length // 32))
    stream = b"".join(sha256(seed.to_bytes(4, "big") + block.to_bytes(4, "big")).digest() for block in blocks)
    return stream[:length]


def piece(text: str) -> bytes:
    """`pattern2(0:256)`, `zeros(16)` or bytes in hex."""
    found = _SLICE.fullmatch(text)
    if found is None:
        return bytes.fromhex(text)
    start, end = int(found["start"] or 0), int(found["end"])
    if found["name"] == "zeros":
        return bytes(end - start)
    if found["name"] == "pattern" and found["seed"]:
        return pattern(int(found["seed"]), end)[start:]
    raise CaseError(f"{text!r} is neither pattern<n>(a:b) nor zeros(n) nor hex")


def region_slice(text: str) -> tuple[str, int, int]:
    """`src(0:1024)` as (region, offset, length)."""
    found = _SLICE.fullmatch(text)
    if found is None:
        raise CaseError(f"{text!r} is not region(a:b)")
    start = int(found["start"] or 0)
    return found["name"] + (found["seed"] or ""), start, int(found["end"]) - start


def span(value: int | str) -> range:
    """`2` or `0..3`, both ends included, as numbers."""
    found = _RANGE.fullmatch(str(value))
    if found is None or int(found[1]) > int(found[2] or found[1]):
        raise CaseError(f"{value!r} is neither a number nor first..last")
    return range(int(found[1]), int(found[2] or found[1]) + 1)


def part(value: int | str | None, packets: int) -> range:
    """The packet numbers that a part of a message of so many packets means; None: all of them."""
    numbers = range(packets) if value is None else span(value)
    if numbers.stop > packets:
        raise CaseError(f"part {value!r} of a message of {packets} packets")
    return numbers


class Names:
    """The names of one case while it is played."""

    def __init__(self, case: Case) -> None:
        self.regions: dict[str, Region] = {"remote": REMOTE}
        self.regions |= {name: region(number) for number, name in enumerate(case.regions, start=1)}
        self.packets: dict[str, list[Fields]] = {}

    def bind(self, name: str | None, packets: list[Fields]) -> None:
        """From now on `name0`, `name1`... are these packets, and `name` is the first."""
        if name is not None:
            self.packets[name] = packets

    def packet(self, text: str) -> Fields:
        """The packet that has this name."""
        found = _EXPRESSION.fullmatch(text)
        group = self.packets.get(found["name"]) if found else None
        index = int(found["index"] or 0) if found else 0
        if found is None or group is None or index >= len(group):
            raise CaseError(f"no packet is called {text!r}")
        return group[index]

    def number(self, value: Value, field: str) -> int:
        """What a value of this field stands for."""
        if isinstance(value, int):
            return value
        if value in CONSTANTS.get(field, {}):
            return CONSTANTS[field][value]
        if found := _PATH.fullmatch(value):
            return ev(int(found[1]), int(found[2]))
        found = _EXPRESSION.fullmatch(value)
        if found is None:
            raise CaseError(f"{field}: {value!r} is no expression")
        if found["field"]:
            base = self._field(found["name"] + (found["index"] or ""), found["field"])
        else:
            base = self._region(found["name"] + (found["index"] or ""), field)
        return base + int(found["delta"] or 0)

    def _field(self, name: str, field: str) -> int:
        fields = self.packet(name)
        if field not in fields:
            raise CaseError(f"packet {name} has no {field}")
        return fields[field]

    def _region(self, name: str, field: str) -> int:
        if name not in self.regions:
            raise CaseError(f"{field}: nothing is called {name!r}")
        region = self.regions[name]
        return region.rkey if field == "rkey" else region.addr

    def numbers(self, values: Mapping[str, Value]) -> Fields:
        """All of them."""
        return {field: self.number(value, field) for field, value in values.items()}


def named(fields: Mapping[str, int], ev_value: int, port: int) -> Fields:
    """A packet as expressions see it: with its EV and port, and a timestamp even if it has none."""
    return {"tx_timestamp": 0, **fields, "ev": ev_value, "port": port}
