"""Network namespaces of a test's own, joined by veth pairs, with the processes in them. Needs root."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

MTU = 4224
"""Just what a WRITE with a path MTU of 4096 needs."""
STEP_TIMEOUT = 30.0
"""Seconds that any one command may take."""

REASON = "needs root, to make network namespaces"


def available() -> bool:
    """May this process make namespaces, and can it?"""
    if os.geteuid() or shutil.which("ip") is None:
        return False
    with Namespaces("probe") as namespaces:
        try:
            namespaces.add("x")
        except subprocess.CalledProcessError:
            return False
    return True


class Namespaces:
    """All of them, by short names; `__exit__` ends the processes and removes the namespaces, and nothing else."""

    def __init__(self, test: str) -> None:
        self._prefix = f"mrcfab-{os.getpid()}-{test}-"
        self._names: list[str] = []
        self._processes: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Namespaces:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        for name in self._names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def add(self, name: str) -> None:
        """A namespace without IPv6 of its own, so that only the test's frames are on its links."""
        _ip("netns", "add", self._prefix + name)
        self._names.append(self._prefix + name)
        self.ip(name, "link", "set", "lo", "up")
        for which in ("all", "default"):
            self.run(name, ["sysctl", "-qw", f"net.ipv6.conf.{which}.disable_ipv6=1"])

    def link(self, one: tuple[str, str], other: tuple[str, str], mac: str | None = None) -> None:
        """A veth pair between two (namespace, interface); `mac` is that of `one`."""
        ends = []
        for name, interface in (one, other):
            ends += ["name", interface, "netns", self._prefix + name, "mtu", str(MTU)]
        half = len(ends) // 2
        address = ["address", mac] if mac else []
        _ip("link", "add", *ends[:half], *address, "type", "veth", "peer", *ends[half:])
        for name, interface in (one, other):
            self.ip(name, "link", "set", interface, "up")

    def ip(self, name: str, *arguments: str) -> None:
        """`ip` inside a namespace."""
        _ip("-n", self._prefix + name, *arguments)

    def run(self, name: str, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """A command inside a namespace, to its end, whatever that is."""
        return subprocess.run(
            self._inside(name, command), check=False, capture_output=True, text=True, timeout=STEP_TIMEOUT
        )

    def start(self, name: str, command: Sequence[str], log: Path) -> subprocess.Popen[str]:
        """A process inside a namespace that goes on; its stdout is a pipe, its stderr goes into the file `log`."""
        with log.open("w") as stderr:
            process = subprocess.Popen(
                self._inside(name, command), stdout=subprocess.PIPE, stderr=stderr, stdin=subprocess.DEVNULL, text=True
            )
        self._processes.append(process)
        return process

    def _inside(self, name: str, command: Sequence[str]) -> list[str]:
        return ["ip", "netns", "exec", self._prefix + name, *command]


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=STEP_TIMEOUT)
