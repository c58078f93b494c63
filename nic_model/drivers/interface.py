"""Network interfaces, as the kernel tells of them: which there are, their addresses, MTU and carrier."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from pathlib import Path

_SIOCGIFFLAGS = 0x8913
_SIOCGIFADDR = 0x8915
_SIOCGIFMTU = 0x8921
_SIOCGIFHWADDR = 0x8927
_IFREQ_SIZE = 40
_IFREQ_VALUE = 16  # what is asked for stands behind the name
_IFF_RUNNING = 0x40
_RTMGRP_LINK = 1
_NETLINK_BATCH = 65536

_IF_INET6 = Path("/proc/net/if_inet6")


class InterfaceError(Exception):
    """An interface that is not there or not fit. str() is one line."""


@dataclass(frozen=True, slots=True)
class Interface:
    """One by its name. What is asked of an interface that is gone raises OSError."""

    name: str

    @property
    def mac(self) -> bytes:
        """6 bytes."""
        # struct sockaddr: the address stands behind the family
        return self._ask(_SIOCGIFHWADDR)[2:8]

    @property
    def mtu(self) -> int:
        """Bytes of the largest IP packet."""
        return int(struct.unpack_from("i", self._ask(_SIOCGIFMTU))[0])

    @property
    def is_running(self) -> bool:
        """It is up and has a carrier. False if it is gone."""
        try:
            flags = struct.unpack_from("h", self._ask(_SIOCGIFFLAGS))[0]
        except OSError:
            return False
        return bool(flags & _IFF_RUNNING)

    @property
    def addresses(self) -> list[str]:
        """Its first IPv4 address and all its IPv6 addresses, in their canonical form."""
        found = []
        with contextlib.suppress(OSError):  # it has none
            # struct sockaddr_in: the address stands behind family and port
            found.append(socket.inet_ntoa(self._ask(_SIOCGIFADDR)[4:8]))
        if _IF_INET6.exists():
            for line in _IF_INET6.read_text(encoding="ascii").splitlines():
                address, *_, name = line.split()
                if name == self.name:
                    found.append(socket.inet_ntop(socket.AF_INET6, bytes.fromhex(address)))
        return found

    def _ask(self, request: int) -> bytes:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            name = self.name.encode().ljust(_IFREQ_SIZE, b"\0")
            return fcntl.ioctl(any_socket, request, name)[_IFREQ_VALUE:]


def find(wanted: str) -> Interface:
    """The interface of this name, MAC address or IP address, or with an address in this subnet. Raises
    InterfaceError."""
    there = [Interface(name) for _, name in socket.if_nameindex()]
    matching = [interface for interface in there if _matches(interface, wanted)]
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise InterfaceError(f"{wanted} is on {_names(matching)}: name one of them")
    raise InterfaceError(f"no interface {wanted}; there are {_names(there)}")


def _matches(interface: Interface, wanted: str) -> bool:
    if wanted == interface.name:
        return True
    try:
        if interface.mac.hex(":") == wanted.lower():
            return True
        subnet = ip_network(wanted)  # of one address, if no length is given
        return any(ip_address(address) in subnet for address in interface.addresses)
    except (OSError, ValueError):  # it went away meanwhile; not an IP address
        return False


def _names(interfaces: list[Interface]) -> str:
    return ", ".join(interface.name for interface in interfaces)


class LinkWatch:
    """Becomes readable when any interface changes: its state, its carrier, its being there."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self._socket.bind((0, _RTMGRP_LINK))
        self._socket.setblocking(False)

    def fileno(self) -> int:
        """To wait on."""
        return self._socket.fileno()

    def drain(self) -> None:
        """Forget what was told: it is the interfaces themselves that are asked then, so nothing can be missed."""
        while True:
            try:
                self._socket.recv(_NETLINK_BATCH)
            except BlockingIOError:
                return
            except OSError:  # the kernel had more to tell than fits (ENOBUFS)
                continue

    def close(self) -> None:
        """Stop watching."""
        self._socket.close()
