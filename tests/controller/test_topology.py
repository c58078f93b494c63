"""What follows from a topology file, against values worked out by hand, and what a file may not say."""

from __future__ import annotations

from ipaddress import IPv6Address, IPv6Network
from pathlib import Path

import pytest

from controller.tenants import Tenant
from controller.topology import (
    Control,
    End,
    LinkSpec,
    NicPort,
    NicSpec,
    SwitchSpec,
    Topology,
    UnknownNodeError,
    preset_names,
    preset_text,
)
from controller.topology_checks import check_pushable
from controller.yaml_file import Document, FileError

SMALL = """\
schema: 1
name: small
planes: 2
rows: 2
t1_per_plane: 2
nics_per_row: 2
block: fcbb:bbbb::/32
nic_prefix: fd00:6d72:6300::/48
switch_prefix: fd00:6d72:6301::/48
links:
  nic: {rate_gbps: 100, delay_ns: 500}
  fabric: {rate_gbps: 200, delay_ns: 700}
control:
  address: 127.0.0.1:9559
"""


def small(changes: dict[str, str] | None = None, extra: str = "") -> Topology:
    text = SMALL
    for old, new in (changes or {}).items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    return Topology(Document.parse(text + extra, "small.yaml"))


def test_a_switch_of_each_role() -> None:
    topo = Topology.preset("demo")
    assert topo.switch("p2t0-1") == SwitchSpec(
        name="p2t0-1",
        role="t0",
        plane=2,
        index=1,
        usid=0x2801,  # 001 010 0000000001
        mac="02:00:00:00:28:01",
        address=IPv6Address("fd00:6d72:6301::2801"),
        control=Control("127.0.0.1:9559", 1 + 2 * 10 + 1),
    )
    assert topo.switch("p3t1-7") == SwitchSpec(
        name="p3t1-7",
        role="t1",
        plane=3,
        index=7,
        usid=0x4C07,  # 010 011 0000000111
        mac="02:00:00:00:4c:07",
        address=IPv6Address("fd00:6d72:6301::4c07"),
        control=Control("127.0.0.1:9559", 40),
    )


def test_a_nic_has_a_port_in_each_plane() -> None:
    topo = Topology.preset("compose")
    assert topo.nic("nic3") == NicSpec(
        name="nic3",
        row=1,
        index=1,
        ports=(
            NicPort(0, 0xE001, IPv6Address("fd00:6d72:6300:1::1"), "02:01:00:01:e0:01"),
            NicPort(1, 0xE401, IPv6Address("fd00:6d72:6300:1:1::1"), "02:01:00:01:e4:01"),
        ),
        tenant="default",
    )


def test_the_links_of_a_small_fabric() -> None:
    links = list(small().links())
    assert links[:4] == [
        LinkSpec(End("nic0", 0), End("p0t0-0", 1), "nic", 0, 100.0, 500),
        LinkSpec(End("nic1", 0), End("p0t0-0", 2), "nic", 0, 100.0, 500),
        LinkSpec(End("p0t0-0", 3), End("p0t1-0", 1), "fabric", 0, 200.0, 700),
        LinkSpec(End("p0t0-0", 4), End("p0t1-1", 1), "fabric", 0, 200.0, 700),
    ]
    assert links[-1] == LinkSpec(End("p1t0-1", 4), End("p1t1-1", 2), "fabric", 1, 200.0, 700)
    assert len(links) == 2 * (2 * 2 + 2 * 2)


@pytest.mark.parametrize("name", preset_names())
def test_nothing_in_a_preset_is_used_twice(name: str) -> None:
    topo = Topology.preset(name)
    switches = list(topo.switches())
    assert len(switches) == topo.switch_count
    for values in (
        {switch.name for switch in switches},
        {switch.usid for switch in switches},
        {switch.mac for switch in switches},
        {switch.address for switch in switches},
        {switch.control for switch in switches},
    ):
        assert len(values) == len(switches)
    row = [port for nic in topo.row(topo.rows - 1) for port in nic.ports]
    assert len({port.address for port in row}) == len({port.mac for port in row}) == len({port.usid for port in row})
    assert all(0x2000 <= switch.usid <= 0x5FFF for switch in switches)
    assert all(0xE000 <= port.usid <= 0xFFFF for port in row)


def test_names_lead_back_to_nodes() -> None:
    topo = small()
    assert [topo.switch(switch.name) for switch in topo.switches()] == list(topo.switches())
    assert [topo.nic(nic.name) for nic in topo.nics()] == list(topo.nics())


@pytest.mark.parametrize("name", ["p2t0-0", "p0t0-2", "p0t1-2", "p0t2-0", "p00t0-0", "p0t0-00", "t0-0", "nic0", ""])
def test_a_switch_that_is_not_there(name: str) -> None:
    with pytest.raises(UnknownNodeError) as caught:
        small().switch(name)
    assert str(caught.value) == f"no switch {name!r} in small: p0..1, t0-0..1, t1-0..1"


@pytest.mark.parametrize("name", ["nic4", "nic01", "nic", "p0t0-0"])
def test_a_nic_that_is_not_there(name: str) -> None:
    with pytest.raises(UnknownNodeError) as caught:
        small().nic(name)
    assert str(caught.value) == f"no NIC {name!r} in small: nic0..3"


def test_the_paper_design_has_its_published_sizes() -> None:
    topo = Topology.preset("paper-8x100")
    assert (topo.nic_count, topo.switch_count) == (131_072, 6_144)
    assert topo.planes * topo.rows * topo.t1_per_plane == 1_048_576
    assert sum(1 for _ in topo.ports(topo.switch("p7t0-511"))) == 512
    assert topo.nic("nic131071").ports[7].address == IPv6Address("fd00:6d72:6300:1ff:7::ff")


def test_a_switch_at_a_host_of_its_own_name() -> None:
    topo = Topology.preset("compose")
    assert topo.switch("p1t1-0").control == Control("p1t1-0:9559", 7)


def test_overrides() -> None:
    topo = small(
        extra="""\
overrides:
  switches:
    p0t1-0: {address: "[::1]:9560", device_id: 1}
    p0t1-1: {address: 127.0.0.1:9561}
  links:
  - between: [p0t1-0, p0t0-1]
    rate_gbps: 50
    ports: {p0t0-1: 17, p0t1-0: 9}
  - between: [nic1, p1t0-0]
    delay_ns: 0
    ports: {p1t0-0: 1}
  - between: [nic0, p1t0-0]
    ports: {p1t0-0: 2}
"""
    )
    assert topo.switch("p0t1-0").control == Control("[::1]:9560", 1)
    assert topo.switch("p0t1-1").control == Control("127.0.0.1:9561", 4)
    links = {(link.a.node, link.b.node): link for link in topo.links()}
    changed = links["p0t0-1", "p0t1-0"]
    assert changed == LinkSpec(End("p0t0-1", 17), End("p0t1-0", 9), "fabric", 0, 50.0, 700)
    assert links["nic1", "p1t0-0"] == LinkSpec(End("nic1", 1), End("p1t0-0", 1), "nic", 1, 100.0, 0)
    assert links["nic0", "p1t0-0"] == LinkSpec(End("nic0", 1), End("p1t0-0", 2), "nic", 1, 100.0, 500)
    assert links["p0t0-1", "p0t1-1"].a == End("p0t0-1", 4)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("schema: 1", "schema: 2", "small.yaml:1: schema: input should be 1, got 2"),
        ("planes: 2", "plains: 2", "small.yaml:3: plains: unknown key"),
        ("planes: 2\n", "\n", "small.yaml:1: planes: this key is missing"),
        (
            "planes: 2",
            "planes: 9",
            "small.yaml:3: planes: does not fit: a uSID has 3 bits for the plane, so at most 8, got 9",
        ),
        ("planes: 2", "planes: 0", "small.yaml:3: planes: input should be greater than or equal to 1, got 0"),
        (
            "rows: 2",
            "rows: 1025",
            "small.yaml:4: rows: does not fit: a uSID has 10 bits for the index, so at most 1024, got 1025",
        ),
        (
            "t1_per_plane: 2",
            "t1_per_plane: 2000",
            "small.yaml:5: t1_per_plane: does not fit: a uSID has 10 bits for the index, so at most 1024, got 2000",
        ),
        (
            "nics_per_row: 2",
            "nics_per_row: 2.0",
            "small.yaml:6: nics_per_row: input should be a valid integer, got 2.0",
        ),
        (
            "fcbb:bbbb::/32",
            "fcbb:bbbb::/48",
            'small.yaml:7: block: must be a /32: uSIDs are F3216 (RFC 9800), got "fcbb:bbbb::/48"',
        ),
        (
            "fcbb:bbbb::/32",
            "fcbb:bbbb::1/32",
            'small.yaml:7: block: fcbb:bbbb::1/32 has host bits set, got "fcbb:bbbb::1/32"',
        ),
        (
            "fcbb:bbbb::/32",
            "ff05::/32",
            'small.yaml:7: block: must be unicast and not link-local (RFC 4291), got "ff05::/32"',
        ),
        (
            "fd00:6d72:6300::/48",
            "fd00:6d72:6300::/56",
            'small.yaml:8: nic_prefix: must be a /48: 16 bits number the rows, a /64 each, got "fd00:6d72:6300::/56"',
        ),
        (
            "fd00:6d72:6301::/48",
            "fd00:6d72:6301::/120",
            "small.yaml:9: switch_prefix: must be a /1 to /112: a switch's uSID ends its address, "
            'got "fd00:6d72:6301::/120"',
        ),
        (
            "fd00:6d72:6301::/48",
            "fd00:6d72::/32",
            "small.yaml:9: switch_prefix: fd00:6d72::/32 overlaps nic_prefix, fd00:6d72:6300::/48",
        ),
        (
            "fd00:6d72:6300::/48",
            "fcbb:bbbb:2::/48",
            "small.yaml:8: nic_prefix: fcbb:bbbb:2::/48 overlaps block, fcbb:bbbb::/32",
        ),
        (
            "nic: {rate_gbps: 100",
            "nic: {rate_gps: 100",
            "small.yaml:11: links.nic.rate_gps: unknown key",
        ),
        (
            "delay_ns: 700",
            "delay_ns: -1",
            "small.yaml:12: links.fabric.delay_ns: input should be greater than or equal to 0, got -1",
        ),
        (
            "127.0.0.1:9559",
            "localhost",
            'small.yaml:14: control.address: must be HOST:PORT, an IPv6 host in brackets, got "localhost"',
        ),
        (
            "127.0.0.1:9559",
            '"{host}:9559"',
            'small.yaml:14: control.address: must be HOST:PORT, an IPv6 host in brackets, got "{host}:9559"',
        ),
        (
            "127.0.0.1:9559",
            "host:65536",
            'small.yaml:14: control.address: must be HOST:PORT, an IPv6 host in brackets, got "host:65536"',
        ),
    ],
)
def test_a_wrong_value_is_told_with_its_place(old: str, new: str, message: str) -> None:
    with pytest.raises(FileError) as caught:
        small({old: new})
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            "  switches:\n    p2t0-0: {device_id: 9}\n",
            "small.yaml:17: overrides.switches.p2t0-0: no switch 'p2t0-0' in small: p0..1, t0-0..1, t1-0..1",
        ),
        (
            "  switches:\n    p0t0-1: {device_id: 1}\n",
            "small.yaml:17: overrides.switches.p0t0-1: 127.0.0.1:9559 device_id 1 is already p0t0-0's",
        ),
        (
            "  switches:\n    p0t0-0: {device_id: 8}\n",
            "small.yaml:17: overrides.switches.p0t0-0: 127.0.0.1:9559 device_id 8 is already p1t1-1's",
        ),
        (
            "  switches:\n    p0t0-0: {device_id: 0}\n",
            "small.yaml:17: overrides.switches.p0t0-0.device_id: input should be greater than or equal to 1, got 0",
        ),
        (
            "  switches:\n    p0t0-0: {device_id: 9}\n    p0t0-0: {device_id: 10}\n",
            "small.yaml:18: overrides.switches.p0t0-0: stands already on line 17",
        ),
        (
            "  links:\n  - between: [p0t0-0, p0t1-2]\n",
            "small.yaml:17: overrides.links[0].between: no switch 'p0t1-2' in small: p0..1, t0-0..1, t1-0..1",
        ),
        (
            "  links:\n  - between: [nic9, p0t0-0]\n",
            "small.yaml:17: overrides.links[0].between: no NIC 'nic9' in small: nic0..3",
        ),
        (
            "  links:\n  - between: [p0t0-0, p1t1-0]\n",
            "small.yaml:17: overrides.links[0].between: p0t0-0 and p1t1-0 have no link",
        ),
        (
            "  links:\n  - between: [p0t0-0, p0t0-1]\n",
            "small.yaml:17: overrides.links[0].between: p0t0-0 and p0t0-1 have no link",
        ),
        (
            "  links:\n  - between: [nic0, p0t0-1]\n",
            "small.yaml:17: overrides.links[0].between: nic0 and p0t0-1 have no link",
        ),
        (
            "  links:\n  - between: [nic0, nic1]\n",
            "small.yaml:17: overrides.links[0].between: nic0 and nic1 have no link",
        ),
        (
            "  links:\n  - between: [p0t0-0, p0t1-0]\n  - between: [p0t1-0, p0t0-0]\n    delay_ns: 9\n",
            "small.yaml:18: overrides.links[1].between: the link p0t1-0 - p0t0-0 stands already in "
            "overrides.links[0]; there are no parallel links",
        ),
        (
            "  links:\n  - between: [p0t0-0, p0t1-0]\n    ports:\n      p0t0-0: 1\n",
            "small.yaml:19: overrides.links[0].ports.p0t0-0: port 1 of p0t0-0 is already the one to nic0",
        ),
        (
            "  links:\n  - between: [nic0, p0t0-0]\n    ports:\n      p0t0-0: 4\n",
            "small.yaml:19: overrides.links[0].ports.p0t0-0: port 4 of p0t0-0 is already the one to p0t1-1",
        ),
        (
            "  links:\n  - between: [p0t0-1, p0t1-0]\n    ports:\n      p0t1-0: 1\n",
            "small.yaml:19: overrides.links[0].ports.p0t1-0: port 1 of p0t1-0 is already the one to p0t0-0",
        ),
        (
            "  links:\n  - between: [p0t0-0, p0t1-0]\n    ports:\n      p0t0-1: 7\n",
            "small.yaml:19: overrides.links[0].ports.p0t0-1: is no end of the link p0t0-0 - p0t1-0",
        ),
        (
            "  links:\n  - between: [nic0, p0t0-0]\n    ports:\n      nic0: 7\n",
            "small.yaml:19: overrides.links[0].ports.nic0: a NIC's port is numbered by its plane",
        ),
        (
            "  links:\n  - between: [nic0, p0t0-0]\n    ports:\n      p0t0-0: 511\n",
            "small.yaml:19: overrides.links[0].ports.p0t0-0: does not fit: 510 is a v1model switch's CPU port and "
            "511 means drop, so at most 509, got 511",
        ),
        (
            "  links:\n  - between: [nic0, p0t0-0]\n    queues:\n      data_packets: 30\n",
            "small.yaml:18: overrides.links[0].queues.mark_to: 38 is not below data_packets, 30: "
            "trims would come before marks",
        ),
        (
            "  links:\n  - between: [nic0, p0t0-0]\n    queues:\n      mark_to: 9\n",
            "small.yaml:18: overrides.links[0].queues.mark_from: 10 is above mark_to, 9",
        ),
    ],
)
def test_a_wrong_override_is_told_with_its_place(overrides: str, message: str) -> None:
    with pytest.raises(FileError) as caught:
        small(extra="overrides:\n" + overrides)
    assert str(caught.value) == message


SETTINGS = [
    ("mode: hash", "small.yaml:15: mode: input should be 'srv6' or 'ecmp', got \"hash\""),
    ("guard: 1", "small.yaml:15: guard: input should be a valid boolean, got 1"),
    (
        "queues: {data_packets: 64}",
        "small.yaml:15: queues.data_packets: does not fit: BMv2 loses packets silently in a queue of 64 or more, so at "
        "most 63, got 64",
    ),
    (
        "queues: {trim_packets: 64}",
        "small.yaml:15: queues.trim_packets: does not fit: BMv2 loses packets silently in a queue of 64 or more, so at "
        "most 63, got 64",
    ),
    (
        "queues: {trim_packets: 0}",
        "small.yaml:15: queues.trim_packets: input should be greater than or equal to 1, got 0",
    ),
    ("queues: {mark_from: 39}", "small.yaml:15: queues.mark_from: 39 is above mark_to, 38"),
    (
        "queues:\n  mark_to: 48",
        "small.yaml:16: queues.mark_to: 48 is not below data_packets, 48: trims would come before marks",
    ),
    ("queues: {marks: 1}", "small.yaml:15: queues.marks: unknown key"),
    (
        "trim_size: 127",
        "small.yaml:15: trim_size: 127 bytes would cut transport headers off: at least 128 in srv6 mode",
    ),
    (
        "mode: ecmp\ntrim_size: 81",
        "small.yaml:16: trim_size: 81 bytes would cut transport headers off: at least 82 in ecmp mode",
    ),
    (
        "trim_size: 65536",
        "small.yaml:15: trim_size: does not fit: it is cut from a packet with a 16-bit length, so at most 65535, "
        "got 65536",
    ),
    (
        "dscp: {control: 64}",
        "small.yaml:15: dscp.control: does not fit: a DSCP has 6 bits, so at most 63, got 64",
    ),
    ("dscp: {control: 4}", "small.yaml:15: dscp.control: 4 is already the DSCP of trimmable"),
    ("dscp: {no_trim: 46}", "small.yaml:15: dscp.no_trim: 46 is already the DSCP of control"),
    (
        "dscp:\n  trimmed: 20\n  trimmed_lasthop: 20",
        "small.yaml:17: dscp.trimmed_lasthop: 20 is already the DSCP of trimmed",
    ),
    ("dscp: {controls: 1}", "small.yaml:15: dscp.controls: unknown key"),
]


@pytest.mark.parametrize(("text", "message"), SETTINGS)
def test_a_wrong_setting_is_told_with_its_place(text: str, message: str) -> None:
    with pytest.raises(FileError) as caught:
        small(extra=text + "\n")
    assert str(caught.value) == message


def test_settings_at_their_limits() -> None:
    topo = small(
        extra="mode: ecmp\ntrim_size: 82\nqueues: {data_packets: 63, trim_packets: 63, mark_from: 0, mark_to: 62}\n"
    )
    assert topo.mode == "ecmp"
    assert topo.model.trim_size == 82


@pytest.mark.parametrize("name", preset_names())
def test_the_defaults_that_a_preset_tells_of_are_the_defaults(name: str) -> None:
    text = preset_text(name)
    told = "".join(
        line.removeprefix("# ") + "\n"
        for line in text.partition("# Defaults:\n")[2].splitlines()
        if "tenants" not in line
    )
    with_defaults = Topology(Document.parse(text + told, name)).model
    assert with_defaults == Topology.preset(name).model
    if told:
        assert {"mode", "guard", "queues", "trim_size", "dscp"} < with_defaults.model_fields_set


def test_tenants() -> None:
    topo = small(
        {
            "block: fcbb:bbbb::/32\n": """\
tenants:
- {name: blue, block: "fcbb:1::/32", nics: [nic4, nic1..2, nic3]}
- {name: red, block: "fcbb:2::/32", nics: [nic0, nic5]}
""",
            "nics_per_row: 2": "nics_per_row: 3",
        }
    )
    blue, red = topo.tenants
    assert blue == Tenant("blue", IPv6Network("fcbb:1::/32"), (range(1, 5),), frozenset({0, 1}))
    assert red == Tenant("red", IPv6Network("fcbb:2::/32"), (range(1), range(5, 6)), frozenset({0, 1}))
    assert [nic.tenant for nic in topo.nics()] == ["red", "blue", "blue", "blue", "blue", "red"]
    assert topo.tenant("red") == red
    with pytest.raises(UnknownNodeError, match=r"^no tenant 'default' in small: blue, red$"):
        topo.tenant("default")
    assert blue.usid_prefix(0x2001) == "fcbb:1:2001::/48"


def test_the_prefixes_of_a_tenants_nics() -> None:
    """Whole rows are held by few prefixes, parts of rows by those of the addresses in one plane."""
    tenants = "tenants:\n- {name: a, block: 'fcbb:1::/32', nics: [nic2..12]}\n"
    tenants += "- {name: b, block: 'fcbb:2::/32', nics: [nic0..1, nic13..39]}\n"
    topo = small({"block: fcbb:bbbb::/32\n": tenants, "rows: 2": "rows: 10", "nics_per_row: 2": "nics_per_row: 4"})
    a, b = topo.tenants
    assert list(topo.nic_prefixes(a, 1)) == [
        "fd00:6d72:6300:0:1::2/127",  # nic2..3 of row 0
        "fd00:6d72:6300:1::/64",  # rows 1 and 2: nic4..11
        "fd00:6d72:6300:2::/64",
        "fd00:6d72:6300:3:1::/128",  # nic12
    ]
    assert list(topo.nic_prefixes(b, 0)) == [
        "fd00:6d72:6300::/127",
        "fd00:6d72:6300:3::1/128",
        "fd00:6d72:6300:3::2/127",
        "fd00:6d72:6300:4::/62",  # rows 4 to 7
        "fd00:6d72:6300:8::/63",
    ]
    assert list(Topology.preset("paper-8x100").nic_prefixes(Topology.preset("paper-8x100").tenants[0], 7)) == [
        "fd00:6d72:6300::/55"
    ]


@pytest.mark.parametrize(
    ("tenants", "message"),
    [
        ("", "small.yaml:1: block: this key is missing, or `tenants` with a block each"),
        (
            "block: fcbb:bbbb::/32\ntenants: [{name: a, block: 'fcaa::/32', nics: [nic0..3]}]",
            "small.yaml:7: block: each of the tenants has a block of its own, there is no other",
        ),
        ("tenants: []", "small.yaml:7: tenants: list should have at least 1 item after validation, not 0"),
        (
            "tenants:\n- {name: A b, block: 'fcaa::/32', nics: [nic0]}",
            "small.yaml:8: tenants[0].name: string should match pattern '^[a-z0-9][a-z0-9-]*$', got \"A b\"",
        ),
        (
            "tenants:\n- {name: a, block: 'fcaa::/48', nics: [nic0]}",
            'small.yaml:8: tenants[0].block: must be a /32: uSIDs are F3216 (RFC 9800), got "fcaa::/48"',
        ),
        (
            "tenants:\n- {name: a, block: 'fcaa::/32', nics: [nic0]}\n- {name: a, block: 'fcab::/32', nics: [nic1..3]}",
            "small.yaml:9: tenants[1].name: tenants[0] is already 'a'",
        ),
        (
            "tenants:\n- {name: a, block: 'fcaa::/32', nics: [nic0]}\n- {name: b, block: 'fcaa::/32', nics: [nic1..3]}",
            "small.yaml:9: tenants[1].block: fcaa::/32 overlaps tenants[0].block, fcaa::/32",
        ),
        (
            "tenants:\n- {name: a, block: 'fd00:6d72::/32', nics: [nic0..3]}",
            "small.yaml:9: nic_prefix: fd00:6d72:6300::/48 overlaps tenants[0].block, fd00:6d72::/32",
        ),
        (
            "tenants:\n- {name: a, block: 'fcaa::/32', nics: [p0t0-0]}",
            "small.yaml:8: tenants[0].nics[0]: must be a NIC such as nic3, or a range such as nic0..3, got 'p0t0-0'",
        ),
        (
            "tenants:\n- {name: a, block: 'fcaa::/32', nics: [nic0, nic3..1]}",
            "small.yaml:8: tenants[0].nics[1]: nic3..1 is empty: its first NIC comes after its last",
        ),
        (
            "tenants:\n- {name: a, block: 'fcaa::/32', nics: [nic0..4]}",
            "small.yaml:8: tenants[0].nics[0]: no NIC 'nic4' in small: nic0..3",
        ),
        (
            "tenants:\n- {name: a, block: 'fcaa::/32', nics: [nic2..3]}\n- name: b\n  block: 'fcab::/32'\n"
            "  nics:\n  - nic0..1\n  - nic3",
            "small.yaml:13: tenants[1].nics[1]: nic3 is already a's, by tenants[0].nics[0]",
        ),
        (
            "tenants:\n- {name: a, block: 'fcaa::/32', nics: [nic0..1, nic1..3]}",
            "small.yaml:8: tenants[0].nics[1]: nic1 is already a's, by tenants[0].nics[0]",
        ),
        (
            "tenants:\n- {name: a, block: 'fcaa::/32', nics: [nic0, nic2..3]}",
            "small.yaml:7: tenants: nic1 is no tenant's",
        ),
        ("tenants:\n- {name: a, block: 'fcaa::/32', nics: [nic0..2]}", "small.yaml:7: tenants: nic3 is no tenant's"),
    ],
)
def test_wrong_tenants_are_told_with_their_place(tenants: str, message: str) -> None:
    with pytest.raises(FileError) as caught:
        small({"block: fcbb:bbbb::/32": tenants})
    assert str(caught.value) == message


def test_too_many_ports_for_a_v1model_switch() -> None:
    check_pushable(small({"t1_per_plane: 2": "t1_per_plane: 507"}))
    with pytest.raises(FileError) as caught:
        check_pushable(small({"t1_per_plane: 2": "t1_per_plane: 508"}))
    assert str(caught.value) == (
        "small.yaml:5: t1_per_plane: a T0 has 510 ports, a v1model switch at most 509: it can be planned, not pushed"
    )
    with pytest.raises(FileError, match=r"^small\.yaml:4: rows: a T1 has 510 ports, "):
        check_pushable(small({"rows: 2": "rows: 510"}))


def test_presets_are_files_that_load_reads(tmp_path: Path) -> None:
    path = tmp_path / "demo.yaml"
    path.write_text(preset_text("demo"))
    assert list(Topology.load(path).links()) == list(Topology.preset("demo").links())
    with pytest.raises(KeyError):
        preset_text("none")
