"""ECMP groups on both targets: all members, one per flow, by the fields that count and no others, seeded per switch."""

from __future__ import annotations

from collections import Counter

import pytest
from scapy.layers.inet import UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from controller.plan import Entry, Member
from tests.dataplane.harness import (
    HOST_MAC,
    ROUTER_MAC,
    TRIMMABLE,
    TRIMMED,
    Switch,
    basic,
    fabric_role,
    forwarded,
    queue_limits,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

GROUP = 1
MEMBERS = (1, 2, 3, 4)
SEED = 0x1234ABCD
PREFIX = "fd00:9::/64"
BURST = 50
"""Frames sent at once: BMv2 drops silently what a queue of 64 does not hold."""


def group_route(prefix: str = PREFIX, seed: int = SEED, group: int = GROUP) -> Entry:
    return Entry("fib", (("dst_addr", prefix),), "route_to_group", (("group_id", group), ("seed", seed)))


def group(ports: tuple[int, ...], weights: tuple[int, ...] | None = None, group_id: int = GROUP) -> Entry:
    members = tuple(
        Member("set_next_hop", (("next_hop_id", port + 1),), weight)
        for port, weight in zip(ports, weights or (1,) * len(ports), strict=True)
    )
    return Entry("ecmp_group", (("group_id", group_id),), "", (), members)


def entries(seed: int = SEED, ports: tuple[int, ...] = MEMBERS) -> list[Entry]:
    return [*basic({}), group(ports), group_route(seed=seed)]


def flow(
    n: int = 0,
    *,
    src: str = "fd00::1",
    dst: str = "fd00:9::2",
    label: int = 0,
    sport: int = 1000,
    dport: int = 4791,
    hlim: int = 64,
    tc: int = 0,
    inner: bool = False,
    payload: int = 20,
) -> bytes:
    """A packet of flow `n`: n is in the flow label's and the source port's low bits, as an EV is."""
    udp = UDP(sport=sport ^ n & 0xFFFF, dport=dport, chksum=1) / Raw(bytes(payload))
    below = IPv6(src=src, dst="fd00:9::7") / udp if inner else udp
    header = IPv6(src=src, dst=dst, fl=label ^ n & 0xFFFFF, hlim=hlim, tc=tc)
    return bytes(Ether(dst=ROUTER_MAC, src=HOST_MAC) / header / below)


async def ports_of(switch: Switch, frames: list[bytes]) -> list[int]:
    """The port that each frame left through, each frame as it must be then."""
    chosen: dict[bytes, int] = {}
    for start in range(0, len(frames), BURST):
        for port, out in await switch.exchange(*frames[start : start + BURST]):
            chosen[out[12:21] + out[22:]] = port
            assert out[:12] == forwarded(out, port)[:12]
    return [chosen[one[12:21] + one[22:]] for one in frames]


async def test_all_members_are_used_about_equally(switch: Switch) -> None:
    await switch.program(entries())
    uses = Counter(await ports_of(switch, [flow(n) for n in range(1000)]))
    assert set(uses) == set(MEMBERS)
    assert all(200 <= count <= 300 for count in uses.values())


async def test_a_flow_keeps_its_member(switch: Switch) -> None:
    await switch.program(entries())
    first = await ports_of(switch, [flow(n) for n in range(20)])
    for _ in range(5):
        assert await ports_of(switch, [flow(n) for n in range(20)]) == first


@pytest.mark.parametrize(
    "field",
    [
        {"src": "fd00::77"},
        {"dst": "fd00:9::77"},
        {"label": 0x80000},
        {"sport": 0xF000},
        {"dport": 4792},
        {"inner": True},
    ],
    ids=lambda field: next(iter(field)),
)
async def test_fields_that_count(switch: Switch, field: dict[str, object]) -> None:
    await switch.program(entries())
    before = await ports_of(switch, [flow(n) for n in range(64)])
    after = await ports_of(switch, [flow(n, **field) for n in range(64)])  # type: ignore[arg-type]
    changed = sum(a != b for a, b in zip(before, after, strict=True))
    assert changed > 64 * 0.5  # three in four, if the choice is random


@pytest.mark.parametrize("field", [{"hlim": 9}, {"tc": 0xB8}, {"tc": 2}, {"payload": 300}], ids=str)
async def test_fields_that_do_not_count(switch: Switch, field: dict[str, int]) -> None:
    await switch.program(entries())
    before = await ports_of(switch, [flow(n) for n in range(32)])
    assert await ports_of(switch, [flow(n, **field) for n in range(32)]) == before  # type: ignore[arg-type]


async def test_a_seed_really_changes_the_choice(switch: Switch) -> None:
    """Flows that share a member at one switch must not all share one at the next."""
    await switch.program(entries(seed=1))
    first = await ports_of(switch, [flow(n) for n in range(400)])
    together = [n for n, port in enumerate(first) if port == first[0]]
    await switch.program(entries(seed=2))
    spread = Counter(await ports_of(switch, [flow(n) for n in together]))
    assert set(spread) == set(MEMBERS) and max(spread.values()) < 0.45 * len(together)


async def test_weights(switch: Switch) -> None:
    await switch.program([*basic({}), group((1, 2), (3, 1)), group_route()])
    uses = Counter(await ports_of(switch, [flow(n) for n in range(800)]))
    assert uses[1] / 800 == pytest.approx(0.75, abs=0.06)


async def test_one_member_gets_all(switch: Switch) -> None:
    await switch.program(entries(ports=(3,)))
    assert set(await ports_of(switch, [flow(n) for n in range(50)])) == {3}


async def test_a_group_that_is_not_there_is_a_counted_drop(switch: Switch) -> None:
    await switch.program([*basic({}), group_route(group=9)])
    assert await switch.exchange(flow()) == []
    assert list(await switch.drops()) == ["no_next_hop"]


async def test_a_un_path_may_end_in_a_group_by_its_shifted_address(switch: Switch) -> None:
    routes = [*basic({}), group(MEMBERS), group_route("fcbb:bbbb:2::/48")]
    await switch.program(routes)
    shifted = await switch.exchange(flow(dst="fcbb:bbbb:1:2::"))
    direct = await switch.exchange(flow(dst="fcbb:bbbb:2::"))
    assert shifted == direct


async def test_a_trimmed_packet_takes_its_twins_member(switch: Switch) -> None:
    frames = [flow(n, tc=TRIMMABLE << 2 | 2, payload=900) for n in range(40)]
    await switch.program(entries())
    whole = await ports_of(switch, frames)
    limits = [entry for port in MEMBERS for entry in (queue_limits(port, 0, 60), fabric_role(port))]
    await switch.program([*entries(), *limits])
    trimmed = {out[54:58] + out[14:18]: port for port, out in await switch.exchange(*frames)}
    dscp = (TRIMMED ^ TRIMMABLE) << 6
    for one, port in zip(frames, whole, strict=True):
        word = int.from_bytes(one[14:18], "big") ^ dscp << 16
        assert trimmed[one[54:58] + word.to_bytes(4, "big")] == port
    assert (await switch.packets("port_trims")).keys() == set(whole)
