"""Any schedule of faults that leaves one path working ends with every byte right and every completion there once."""

from __future__ import annotations

import random
from dataclasses import dataclass

from hypothesis import example, given, settings
from hypothesis import strategies as st

from nic_model.ev import EvProfile
from nic_model.packet import Frame, MalformedError, parse
from nic_model.paths import srv6_ev
from nic_model.verbs import QPState, WCStatus
from tests.nic_model.back_to_back import PLANES, UPLINKS, BackToBack
from tests.nic_model.test_signals import marked, trimmed

SPARED = (0, 0)
"""The path that always works: its packets are delayed, doubled, marked and trimmed, and some are lost, but not all."""
PATHS = [(plane, uplink) for plane in range(PLANES) for uplink in range(UPLINKS)]
LIFETIME = 133 * 1024 << 7
TRIMMED, TRIMMED_LASTHOP = 12, 16
KINDS = ("loss", "trim", "corrupt", "duplicate", "reorder", "mark")


@dataclass(frozen=True)
class Fault:
    """From `start` for `duration` ns packets on `paths`, of either direction or both, suffer with this probability."""

    kind: str
    start: int
    duration: int
    rate: float
    paths: frozenset[tuple[int, int]]
    direction: int | None


@dataclass(frozen=True)
class PortFault:
    """A port of a side goes down, and comes back after `duration` ns. Port 0 of either side stays up."""

    side: int
    plane: int
    start: int
    duration: int


@st.composite
def faults(draw: st.DrawFn) -> Fault:
    kind = draw(st.sampled_from(KINDS))
    paths = draw(st.frozensets(st.sampled_from(PATHS), min_size=1))
    rate = draw(st.sampled_from([0.01, 0.2, 1.0]))
    if rate == 1.0 and kind in ("loss", "corrupt"):
        paths -= {SPARED}
    return Fault(
        kind,
        start=draw(st.integers(0, 300_000)),
        duration=draw(st.sampled_from([5_000, 50_000, 400_000])),
        rate=rate,
        paths=paths,
        direction=draw(st.sampled_from([0, 1, None])),
    )


PORT_FAULTS = st.builds(
    PortFault,
    side=st.integers(0, 1),
    plane=st.integers(1, PLANES - 1),
    start=st.integers(0, 300_000),
    duration=st.integers(1_000, 400_000),
)
WORK = st.lists(st.tuples(st.integers(0, 40_000), st.booleans()), min_size=1, max_size=10)


class Weather:
    """What becomes of each packet."""

    def __init__(self, happens: list[Fault], dead: frozenset[tuple[int, int]], seed: int) -> None:
        self.happens = happens
        self.dead = dead
        self.rng = random.Random(seed)
        self.delays = {path: self.rng.randrange(500, 4_000) for path in PATHS}
        self.pair: BackToBack | None = None

    def __call__(self, sender: int, plane: int, frame: Frame, now: int) -> tuple[int, Frame] | None:
        packet = parse(frame)
        path = (plane, packet.envelope.ev >> 19 & 0x3FF)
        if path in self.dead:
            return None
        delay = self.delays[path]
        for fault in self.happens:
            if fault.direction not in (None, sender) or path not in fault.paths:
                continue
            if not fault.start <= now < fault.start + fault.duration or self.rng.random() >= fault.rate:
                continue
            match fault.kind:
                case "loss":
                    return None
                case "corrupt":
                    frame = self._flip_bits(frame)
                case "trim" if len(frame[1]) > 256:
                    frame = trimmed(frame, self.rng.choice((TRIMMED, TRIMMED_LASTHOP)))
                case "mark" if frame[1]:
                    frame = marked(frame)
                case "reorder":
                    delay += self.rng.randrange(20_000)
                case "duplicate":
                    assert self.pair is not None
                    self.pair.arrive(delay + self.rng.randrange(20_000), sender, plane, frame)
        return delay, frame

    def _flip_bits(self, frame: Frame) -> Frame:
        """Anything behind the outer header, which the ICRC covers or the parser checks."""
        head = bytearray(frame[0])
        for _ in range(self.rng.randrange(1, 4)):
            bit = self.rng.randrange(8 * 62, 8 * len(head))
            head[bit >> 3] ^= 1 << (bit & 7)
        flipped = bytes(head), frame[1]
        try:
            parse(flipped)
        except MalformedError:
            return flipped
        return frame  # what the ICRC does not cover: flow label, hop limit


def run(
    work: list[tuple[int, bool]],
    weather: Weather,
    ports: list[PortFault],
    seed: int,
    sender: int = 0,
    window: int = 60_000,
) -> tuple[BackToBack, bytes, bytes]:
    pair = BackToBack(weather, seed=seed, window=window, profile=EvProfile(24, 8))
    weather.pair = pair
    total = max(1, sum(length for length, _ in work))
    source, target = pair.region(sender, total), pair.region(1 - sender, total)
    source.write(random.Random(seed).randbytes(total))
    pair.post_receives(1 - sender, len(work))
    offset = 0
    for index, (length, with_imm) in enumerate(work):
        imm = index if with_imm else None
        pair.write(source, target, wr_id=index, side=sender, offset=offset, length=length, imm=imm)
        offset += length
    changes = [(fault.start, fault.side, fault.plane, False) for fault in ports]
    changes += [(fault.start + fault.duration, fault.side, fault.plane, True) for fault in ports]
    for at, side, plane, up in sorted(changes):
        pair.run(until=at)
        pair.now = at
        pair.sides[side].nic.port_status(plane, up, at)
    pair.run()
    return pair, bytes(source.buf[:offset]), bytes(target.buf[:offset])


@settings(max_examples=150, deadline=None)
@given(
    work=WORK,
    happens=st.lists(faults(), max_size=5),
    ports=st.lists(PORT_FAULTS, max_size=3, unique_by=lambda fault: (fault.side, fault.plane)),
    dead=st.frozensets(st.sampled_from(PATHS), max_size=len(PATHS)),
    seed=st.integers(0, 1 << 32),
    sender=st.integers(0, 1),
)
def test_one_working_path_is_enough(
    work: list[tuple[int, bool]],
    happens: list[Fault],
    ports: list[PortFault],
    dead: frozenset[tuple[int, int]],
    seed: int,
    sender: int,
) -> None:
    weather = Weather(happens, dead - {SPARED}, seed)
    pair, sent, received = run(work, weather, ports, seed, sender)
    assert received == sent
    assert [(done.wr_id, done.status) for done in pair.sides[sender].completions()] == [
        (index, WCStatus.SUCCESS) for index in range(len(work))
    ]
    assert [done.imm_data for done in pair.sides[1 - sender].completions()] == [
        index for index, (_, with_imm) in enumerate(work) if with_imm
    ]
    requester, responder = pair.sides[sender].qp.core.requester, pair.sides[1 - sender].qp.core.responder
    assert requester is not None and responder is not None
    assert requester.in_flight == 0 and requester.deadline is None
    # Nothing is kept of what is done.
    assert not requester._records and not requester._lateness._due and not requester._lateness.young
    assert not responder._messages and not responder._arrived


@settings(max_examples=30, deadline=None)
@given(work=WORK.filter(lambda work: sum(length for length, _ in work) > 20_000), seed=st.integers(0, 1 << 32))
@example(work=[(40_000, True)], seed=0)
def test_without_a_working_path_it_ends_in_bounded_time(work: list[tuple[int, bool]], seed: int) -> None:
    stop = 5_000
    weather = Weather([], frozenset(), seed)

    def nothing_after_stop(sender: int, plane: int, frame: Frame, now: int) -> tuple[int, Frame] | None:
        return None if now > stop else weather(sender, plane, frame, now)

    pair = BackToBack(nothing_after_stop, seed=seed, window=10_000, profile=EvProfile(24, 8))
    total = sum(length for length, _ in work)
    source, target = pair.region(0, total), pair.region(1, total)
    pair.post_receives(1, len(work))
    for index, (length, with_imm) in enumerate(work):
        pair.write(source, target, wr_id=index, length=length, imm=index if with_imm else None)
    pair.run()
    statuses = [done.status for done in pair.sides[0].completions()]
    assert len(statuses) == len(work)
    failed = statuses.index(WCStatus.RETRY_EXC_ERR)
    assert set(statuses[:failed]) <= {WCStatus.SUCCESS} and set(statuses[failed + 1 :]) <= {WCStatus.WR_FLUSH_ERR}
    assert pair.sides[0].qp.qp_state is QPState.ERR
    assert pair.now <= stop + 10_000 + LIFETIME


def test_srv6_paths_are_what_the_weather_takes_them_for() -> None:
    assert srv6_ev(2, 5) >> 29 == 2 and srv6_ev(2, 5) >> 19 & 0x3FF == 5
