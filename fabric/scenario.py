"""The scenario file: which fabric, which work, what breaks when."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

LinkEnds = tuple[str, str]
"""The two nodes of a link."""


class LinkDown(BaseModel):
    """Cut a link at `at_us`; mend it at `until_us`, if given."""

    kind: Literal["link-down"]
    link: LinkEnds
    at_us: float = Field(ge=0)
    until_us: float | None = None


class Loss(BaseModel):
    """Lose each frame on a link with probability `rate`, in both directions, from `at_us` to `until_us`."""

    kind: Literal["loss"]
    link: LinkEnds
    rate: float = Field(gt=0, le=1)
    at_us: float = Field(default=0, ge=0)
    until_us: float | None = None


Fault = Annotated[LinkDown | Loss, Field(discriminator="kind")]


class RingAllReduce(BaseModel):
    """Every NIC has a vector of `bytes` bytes of float32, and all end with the sum.

    The ring algorithm over WRITE with immediate; neighbours in the ring are in different rows where there are two.
    """

    kind: Literal["ring-all-reduce"]
    bytes: int = Field(gt=0, multiple_of=4)


class Transfers(BaseModel):
    """Each pair's first NIC writes `messages` messages of `bytes` random bytes into the second's memory."""

    kind: Literal["write"]
    pairs: list[tuple[str, str]] = Field(min_length=1)
    bytes: int = Field(gt=0)
    messages: int = Field(default=1, gt=0)


class QpSettings(BaseModel):
    """What every QP of the run gets. `window_bytes` is the fixed window; None is 1.5 x line rate x base RTT."""

    active_evs: int = Field(default=128, ge=1)
    backup_evs: int = Field(default=16, ge=0)
    path_mtu: Literal[256, 512, 1024, 2048, 4096] = 4096
    timeout: int = Field(default=7, ge=0, le=24)
    window_bytes: int | None = Field(default=None, gt=0)


class Scenario(BaseModel):
    """One run. `topology` is a preset's name or a file, relative to the scenario's own."""

    schema_: Literal[1] = Field(alias="schema")
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    topology: str
    seed: int = 1
    time_limit_us: float = Field(default=100_000, gt=0)
    sample_us: float = Field(default=10, gt=0)
    qp: QpSettings = QpSettings()
    workload: Annotated[RingAllReduce | Transfers, Field(discriminator="kind")]
    faults: list[Fault] = []
