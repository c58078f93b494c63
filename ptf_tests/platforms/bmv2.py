"""PTF platform: BMv2, its ports behind its data-plane gRPC service.

ptf --platform bmv2 --platform-args p4runtime=HOST:PORT,dataplane=HOST:PORT,thrift=PORT
"""

from __future__ import annotations

from typing import Any

from ptf_tests.ports import StreamPort, port_map
from tests.dataplane.processes import Addresses


def platform_config_update(config: dict[str, Any]) -> None:
    """What ptf asks of a platform: its ports and what they are made of."""
    config["port_map"] = port_map(Addresses.parse(config["platform_args"] or "").dataplane)
    config["dataplane"] = {"portclass": StreamPort}
