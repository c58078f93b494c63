"""PTF platform: the embedded target, each port a local socket.

ptf --platform embedded --platform-args p4runtime=HOST:PORT,sockets=DIRECTORY
"""

from __future__ import annotations

from typing import Any

from ptf_tests.ports import SocketPort, port_map
from tests.dataplane.processes import Addresses


def platform_config_update(config: dict[str, Any]) -> None:
    """What ptf asks of a platform: its ports and what they are made of."""
    config["port_map"] = port_map(Addresses.parse(config["platform_args"] or "").sockets)
    config["dataplane"] = {"portclass": SocketPort}
