"""Plays a case against a device: lets time pass, hands over what arrives, and holds what comes out against the case."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Protocol

from tests.cases import bench
from tests.cases.arrivals import frames
from tests.cases.expectations import Sent, Wanted, read, wanted
from tests.cases.names import CaseError, Names, pattern, piece, region_slice, span
from tests.cases.schema import Case, Completion, Expectation, Post, Spread, Step, Then
from tests.cases.wire import WireError

_STALLED = 10_000
"""A device whose timers run so often at one moment never gets past it."""


@dataclass(frozen=True, slots=True)
class Done:
    """A work completion of the device, with its status by the name of IBV_WC_*."""

    wr_id: int
    status: str
    byte_len: int
    imm: int | None


class DeviceUnderTest(Protocol):
    """One NIC with one QP in RTS, set up as a case says. Times are in ns of the case's clock, planes count from 0."""

    def post_send(
        self, wr_id: int, region: str, offset: int, length: int, remote_addr: int, rkey: int, imm: int | None, now: int
    ) -> None:
        """The application posts a WRITE of `length` bytes of a region, with an immediate unless that is None."""
        ...

    def post_recv(self, wr_id: int) -> None:
        """The application posts a receive for an immediate."""
        ...

    def deregister(self, region: str) -> None:
        """The application deregisters a memory region."""
        ...

    def port_status(self, plane: int, up: bool, now: int) -> None:
        """The link of a port goes down or comes up."""
        ...

    def deny(self, rules: list[tuple[int, int | None]], now: int) -> None:
        """The administrator's denylist is now this: planes, or (plane, uplink)."""
        ...

    def host_penalty(self, value: int) -> None:
        """The host asks for so much back-pressure, 0..127."""
        ...

    def receive(self, port: int, frame: bytes, now: int) -> None:
        """A frame arrives."""
        ...

    def transmitted(self, now: int) -> list[tuple[int, bytes]]:
        """(port, frame) of all that leaves now, in order; no port is ever busy."""
        ...

    def next_deadline(self) -> int | None:
        """When the device next wants `poll`."""
        ...

    def poll(self, now: int) -> None:
        """Time has passed."""
        ...

    def completions(self) -> tuple[list[Done], list[Done]]:
        """Send and receive completions since the last call."""
        ...

    def memory(self, region: str) -> bytes:
        """All bytes of a region."""
        ...

    def qp_state(self) -> str:
        """RTS or ERR."""
        ...

    def ev_state(self, value: int) -> str:
        """GOOD, SKIP, ASSUMED_BAD or DENIED."""
        ...

    def counter(self, name: str) -> int:
        """A counter of the QP, by its name in README.md."""
        ...

    def refused(self) -> dict[str, int]:
        """Frames that were not taken, by reason; no zeros."""
        ...


class CaseFailedError(AssertionError):
    """The device does not do what the case says. One text: case, step, what was expected, what came."""


@dataclass
class Player:
    """One run of one case."""

    case: Case
    device: DeviceUnderTest
    now: int = 0
    names: Names = field(init=False)
    _posts: dict[int, Post] = field(default_factory=dict)
    _sent: list[Sent] = field(default_factory=list)
    """Not yet matched by an expectation."""
    _step: int = 0
    _polls: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.names = Names(self.case)

    def play(self) -> None:
        """All steps. Raises CaseFailedError."""
        for number, step in enumerate(self.case.steps):
            self._step = number
            self._advance(self.now + (step.after or 0) if step.at is None else step.at)
            self._act(step)
            self._collect()
            if step.wait is not None:
                self._wait(step.wait.packet, self.now + step.wait.within)
            self._expect(step)
            self._then(step.then)
        self._equal("completions nobody expected", self.device.completions(), ([], []))
        self._equal("refused", self.device.refused(), self.case.refused)

    # ---- time and actions ----------------------------------------------------------------------------

    def _advance(self, until: int) -> None:
        while (deadline := self.device.next_deadline()) is not None and deadline <= until:
            self._poll(deadline)
        self.now = max(self.now, until)

    def _poll(self, deadline: int) -> None:
        self.now = max(self.now, deadline)
        self._polls[self.now] += 1
        if self._polls[self.now] > _STALLED:
            raise self._failure(f"the device's timers do not get past {self.now} ns")
        self.device.poll(self.now)
        self._collect()

    def _collect(self) -> None:
        for port, frame in self.device.transmitted(self.now):
            try:
                self._sent.append(read(frame, port, self.now, self.case))
            except WireError as error:
                raise self._failure(f"port {port} at {self.now}: {error}: {frame.hex()}") from None

    def _act(self, step: Step) -> None:
        device, now = self.device, self.now
        for wr_id in () if step.post_recv is None else span(step.post_recv):
            device.post_recv(wr_id)
        for post in step.post_send:
            region, offset, length = region_slice(post.write)
            addr, rkey = self.names.number(post.to, "va"), self.names.number(post.to, "rkey")
            for wr_id in range(post.wr_id, post.wr_id + post.count):
                self._posts[wr_id] = post
                device.post_send(wr_id, region, offset, length, addr, rkey, post.imm, now)
        for region in step.deregister:
            device.deregister(region)
        for planes, up in ((step.port_down, False), (step.port_up, True)):
            for plane in planes:
                device.port_status(plane, up, now)
        if step.deny is not None:
            device.deny([(rule.plane, rule.uplink) for rule in step.deny], now)
        if step.host_penalty is not None:
            device.host_penalty(step.host_penalty)
        for arrival in step.receive:
            for frame in frames(arrival, self.names, self.case):
                try:
                    device.receive(frame.port, frame.data, now)
                except Exception as error:
                    raise self._failure(f"the device raised {error!r}") from error
                self._collect()

    # ---- packets -------------------------------------------------------------------------------------

    def _wait(self, expectation: Expectation, limit: int) -> None:
        choices = self._choices(expectation)
        if len(choices) != 1:
            raise CaseError("a step waits for one packet")
        while (found := self._match(choices[0], None)) is None:
            deadline = self.device.next_deadline()
            if deadline is None or deadline > limit:
                raise self._failure(f"until {limit} there is no {self._described(choices[0], None)}")
            self._poll(deadline)
        self.names.bind(expectation.bind, [found.fields])
        self._sent.remove(found)

    def _expect(self, step: Step) -> None:
        leaving, matched = list(self._sent), []
        for expectation in step.expect:
            at = None if expectation.at == "any" else self.now if expectation.at is None else expectation.at
            bound = []
            for choice in self._choices(expectation):
                found = self._match(choice, at)
                if found is not None:
                    bound.append(found.fields)
                    matched.append(found)
                    self._sent.remove(found)
                elif not expectation.optional:
                    raise self._failure(f"there is no {self._described(choice, at)}")
            self.names.bind(expectation.bind, bound)
        if step.ordered:
            positions = [leaving.index(found) for found in matched]
            self._equal("the order of the packets", positions, sorted(positions))
        self._leave_others(step)

    def _leave_others(self, step: Step) -> None:
        left, self._sent = self._sent, []
        if step.others == "ignore":
            return
        for sent in left:
            probe = sent.kind == "endpoint_request" and sent.fields["op"] == 1
            if not probe or self.case.ev_probes == "forbidden":
                fields = {name: value for name, value in sent.fields.items() if not name.startswith(("outer", "eth"))}
                raise self._failure(f"nobody expected {sent}: {fields}")

    def _choices(self, expectation: Expectation) -> list[list[Wanted]]:
        """The packets of an expectation, for each of them the alternatives."""
        if expectation.one_of is not None:
            return [[packet for choice in expectation.one_of for (packet,) in self._choices(choice)]]
        memory = b""
        if expectation.message is not None and (post := self._posts.get(expectation.message.wr_id)) is not None:
            memory = written(post, self.case)
        return [[packet] for packet in wanted(expectation, self.names, self.case, self._posts, memory)]

    def _match(self, choice: list[Wanted], at: int | None) -> Sent | None:
        for sent in self._sent:
            if at is None or sent.at == at:
                for packet in choice:
                    if not packet.misfit(sent, self.names):
                        return sent
        return None

    def _described(self, choice: list[Wanted], at: int | None) -> str:
        """A wanted packet, and how those that were sent differ from it."""
        text = " or ".join(map(str, choice)) + ("" if at is None else f" at {at}")
        alike = [(sent, packet.misfit(sent, self.names)) for sent in self._sent for packet in choice]
        differing = [f"{sent}, but {', '.join(unlike) or 'the time'}" for sent, unlike in alike if len(unlike) < 6]
        return f"{text}; there is: {'; '.join(differing) or 'nothing'}"

    # ---- states --------------------------------------------------------------------------------------

    def _then(self, then: Then) -> None:
        device = self.device
        if then.completions is not None:
            send, recv = device.completions()
            self._completed("send", send, then.completions.send)
            self._completed("recv", recv, then.completions.recv)
        for region, pieces in then.memory.items():
            self._memory(region, device.memory(region), b"".join(map(piece, pieces)))
        if then.qp_state is not None:
            self._equal("QP state", device.qp_state(), then.qp_state)
        for name, count in then.counters.items():
            self._equal(f"counter {name}", device.counter(name), count)
        for name, state in then.evs.items():
            self._equal(f"state of {name}", device.ev_state(self.names.number(name, "ev")), state)
        for spread in then.spread:
            self._spread(spread)

    def _memory(self, region: str, seen: bytes, expected: bytes) -> None:
        self._equal(f"length of {region}", len(expected), len(seen))
        for offset, (byte, wanted_byte) in enumerate(zip(seen, expected, strict=True)):
            self._equal(f"memory of {region} at offset {offset}", byte, wanted_byte)

    def _completed(self, queue: str, done: list[Done], expected: list[Completion]) -> None:
        wants = [(want.wr_id + nth, want) for want in expected for nth in range(want.count)]
        alike = len(done) == len(wants) and all(map(_is_as_wanted, done, wants))
        if not alike:
            raise self._failure(f"{queue} completions are {done}, expected {expected}")

    def _spread(self, spread: Spread) -> None:
        packets = [packet for name in spread.of for packet in self.names.packets[name]]
        evs = Counter(packet["ev"] for packet in packets)
        planes = Counter(bench.ev_plane(packet["ev"]) for packet in packets)
        if spread.planes is not None:
            self._equal("planes", sorted(planes), spread.planes)
            self._equal("equal shares", max(planes.values()) - min(planes.values()) <= 1, True)
        if spread.without_plane_of is not None:
            plane = bench.ev_plane(self.names.number(spread.without_plane_of, "ev"))
            self._equal(f"packets in plane {plane}", planes[plane], 0)
            self._equal("planes", sorted(planes), [other for other in range(self.case.planes) if other != plane])
            self._equal("equal shares", max(planes.values()) - min(planes.values()) <= 1, True)
        if spread.evs is not None:
            self._equal("EVs used", len(evs), spread.evs)
        if spread.most is not None:
            self._equal("packets on the most used EV, too many", max(evs.values()) > spread.most, False)
        for name, count in spread.uses.items():
            self._equal(f"packets on {name}", evs[self.names.number(name, "ev")], count)

    def _equal(self, what: str, seen: object, expected: object) -> None:
        if seen != expected:
            raise self._failure(f"{what}: {seen}, expected {expected}")

    def _failure(self, text: str) -> CaseFailedError:
        return CaseFailedError(f"{self.case.id}, step {self._step} ({self.now} ns): {text}")


def _is_as_wanted(done: Done, numbered: tuple[int, Completion]) -> bool:
    wr_id, want = numbered
    return (
        done.wr_id == wr_id
        and (done.status == want.status or (want.status == "ERROR" and done.status != "SUCCESS"))
        and want.byte_len in (None, done.byte_len)
        and want.imm in (None, done.imm)
    )


def written(post: Post, case: Case) -> bytes:
    """The bytes that a work request is to carry."""
    region, offset, length = region_slice(post.write)
    return initial(case, region)[offset : offset + length]


def initial(case: Case, region: str) -> bytes:
    """What a region holds when the case begins."""
    settings = case.regions[region]
    if settings.fill is None:
        return bytes(settings.length)
    if not settings.fill.startswith("pattern"):
        raise CaseError(f"region {region} is filled with {settings.fill!r}, which is no pattern")
    return pattern(int(settings.fill.removeprefix("pattern")), settings.length)
