"""Path files: what a controller tells the NICs of one row about the paths to every row of the fabric.

One file per row and tenant, JSON Lines; the row's record, then one per NIC of the tenant in the row, then one
per destination row, of those in which the tenant has NICs:

    {"record": "row", "schema": 1, "row": 0, "block": "fcbb:bbbb::/32", "planes": 4, "uplinks": 8, "mode": "srv6",
        "dscp": {"no_trim": 0, "trimmable": 4, "trimmable_retx": 8, "trimmed": 12, "trimmed_lasthop": 16,
        "control": 46}}
    {"record": "nic", "name": "nic0", "index": 0, "ports": [{"plane": 0, "address": "fd00:6d72:6300::",
        "mac": "02:01:00:00:e0:00", "gateway": "02:00:00:00:20:00", "usid": "e000"}, ...]}
    {"record": "destination", "row": 0, "prefix": "fd00:6d72:6300::/64", "template": "fcbb:bbbb:2000:e000::",
        "uplinks": 0}
    {"record": "destination", "row": 1, "prefix": "fd00:6d72:6300:1::/64",
        "template": "fcbb:bbbb:2000:4000:2001:e000::", "uplinks": 8}

A template is the uSID list to a row with plane 0, T1 0 and NIC 0 in it: `block:T0:NIC` inside the row,
`block:T0:T1:T0:NIC` to any other (RFC 9800, F3216: a 32-bit block and 16-bit uSIDs). A uSID is
kind 3 bits | plane 3 bits | index 10 bits, so that an EV (bits 31:29 plane, 28:19 uplink) is a compressed
path: `Template.outer_da` copies its plane into every uSID and its uplink into the T1's.

In ECMP mode nothing is encapsulated: a packet goes to the peer's port address in the EV's plane, and switches hash.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from enum import IntEnum
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

from nic_model.headers import DscpPlan as DscpPlan  # a part of the schema, for controllers too

SCHEMA = 1

Mode = Literal["srv6", "ecmp"]
"""How packets find their path: by uSIDs in an outer IPv6 header, or by the switches' hash of the EV."""

INDEX_BITS = 10
MAX_PLANES = 8
MAX_INDEX = (1 << INDEX_BITS) - 1
MAX_DSCP = 63

_EV_PLANE_SHIFT = 29
_EV_UPLINK_SHIFT = 19
_BLOCK_BYTES = 4
_PREFIX_BYTES = 8
_ADDRESS_BYTES = 16


class UsidKind(IntEnum):
    """The three most significant bits of a uSID: T0 0x2000.., T1 0x4000.., NIC 0xe000.. (local to its T0)."""

    T0 = 0b001
    T1 = 0b010
    NIC = 0b111


def usid(kind: UsidKind, plane: int, index: int) -> int:
    """The 16-bit uSID of a node; plane 0..7, index 0..1023, neither is checked."""
    return kind << 13 | plane << INDEX_BITS | index


def srv6_ev(plane: int, uplink: int) -> int:
    """The 32-bit EV, in SRv6 mode, of the path over the T0's `uplink` (0 inside a row) in `plane`."""
    return plane << _EV_PLANE_SHIFT | uplink << _EV_UPLINK_SHIFT


def port_plane(address: bytes) -> int:
    """The plane of a NIC port, by its address (16 bytes): the row's /64 | plane 16 bits | 0 | NIC 16 bits."""
    return int.from_bytes(address[_PREFIX_BYTES : _PREFIX_BYTES + 2], "big")


class PathFileError(ValueError):
    """A path file that is not as it must be. str() is one line: file, line, reason."""


@dataclass(frozen=True, slots=True)
class LocalPort:
    """A port of a NIC of this row: addresses are 16 bytes, MACs 6. `gateway` is the MAC of the port's T0."""

    plane: int
    address: bytes
    mac: bytes
    gateway: bytes
    usid: int


@dataclass(frozen=True, slots=True)
class LocalNic:
    """A NIC of this row; ports[p] is its port in plane p."""

    name: str
    index: int
    ports: tuple[LocalPort, ...]


@dataclass(frozen=True, slots=True)
class Template:
    """The paths from this row to one row: `block` (4 bytes) and uSIDs with plane 0, T1 0 and NIC 0."""

    row: int
    prefix: bytes
    block: bytes
    usids: tuple[int, ...]
    planes: int
    uplinks: int

    @property
    def paths(self) -> int:
        """Paths in each plane: one per uplink of the T0, a single one inside the row."""
        return self.uplinks or 1

    @staticmethod
    def plane_and_uplink(ev: int) -> tuple[int, int]:
        """What an EV says in SRv6 mode."""
        return ev >> _EV_PLANE_SHIFT, ev >> _EV_UPLINK_SHIFT & MAX_INDEX

    def outer_da(self, ev: int, nic_index: int) -> bytes:
        """The outer destination address (16 bytes) of the path `ev` to NIC `nic_index` of the row.

        The index of a NIC is the low 16 bits of any of its port addresses. Raises ValueError for an EV that
        is no path of this template or an index that no NIC can have.
        """
        plane, uplink = self.plane_and_uplink(ev)
        if plane >= self.planes or uplink >= self.paths or ev != srv6_ev(plane, uplink):
            offered = f"{self.planes} planes x {self.paths} paths"
            raise ValueError(f"EV {ev:#010x} is no path to row {self.row}: {offered}")
        if not 0 <= nic_index <= MAX_INDEX:
            raise ValueError(f"NIC index {nic_index} is not in 0..{MAX_INDEX}")
        filled = [value | plane << INDEX_BITS for value in self.usids]
        filled[-1] |= nic_index
        if self.uplinks:
            filled[1] |= uplink
        return self.block + _pack_usids(filled)


@dataclass(frozen=True)
class PathFile:
    """A row's path file: its NICs, and a template for each row that they may reach, the own one included."""

    row: int
    block: bytes
    planes: int
    uplinks: int
    nics: tuple[LocalNic, ...]
    templates: tuple[Template, ...]
    mode: Mode = "srv6"
    dscp: DscpPlan = field(default_factory=DscpPlan)

    @classmethod
    def load(cls, path: Path) -> PathFile:
        """Read a file. Raises PathFileError naming file and line for anything that is not as it must be."""
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise PathFileError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
        return _read(str(path), lines)

    def save(self, path: Path) -> None:
        """Write the file that `load` reads."""
        path.write_text("".join(f"{json.dumps(record)}\n" for record in self._records()), encoding="utf-8")

    def local(self, nic_name: str) -> LocalNic:
        """A NIC of this row by name. Raises KeyError."""
        return self._nics_by_name[nic_name]

    def template_for(self, address: bytes) -> Template:
        """The template for the row of a NIC port's address (16 bytes). Raises KeyError."""
        return self._templates_by_prefix[address[:_PREFIX_BYTES]]

    @cached_property
    def _nics_by_name(self) -> dict[str, LocalNic]:
        return {nic.name: nic for nic in self.nics}

    @cached_property
    def _templates_by_prefix(self) -> dict[bytes, Template]:
        return {template.prefix: template for template in self.templates}

    def _records(self) -> Iterator[dict[str, Any]]:
        yield {
            "record": "row",
            "schema": SCHEMA,
            "row": self.row,
            "block": f"{_address_text(self.block)}/32",
            "planes": self.planes,
            "uplinks": self.uplinks,
            "mode": self.mode,
            "dscp": asdict(self.dscp),
        }
        for nic in self.nics:
            yield {
                "record": "nic",
                "name": nic.name,
                "index": nic.index,
                "ports": [
                    {
                        "plane": port.plane,
                        "address": _address_text(port.address),
                        "mac": port.mac.hex(":"),
                        "gateway": port.gateway.hex(":"),
                        "usid": f"{port.usid:04x}",
                    }
                    for port in nic.ports
                ],
            }
        for template in self.templates:
            yield {
                "record": "destination",
                "row": template.row,
                "prefix": f"{_address_text(template.prefix)}/64",
                "template": _address_text(template.block + _pack_usids(template.usids)),
                "uplinks": template.uplinks,
            }


def _pack_usids(usids: Sequence[int]) -> bytes:
    packed = struct.pack(f">{len(usids)}H", *usids)
    return packed.ljust(_ADDRESS_BYTES - _BLOCK_BYTES, b"\0")


def _address_text(leading: bytes) -> str:
    return socket.inet_ntop(socket.AF_INET6, leading.ljust(_ADDRESS_BYTES, b"\0"))


class _Record:
    """One record being read. Each key is taken once, with its type; what is left at the end is unknown."""

    def __init__(self, place: str, values: dict[str, Any]) -> None:
        self._place = place
        self._values = values

    def error(self, reason: str) -> PathFileError:
        return PathFileError(f"{self._place}: {reason}")

    def take(self, key: str, kind: type[Any]) -> Any:
        if key not in self._values:
            raise self.error(f"key {key!r} is missing")
        value = self._values.pop(key)
        if type(value) is not kind:
            raise self.error(f"{key} is {value!r}, must be of type {kind.__name__}")
        return value

    def integer(self, key: str, low: int, high: int) -> int:
        value: int = self.take(key, int)
        if not low <= value <= high:
            raise self.error(f"{key} is {value}, must be in {low}..{high}")
        return value

    def text(self, key: str) -> str:
        value: str = self.take(key, str)
        return value

    def address(self, key: str) -> bytes:
        return self._parse_address(key, self.text(key))

    def network(self, key: str, length: int) -> bytes:
        """The leading `length` bits, as bytes, of a prefix of just that length."""
        text = self.text(key)
        address = self._parse_address(key, text.removesuffix(f"/{length}"))
        if not text.endswith(f"/{length}") or any(address[length // 8 :]):
            raise self.error(f"{key} is {text!r}, must be an IPv6 prefix of length {length}")
        return address[: length // 8]

    def mac(self, key: str) -> bytes:
        text = self.text(key)
        try:
            mac = bytes.fromhex(text.replace(":", ""))
        except ValueError:
            mac = b""
        if len(mac) != 6 or mac.hex(":") != text:
            raise self.error(f"{key} is {text!r}, must be a MAC address such as 02:00:00:00:20:00")
        return mac

    def choice(self, key: str, choices: tuple[str, ...]) -> Any:
        text = self.text(key)
        if text not in choices:
            raise self.error(f"{key} is {text!r}, must be one of: {', '.join(choices)}")
        return text

    def object(self, key: str) -> _Record:
        return _Record(f"{self._place}: {key}", self.take(key, dict))

    def objects(self, key: str) -> Iterator[_Record]:
        for index, values in enumerate(self.take(key, list)):
            if not isinstance(values, dict):
                raise self.error(f"{key}[{index}] is {values!r}, must be an object")
            yield _Record(f"{self._place}: {key}[{index}]", values)

    def finish(self) -> None:
        if self._values:
            raise self.error(f"unknown key {next(iter(self._values))!r}")

    def _parse_address(self, key: str, text: str) -> bytes:
        try:
            return socket.inet_pton(socket.AF_INET6, text)
        except OSError:
            raise self.error(f"{key} is {text!r}, must be an IPv6 address") from None


def _read(source: str, lines: list[str]) -> PathFile:
    records = (_parse(f"{source}:{number}", line) for number, line in enumerate(lines, start=1))
    head = next(records, None)
    if head is None or head.text("record") != "row":
        raise PathFileError(f"{source}:1: the first record must be of kind 'row'")
    if head.take("schema", int) != SCHEMA:
        raise head.error(f"schema is not {SCHEMA}, the only one that is known")
    row = head.integer("row", 0, MAX_INDEX)
    block = head.network("block", 32)
    planes = head.integer("planes", 1, MAX_PLANES)
    uplinks = head.integer("uplinks", 1, MAX_INDEX + 1)
    mode: Mode = head.choice("mode", get_args(Mode))
    dscp = _read_dscp(head.object("dscp"))
    head.finish()

    nics: dict[str, LocalNic] = {}
    last_index = -1
    templates: dict[int, Template] = {}
    prefixes: set[bytes] = set()
    for record in records:
        kind = record.text("record")
        if kind == "nic" and not templates:
            nic = _read_nic(record, planes)
            if nic.name in nics or nic.index <= last_index:
                raise record.error(f"NIC {nic.name!r} is number {nic.index}: names must differ, indices ascend")
            nics[nic.name], last_index = nic, nic.index
        elif kind == "destination":
            template = _read_template(record, row, block, planes, uplinks)
            if template.row in templates or template.prefix in prefixes:
                raise record.error(f"row {template.row} or its prefix is already there")
            templates[template.row] = template
            prefixes.add(template.prefix)
        else:
            raise record.error(f"record {kind!r} does not belong here: row, then nic, then destination")
        record.finish()
    if row not in templates:
        raise PathFileError(f"{source}:{len(lines)}: ends without a destination record for its own row {row}")
    return PathFile(row, block, planes, uplinks, tuple(nics.values()), tuple(templates.values()), mode, dscp)


def _parse(place: str, line: str) -> _Record:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values = dict(pairs)
        if len(values) != len(pairs):
            raise PathFileError(f"{place}: a key stands there twice")
        return values

    try:
        values = json.loads(line, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise PathFileError(f"{place}: not JSON: {error.msg}") from None
    if not isinstance(values, dict):
        raise PathFileError(f"{place}: must be a JSON object")
    return _Record(place, values)


def _read_dscp(record: _Record) -> DscpPlan:
    roles = {role.name: record.integer(role.name, 0, MAX_DSCP) for role in fields(DscpPlan)}
    record.finish()
    if len(set(roles.values())) != len(roles):
        raise record.error("two roles have the same DSCP")
    return DscpPlan(**roles)


def _read_nic(record: _Record, planes: int) -> LocalNic:
    name = record.text("name")
    index = record.integer("index", 0, MAX_INDEX)
    ports = tuple(_read_port(port, plane, index) for plane, port in enumerate(record.objects("ports")))
    if len(ports) != planes:
        raise record.error(f"NIC {name!r} has {len(ports)} ports, the row has {planes} planes")
    return LocalNic(name, index, ports)


def _read_port(record: _Record, plane: int, index: int) -> LocalPort:
    if record.integer("plane", 0, MAX_PLANES - 1) != plane:
        raise record.error(f"plane must be {plane}: ports stand in the order of their planes")
    address, mac, gateway = record.address("address"), record.mac("mac"), record.mac("gateway")
    own = record.text("usid")
    expected = usid(UsidKind.NIC, plane, index)
    if own != f"{expected:04x}":
        raise record.error(f"usid is {own!r}, NIC {index} has {expected:04x} in plane {plane}")
    if address[-2:] != index.to_bytes(2, "big"):
        raise record.error(f"address is {_address_text(address)}, its low 16 bits must be the index, {index}")
    record.finish()
    return LocalPort(plane, address, mac, gateway, expected)


def _read_template(record: _Record, own_row: int, block: bytes, planes: int, uplinks: int) -> Template:
    row = record.integer("row", 0, MAX_INDEX)
    prefix = record.network("prefix", 64)
    address = record.address("template")
    count = record.integer("uplinks", 0, uplinks)
    if (count == 0) is not (row == own_row):
        raise record.error(f"uplinks is {count}: 0 is for the own row, {own_row}, and only for it")

    kinds = (UsidKind.T0, UsidKind.T1, UsidKind.T0, UsidKind.NIC) if count else (UsidKind.T0, UsidKind.NIC)
    usids = struct.unpack_from(f">{len(kinds)}H", address, _BLOCK_BYTES)
    variable = {UsidKind.T1, UsidKind.NIC}
    for kind, value in zip(kinds, usids, strict=True):
        index = 0 if kind in variable else value & MAX_INDEX
        if value != usid(kind, 0, index):
            raise record.error(f"template has {value:04x}, not a {kind.name} uSID of plane 0, T1 0, NIC 0")
    if address != block + _pack_usids(usids):
        raise record.error(f"template is {_address_text(address)}, must be block, {len(kinds)} uSIDs, zeros")
    return Template(row, prefix, block, usids, planes, count)
