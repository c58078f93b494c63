"""The committed docker-compose.yml, up and running, with one kind of switch."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network
from types import TracebackType
from typing import Any

from controller.topology import Topology
from fabric.compose import DEFAULT_SUBNET, Networks
from tests.compose.engine import PROJECT, Engine

COMPOSE_PROJECT = "mrcfab-test"
TOPOLOGY = PROJECT / "controller" / "presets" / "compose.yaml"
IMAGE = "mrcfab-test"


class ComposeError(Exception):
    """Compose failed; str() has what it said, and the logs."""


class ComposeFabric:
    """A context manager: up when entered; down at the end, and then nothing of it is left. Raises ComposeError."""

    def __init__(self, engine: Engine, switch_image: str) -> None:
        self.topo = Topology.load(TOPOLOGY)
        self.networks = Networks(self.topo, DEFAULT_SUBNET)
        self.switch_image = switch_image
        self._engine = engine
        self._environment = {
            "COMPOSE_PROJECT_NAME": COMPOSE_PROJECT,
            "MRCFAB_BASE": engine.base,
            "MRCFAB_IMAGE": IMAGE,
            "MRCFAB_SWITCH_IMAGE": switch_image,
        }

    def __enter__(self) -> ComposeFabric:
        try:
            self._must("build")
            self._must("up", "--detach", "--wait")
        except BaseException:
            self._down()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._down()
        if left := self.left_behind():
            raise ComposeError(f"left behind: {', '.join(left)}")

    def _down(self) -> None:
        self.compose("down", "--volumes", "--remove-orphans", "--timeout", "5")

    def _must(self, *arguments: str) -> None:
        done = self.compose("--progress", "plain", *arguments)
        if done.returncode:
            raise ComposeError(f"docker compose {arguments[0]}: {done.stderr}\n{self.logs()}")

    def compose(
        self, *arguments: str, stdin: str | None = None, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """A `docker compose` command to its end, whatever that is."""
        return self._engine.docker(
            "compose", *arguments, environment=self._environment | dict(environment or {}), stdin=stdin
        )

    def execute(self, service: str, *command: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """A command in a running container."""
        return self.compose("exec", "--no-TTY", service, *command, stdin=stdin)

    def start(self, service: str, *command: str) -> subprocess.Popen[str]:
        """A command in a running container, which goes on."""
        arguments = ("compose", "exec", "--no-TTY", service, *command)
        return self._engine.start(*arguments, environment=self._environment)

    def controller(self, *command: str) -> subprocess.CompletedProcess[str]:
        """A command of the controller's, in a container of its own."""
        return self.compose("run", "--rm", "--no-TTY", "controller", *command)

    def run(self, image: str, options: Sequence[str], *command: str) -> subprocess.CompletedProcess[str]:
        """A command in a container of no service, without capabilities, next to docker/switch.py."""
        script = f"{PROJECT / 'docker' / 'switch.py'}:/switch.py:ro"
        return self._engine.docker("run", "--rm", "--cap-drop=ALL", f"--volume={script}", *options, image, *command)

    def container(self, service: str) -> str:
        """The id of a service's container, running or not."""
        return self.compose("ps", "--all", "--quiet", service).stdout.strip()

    def state(self, service: str) -> dict[str, Any]:
        """What the engine says of a service's container."""
        done = self._engine.docker("inspect", "--format", "{{json .State}}", self.container(service))
        state: dict[str, Any] = json.loads(done.stdout)
        return state

    def logs(self, *services: str) -> str:
        """What services have said."""
        return self.compose("logs", "--no-color", "--no-log-prefix", *services).stdout

    def subnet(self, node: str, port: int) -> IPv4Network:
        """That of the link at a port."""
        return self.networks.ports[node][port].ipv4

    def left_behind(self) -> list[str]:
        """Containers, networks and volumes of the project."""
        label = f"label=com.docker.compose.project={COMPOSE_PROJECT}"
        found = []
        for what in (("ps", "--all"), ("network", "ls"), ("volume", "ls")):
            found += self._engine.docker(*what, "--quiet", "--filter", label).stdout.split()
        return found
