"""Runs of RoCE scenarios on a small fabric: one plane of 400G, 2 rows of 4 NICs, 4 T1s."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from fabric.results import Result
from fabric.run import Run

TOPOLOGY: dict[str, Any] = {
    "schema": 1,
    "name": "small",
    "planes": 1,
    "rows": 2,
    "t1_per_plane": 4,
    "nics_per_row": 4,
    "mode": "ecmp",
    "block": "fcbb:bbbb::/32",
    "nic_prefix": "fd00:6d72:6300::/48",
    "switch_prefix": "fd00:6d72:6301::/48",
    "links": {"nic": {"rate_gbps": 400, "delay_ns": 500}, "fabric": {"rate_gbps": 400, "delay_ns": 500}},
    "control": {"address": "127.0.0.1:9559"},
}
PFC = {"xoff_bytes": 60_000, "xon_bytes": 30_000}
ROCE = {"transport": "roce"}
PFC_ONLY = {"transport": "roce", "congestion": "none"}

ACROSS = {"kind": "incast", "target": "nic0", "senders": ["nic4", "nic5", "nic6"], "bytes": 600_000}
"""All congestion that there is, is at the last hop and, where ECMP collides, at the T1s."""
IN_ROW = {"kind": "incast", "target": "nic0", "senders": ["nic1", "nic2", "nic3"], "bytes": 600_000}
"""Over one T0: the last hop is the only queue."""
VICTIM = {**ACROSS, "victim": ["nic7", "nic1"]}


def prepare(
    directory: Path, pfc: dict[str, Any] | None = PFC, queues: dict[str, Any] | None = None, **scenario: Any
) -> Run:
    """A run that is ready; `pfc` None: links that drop."""
    topology = {**TOPOLOGY, "links": {**TOPOLOGY["links"]}}
    if pfc is not None:
        topology["links"]["pfc"] = pfc
    topology["queues"] = {"mark_last_hop": True} if queues is None else queues
    (directory / "topology.yaml").write_text(yaml.safe_dump(topology))
    path = directory / "scenario.yaml"
    defaults = {"schema": 1, "name": "roce", "topology": "topology.yaml", "qp": ROCE}
    path.write_text(yaml.safe_dump({**defaults, **scenario}))
    return Run(path)


def execute(
    directory: Path, pfc: dict[str, Any] | None = PFC, queues: dict[str, Any] | None = None, **scenario: Any
) -> Result:
    """What the run gave."""
    return prepare(directory, pfc, queues, **scenario).execute()
