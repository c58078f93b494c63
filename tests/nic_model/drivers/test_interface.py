"""Interfaces of the machine that runs the test: every Linux has `lo`."""

from __future__ import annotations

import re

import pytest

from nic_model.drivers.interface import Interface, InterfaceError, LinkWatch, find


def test_what_the_kernel_tells_of_the_loopback() -> None:
    loopback = Interface("lo")
    assert (loopback.mac, loopback.mtu, loopback.is_running) == (bytes(6), 65536, True)
    assert loopback.addresses[0] == "127.0.0.1"


@pytest.mark.parametrize("wanted", ["lo", "127.0.0.1"])
def test_an_interface_is_found_by_name_and_by_address(wanted: str) -> None:
    assert find(wanted) == Interface("lo")


@pytest.mark.parametrize("wanted", ["eth99", "02:01:00:00:e0:00", "192.0.2.1", "2001:db8::1"])
def test_an_interface_that_is_not_there(wanted: str) -> None:
    with pytest.raises(InterfaceError, match=rf"^no interface {re.escape(wanted)}; there are lo\b.*"):
        find(wanted)


def test_an_interface_that_is_gone_is_not_running() -> None:
    assert not Interface("eth99").is_running


def test_a_watch_has_nothing_to_tell_at_first() -> None:
    watch = LinkWatch()
    watch.drain()
    watch.close()
    assert watch.fileno() == -1
