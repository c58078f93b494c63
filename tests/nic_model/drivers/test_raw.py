"""The driver over socket pairs: pacing, links that go down, frames that are not for the NIC, errors."""

from __future__ import annotations

import errno
import socket
from dataclasses import replace
from typing import Any

import pytest

from nic_model.drivers.host import Host
from nic_model.drivers.interface import Interface, InterfaceError
from nic_model.drivers.profile import BMV2, HEADERS
from nic_model.drivers.raw import Pacer, packet_socket, raw_ports
from nic_model.verbs import MR, QP, SGE, Access, QPAttr, SendWR, WROpcode
from tests.nic_model.drivers.direct import MTU, PATH_MTU, PLANES, QUICK, FakeInterface, Side, hosts, sides, until

GAP = 1_000_000_000 // BMV2.packet_rate


def frames_at(side: Side, plane: int) -> list[bytes]:
    """What has arrived at the other end of a port's wire."""
    wire = side._wires[plane]
    arrived = []
    while True:
        try:
            arrived.append(wire.recv(MTU + 14, socket.MSG_DONTWAIT))
        except BlockingIOError:
            return arrived


def post_write(host: Host, size: int) -> QP:
    """A WRITE to a QP of the other NIC that nobody has made."""
    qp, psn = host.new_qp()
    attr = QPAttr(dgid=bytes.fromhex("fd006d72630000010000000000000000"), dest_qp_num=99, sq_psn=psn, timeout=17)
    qp.to_init(attr)
    qp.to_rtr(attr)
    qp.to_rts(attr)
    source = MR(host.pd, size, Access.LOCAL_WRITE)
    qp.post_send(SendWR(1, WROpcode.RDMA_WRITE, [SGE(source.addr, size, source.lkey)], 0, 0))
    return qp


def test_a_pacer_lets_a_burst_go_and_then_one_packet_per_gap() -> None:
    pacer = Pacer(rate=1_000_000, burst=3)
    sent = []
    for now in range(10_000, 15_000, 100):
        while pacer.ready_at <= now:
            pacer.sent(now)
            sent.append(now)
    assert sent == [10_000, 10_000, 10_000, 11_000, 12_000, 13_000, 14_000]


def test_a_pacer_fills_up_again_to_one_burst_and_no_more() -> None:
    pacer = Pacer(rate=1_000_000, burst=3)
    for now, expected in ((0, 3), (2_000, 2), (100_000, 3)):
        count = 0
        while pacer.ready_at <= now:
            pacer.sent(now)
            count += 1
        assert count == expected


async def test_each_port_sends_a_burst_of_16_and_then_keeps_its_rate() -> None:
    now = 1_000_000_000
    fast = replace(BMV2, base_rtt=100_000_000)  # a window larger than what is sent here
    with sides(fast) as (one, other), one.driver(lambda: now) as driver:
        post_write(Host(driver, fast, PATH_MTU), 200 * PATH_MTU)
        driver.attend()
        assert [len(frames_at(other, plane)) for plane in range(PLANES)] == [16, 16]
        driver.attend()
        now += GAP - 1
        driver.attend()
        assert [len(frames_at(other, plane)) for plane in range(PLANES)] == [0, 0]
        now += 1
        driver.attend()
        assert [len(frames_at(other, plane)) for plane in range(PLANES)] == [1, 1]
        now += 5 * GAP
        driver.attend()
        assert [len(frames_at(other, plane)) for plane in range(PLANES)] == [5, 5]


async def test_frames_carry_the_port_macs_and_fit_the_mtu() -> None:
    with sides() as (one, other), one.driver() as driver:
        post_write(Host(driver, QUICK, PATH_MTU), PATH_MTU)
        driver.attend()
        (frame,) = frames_at(other, 0)
    assert frame[:12] == other.nic.ports[0].mac + one.nic.ports[0].mac
    assert len(frame) == 14 + HEADERS + PATH_MTU == 14 + MTU


async def test_frames_for_others_and_frames_longer_than_the_mtu_do_not_reach_the_nic() -> None:
    with sides() as (one, other), one.driver():
        mac = one.nic.ports[0].mac
        for frame in (b"\x33\x33\0\0\0\x01" + bytes(60), mac + bytes(14 + MTU), mac + bytes(8 + MTU)):
            other._wires[0].send(frame)
        assert [len(head) for head, _ in one.ports[0].receive()] == [14 + MTU]
        assert (one.ports[0].counters.strays, one.ports[0].counters.oversized) == (1, 1)


async def test_a_link_that_goes_down_closes_its_port_and_one_that_comes_up_opens_it() -> None:
    with sides() as (one, _), one.driver() as driver:
        assert (one.opened, one.nic.planes_up) == (2, 0b11)
        told: list[tuple[int, bool]] = []
        driver.on_link = lambda port: told.append((port.plane, port.is_open))
        one.set_link(1, False)
        driver._on_link_change()
        assert [port.is_open for port in one.ports] == [True, False]
        assert one.nic.planes_up == 0b01
        one.set_link(1, True)
        driver._on_link_change()
        assert (one.opened, one.nic.planes_up) == (3, 0b11)
        assert told == [(1, False), (1, True)]


async def test_a_link_that_is_down_at_the_start_is_a_port_that_is_down() -> None:
    with sides() as (one, _):
        one.interfaces[0].state["running"] = False
        with one.driver():
            assert (one.opened, one.nic.planes_up) == (1, 0b10)


async def test_an_end_leaves_nothing_open() -> None:
    with sides() as (one, _):
        with one.driver():
            pass
        assert [port.is_open for port in one.ports] == [False, False]
        assert one.links.fileno() == -1


async def test_what_the_kernel_does_not_take_is_counted() -> None:
    with sides() as (one, other), one.driver() as driver:
        other._wires[0].shutdown(socket.SHUT_RD)
        one.ports[0].send((b"x", b"y"))
        assert one.ports[0].counters.unsent == 1
        assert driver.nic.ports[0].up


async def test_a_port_that_is_lost_is_told_to_the_peer() -> None:
    with hosts() as (here, there, (one, _)):
        post_write(here, PATH_MTU)
        post_write(there, PATH_MTU)  # so that each has a QP to the other
        one.set_link(1, False)
        peer = there.peer(here.address)
        await until(lambda: peer.ports_up == 0b01)


# ---- errors ------------------------------------------------------------------------------------------------


def test_an_interface_with_a_small_mtu_is_refused() -> None:
    with sides() as (one, _):
        small = FakeInterface("eth0")
        with pytest.raises(InterfaceError) as caught:
            raw_ports(one.nic, [small, _WithMtu("eth1")], QUICK, PATH_MTU)
    assert str(caught.value) == (
        "eth1: MTU 4223 is too small, a path MTU of 4096 needs 4224: ip link set eth1 mtu 4224"
    )


def test_an_interface_too_few_is_refused() -> None:
    with sides() as (one, _), pytest.raises(InterfaceError) as caught:
        raw_ports(one.nic, [FakeInterface("eth0")], QUICK, PATH_MTU)
    assert str(caught.value) == "nic0 has 2 ports, there are 1 interfaces for them"


class _WithMtu(FakeInterface):
    @property
    def mtu(self) -> int:
        return MTU - 1


def test_packet_sockets_need_a_capability(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> socket.socket:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(socket, "socket", refused)
    with pytest.raises(InterfaceError) as caught:
        packet_socket(Interface("eth0"), bytes(6))
    assert str(caught.value) == "eth0: packet sockets need root or CAP_NET_RAW"
