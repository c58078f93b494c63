"""The base of all tests here: a switch, entries that go when the test ends, frames in and exactly these frames out.

Nothing is waited for by time. A control-class marker behind the frames tells when the ingress has decided on all of
them (BMv2 and the embedded target take the frames of one port in order), the counted drops tell how many are still
to come, and the counted transmissions that none came astray.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar

import ptf
from finsy.proto import p4r
from ptf.base_tests import BaseTest
from ptf.ptfutils import timed_wait
from ptf.testutils import send_packet, verify_no_other_packets

from controller.drop_reasons import DROP_REASONS
from controller.packet_io import PacketIn
from controller.plan import Entry
from ptf_tests.control_plane import DELETE, INSERT, MODIFY, ControlPlane
from ptf_tests.ports import ALL_PORTS, port_map
from tests.dataplane.counters import NOTHING, Count
from tests.dataplane.entries import INGRESS_PORT, MARKER_PORT, PORTS
from tests.dataplane.frames import forwarded, marker
from tests.dataplane.processes import DEVICE_ID, TIMEOUT, Addresses, SwitchProcess, running

BURST = 50
"""Frames that may wait in one queue: BMv2 drops silently what its queue of 64 does not hold."""


def on_bmv2() -> bool:
    """Which of the two targets this run is about."""
    return bool(ptf.config["platform"] == "bmv2")


class Switch:
    """A switch, plugged into ptf as device `device`. All counts are since `begin`."""

    def __init__(self, where: Addresses, device: int, election_id: int = 1) -> None:
        self.where = where
        self.device = device
        self.control = ControlPlane(where, election_id)
        self._dataplane = ptf.dataplane_instance
        self._installed: list[Entry] = []

    # ---- Entries

    def install(self, *entries: Entry) -> None:
        """Insert entries; they go when the test ends."""
        assert self.control.write(INSERT, entries) == []
        self._installed += entries

    def modify(self, *entries: Entry) -> None:
        assert self.control.write(MODIFY, entries) == []

    def remove(self, *entries: Entry) -> None:
        assert self.control.write(DELETE, entries) == []
        keys = {entry.key for entry in entries}
        self._installed = [entry for entry in self._installed if entry.key not in keys]

    def forget(self) -> None:
        """The switch lost its entries."""
        self._installed.clear()

    def clean(self) -> list[str]:
        """Delete what was installed; what is still there then."""
        refused = self.control.write(DELETE, self._installed[::-1]) if self._installed else []
        self._installed.clear()
        profiles = self.control.read(
            p4r.Entity(action_profile_member=p4r.ActionProfileMember()),
            p4r.Entity(action_profile_group=p4r.ActionProfileGroup()),
        )
        return [*map(str, refused), *map(str, self.control.entries()), *map(str, profiles)]

    # ---- Frames

    def begin(self) -> None:
        """Count from here."""
        self._sent = 0
        self._unmarked: set[int] = set()
        self._drops = self._read_drops()
        self._transmitted = self._read_transmitted()
        self._received = self._read_received()

    def send(self, frame: bytes, port: int = INGRESS_PORT, count: int = 1) -> None:
        send_packet(self, (self.device, port), frame, count=count)
        self._sent += count
        self._unmarked.add(port)

    def packet_out(self, port: int, frame: bytes) -> None:
        self.control.packet_out(port, frame)
        self._sent += 1

    def expect(self, port: int, *frames: bytes) -> None:
        """The next frames out of `port` are exactly these, in this order."""
        for frame in frames:
            found = self._dataplane.poll(self.device, port, TIMEOUT)
            if found.packet is None:
                raise AssertionError(f"nothing came out of port {port}, expected {describe(frame)}")
            if found.packet != frame:
                raise AssertionError(f"port {port}: {describe(found.packet)}\nexpected: {describe(frame)}")

    def receive(self, count: int) -> list[tuple[int, bytes]]:
        """The next `count` frames, as (port, frame), in the order of their coming."""
        found = [self._dataplane.poll(self.device, None, TIMEOUT) for _ in range(count)]
        missing = sum(one.packet is None for one in found)
        if missing:
            raise AssertionError(f"{missing} of {count} frames did not come out")
        return [(one.port, one.packet) for one in found]

    def receive_until(self, last: bytes) -> list[tuple[int, bytes]]:
        """All frames that come before this one."""
        found: list[tuple[int, bytes]] = []
        while (one := self.receive(1)[0])[1] != last:
            found.append(one)
        return found

    def expect_packet_in(self, expected: PacketIn) -> None:
        found = self.control.packet_in()
        assert found == expected, f"packet-in {found}, expected {expected}"

    def decide(self) -> None:
        """Wait until the ingress has decided on all frames that were sent."""
        for port in sorted(self._unmarked):
            send_packet(self, (self.device, port), marker())
            self.expect(MARKER_PORT, forwarded(marker(), MARKER_PORT))
        self._unmarked.clear()

    def settle(self) -> None:
        """Wait until all that the switch let pass has come out."""
        self.decide()
        expected = self._sent - sum(self.drops().values())

        def all_here() -> bool | None:
            return True if self._read_received() - self._received >= expected else None

        with self._dataplane.cvar:
            here = timed_wait(self._dataplane.cvar, all_here, timeout=TIMEOUT)
        received = self._read_received() - self._received
        assert here, f"{received} frames came out, {expected} of {self._sent} were not dropped"
        transmitted = self._read_transmitted() - self._transmitted
        assert received == transmitted == expected, f"{received} came, {transmitted} left, expected {expected}"

    def done(self, **dropped: Sequence[bytes]) -> None:
        """All has come out and was expected; these frames and no others were dropped, for these reasons."""
        self.settle()
        verify_no_other_packets(self, self.device, timeout=0)
        expected = {reason: Count(len(some), sum(map(len, some))) for reason, some in dropped.items() if some}
        assert self._drop_counts() == expected, f"drops {self._drop_counts()}, expected {expected}"
        self.begin()

    def abandon(self) -> int:
        """Forget all frames; how many were not accounted for."""
        self._dataplane.flush()
        return self._sent

    # ---- Counters

    def drops(self) -> dict[str, int]:
        """Packets by reason."""
        return {reason: count.packets for reason, count in self._drop_counts().items()}

    def counted(self, name: str, work: Callable[[], None], indexes: Iterable[int] = PORTS) -> dict[int, Count]:
        """What `work` adds to an indirect counter, by index."""
        indexes = list(indexes)
        before = self.control.counter(name, indexes)
        work()
        return _difference(self.control.counter(name, indexes), before)

    def _drop_counts(self) -> dict[str, Count]:
        return {DROP_REASONS[index]: count for index, count in _difference(self._read_drops(), self._drops).items()}

    def _read_drops(self) -> dict[int, Count]:
        return self.control.counter("drop_reasons", range(len(DROP_REASONS)))

    def _read_transmitted(self) -> int:
        return sum(count.packets for count in self.control.counter("port_tx", PORTS).values())

    def _read_received(self) -> int:
        return sum(self._dataplane.rx_counters[self.device, port] for port in PORTS)

    # ---- What ptf's functions ask of a test

    @property
    def dataplane(self) -> Any:
        return self._dataplane

    def before_send(self, pkt: bytes, device_number: int = 0, port_number: int = -1) -> None: ...

    def at_receive(self, pkt: bytes, device_number: int = 0, port_number: int = -1) -> None: ...

    def fail(self, message: str) -> None:
        raise AssertionError(message)


def _difference(after: dict[int, Count], before: dict[int, Count]) -> dict[int, Count]:
    changes = {}
    for index, count in after.items():
        old = before.get(index, NOTHING)
        if count != old:
            changes[index] = Count(count.packets - old.packets, count.bytes - old.bytes)
    return changes


def describe(frame: bytes) -> str:
    return f"{len(frame)} bytes {frame[:130].hex(' ', 2)}"


class OwnSwitch(Switch):
    """A switch in a process of its own, without a pipeline at first."""

    def __init__(self, process: SwitchProcess, device: int) -> None:
        super().__init__(process.addresses, device)
        self.process = process
        self.plug()

    def commit(self) -> None:
        """It runs the program, and has no entries."""
        self.control.commit_pipeline()
        self._installed.clear()
        self.begin()

    def drain(self) -> None:
        """Forget what came out until now."""
        self._dataplane.flush()

    def set_port_up(self, port: int, up: bool) -> None:
        """BMv2 only: what its P4Runtime server sees of a link."""
        change = self._dataplane.port_up if up else self._dataplane.port_down
        change(self.device, port)

    def reconnect(self, election_id: int) -> None:
        """As a controller that was started again."""
        self.control.close()
        self.control = ControlPlane(self.where, election_id)

    def restart(self) -> None:
        """As after a power cut: the same addresses, no pipeline."""
        self.control.close()
        self.unplug()
        self.process.stop()
        self.process.start()
        self.control = ControlPlane(self.where, 1)
        self.plug()

    def plug(self) -> None:
        """Connect ptf's ports."""
        for (device, port), interface in port_map(self.where.sockets or self.where.dataplane, self.device).items():
            self._dataplane.port_add(interface, device, port)

    def unplug(self) -> None:
        """Disconnect ptf's ports. Ptf's thread must have noticed before they are closed."""
        with self._dataplane.cvar:
            ports = [self._dataplane.ports[self.device, port] for port in ALL_PORTS]
            for port in ALL_PORTS:
                self._dataplane.port_remove(self.device, port)
            self._dataplane.cvar.wait(TIMEOUT)
        for one in ports:
            one.close()


_devices = itertools.count(1)


@cache
def suite_switch() -> Switch:
    """The switch that ptf was started for; it has the program, and no entries between tests."""
    switch = Switch(Addresses.parse(ptf.config["platform_args"]), 0)
    switch.control.commit_pipeline()
    return switch


class SwitchTest(BaseTest):  # type: ignore[misc]
    """A test on the suite's switch."""

    def setUp(self) -> None:
        super().setUp()
        self.switch = suite_switch()
        self.switch.begin()
        self.addCleanup(self._leave)

    def _leave(self) -> None:
        unaccounted = self.switch.abandon()
        left = self.switch.clean()
        if left:
            self.switch.control.commit_pipeline()  # so that only this test fails
        self.assertEqual(left, [], "entries are left behind")
        self.assertEqual(unaccounted, 0, "frames were sent without a done() behind them")


class OwnSwitchTest(BaseTest):  # type: ignore[misc]
    """A test on switches of its own, which it may stop, overload and kill."""

    rates: ClassVar[Mapping[int, int]] = {}
    """Of each port's queues in packets/s."""

    def __init_subclass__(cls) -> None:
        cls._groups = ["own_switch"]  # ptf adds to it, class by class

    def setUp(self) -> None:
        super().setUp()
        self.switch = self.start()
        self.switch.commit()

    def start(self) -> OwnSwitch:
        """One more switch, without a pipeline."""
        device = next(_devices)
        process = self.enterContext(running(ptf.config["platform"], DEVICE_ID + device, self.rates))
        switch = OwnSwitch(process, device)
        self.addCleanup(switch.control.close)
        self.addCleanup(switch.unplug)
        return switch


def cases(module: dict[str, Any], base: type[BaseTest], named: Mapping[str, Mapping[str, Any]]) -> None:
    """Add a test to `module` for each case: a subclass of `base` with these attributes, which runs `check`.

    The name is the rule that the case is about, in words.
    """
    for rule, attributes in named.items():
        name = "".join(word[:1].upper() + word[1:] for word in re.findall(r"\w+", rule.replace("'", "")))
        assert name not in module, f"two tests are called {name}"
        body = {"__doc__": rule, "__module__": module["__name__"], "runTest": lambda self: self.check(), **attributes}
        module[name] = type(name, (base,), body)
