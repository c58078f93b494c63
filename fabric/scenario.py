"""The scenario file: which fabric, which work, what breaks when."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import BaseModel, Discriminator, Field, Tag, model_validator

from nic_model.ev import SprayPolicy

LinkEnds = tuple[str, str]
"""The two nodes of a link."""

NAME = r"^[a-z0-9][a-z0-9-]*$"
"""Of a scenario or a variant."""

MAX_MESSAGES = 1024
"""The length of a send queue."""

Rate = Annotated[float, Field(gt=0, le=1)]


class Span(NamedTuple):
    """From when to when a fault is there, ns; None is to the end."""

    start: int
    end: int | None


class _Fault(BaseModel):
    """Something that goes wrong at `at_us` and is right again at `until_us`, if given."""

    place_key: ClassVar[str]
    """Which key says where."""

    at_us: float = Field(ge=0)
    until_us: float | None = None

    @model_validator(mode="after")
    def _ends_after_it_began(self) -> Self:
        if self.until_us is not None and self.until_us <= self.at_us:
            raise ValueError(f"until_us, {self.until_us:g}, must be later than at_us, {self.at_us:g}")
        return self

    def spans(self) -> Iterator[Span]:
        """When it is there, in order."""
        yield Span(ns(self.at_us), None if self.until_us is None else ns(self.until_us))

    @property
    def what(self) -> str:
        """What happens where, as a person says it."""
        raise NotImplementedError

    def __str__(self) -> str:
        return self.what if self.until_us is None else f"{self.what} until {self.until_us:g} us"


class _LinkFault(_Fault):
    place_key = "link"

    link: LinkEnds

    @property
    def where(self) -> str:
        """The link, by its ends."""
        return f"link {self.link[0]} - {self.link[1]}"


class LinkDown(_LinkFault):
    """A link goes down. NICs see their own links; switches do not care."""

    kind: Literal["link-down"]

    @property
    def what(self) -> str:
        return f"{self.where} down"


class Flap(_LinkFault):
    """A link goes down for `down_us` every `period_us`, `count` times or until `until_us`."""

    kind: Literal["flap"]
    period_us: float = Field(gt=0)
    down_us: float = Field(gt=0)
    count: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _is_well_timed(self) -> Self:
        if (self.count is None) == (self.until_us is None):
            raise ValueError("give either count or until_us")
        if self.down_us >= self.period_us:
            raise ValueError(f"down_us, {self.down_us:g}, must be less than period_us, {self.period_us:g}")
        return self

    def spans(self) -> Iterator[Span]:
        start, down, period = ns(self.at_us), ns(self.down_us), ns(self.period_us)
        end = start + period * self.count if self.count is not None else ns(self.until_us or 0)
        for at in range(start, end, period):
            yield Span(at, min(at + down, end))

    @property
    def what(self) -> str:
        times = "" if self.count is None else f", {self.count} times"
        return f"{self.where} down for {self.down_us:g} us every {self.period_us:g} us{times}"


class Loss(_LinkFault):
    """A link loses each frame with probability `rate`, in both directions."""

    kind: Literal["loss"]
    at_us: float = Field(default=0, ge=0)
    rate: Rate

    @property
    def what(self) -> str:
        return f"{self.where} loses {self.rate:.2%}"


class Corrupt(_LinkFault):
    """A link damages each frame with probability `rate`, in both directions.

    The next receiver's FCS tells and it drops the frame; if `undetected`, one bit of the frame is flipped and
    nobody tells before the ICRC.
    """

    kind: Literal["corrupt"]
    at_us: float = Field(default=0, ge=0)
    rate: Rate
    undetected: bool = False

    @property
    def what(self) -> str:
        how = " undetected by FCS" if self.undetected else ""
        return f"{self.where} corrupts {self.rate:.2%}{how}"


class NicPortDown(_Fault):
    """A NIC's port in one plane goes down; the NIC and its T0 both see it."""

    place_key = "nic"

    kind: Literal["nic-port-down"]
    nic: str
    plane: int = Field(ge=0)

    @property
    def what(self) -> str:
        return f"{self.nic} port {self.plane} down"


class _SwitchFault(_Fault):
    place_key = "switch"

    switch: str


class SwitchBlackHole(_SwitchFault):
    """A switch swallows all that enters it while its links stay up: nobody is told."""

    kind: Literal["switch-black-hole"]

    @property
    def what(self) -> str:
        return f"switch {self.switch} swallows everything"


class SwitchDown(_SwitchFault):
    """A switch loses power: its links go down, its queues and all its state are lost.

    At `until_us` it is back, empty; `control_latency_us` later the controller has programmed it.
    """

    kind: Literal["switch-down"]

    @property
    def what(self) -> str:
        return f"switch {self.switch} down"


Fault = Annotated[
    LinkDown | Flap | Loss | Corrupt | NicPortDown | SwitchBlackHole | SwitchDown, Field(discriminator="kind")
]


class RingAllReduce(BaseModel):
    """Every NIC has a vector of `bytes` bytes of float32, and all end with the sum.

    The ring algorithm over WRITE with immediate; neighbours in the ring are in different rows where there are two.
    """

    kind: Literal["ring-all-reduce"]
    bytes: int = Field(gt=0, multiple_of=4)


class Writes(BaseModel):
    """Each pair's first NIC writes `messages` messages of `bytes` random bytes into the second's memory."""

    kind: Literal["write"]
    pairs: list[tuple[str, str]] = Field(min_length=1)
    bytes: int = Field(gt=0)
    messages: int = Field(default=1, ge=1, le=MAX_MESSAGES)


class Permutation(BaseModel):
    """Every NIC writes `messages` messages of `bytes` bytes to another one, each to a different one, as the seed has
    it."""

    kind: Literal["permutation"]
    bytes: int = Field(gt=0)
    messages: int = Field(default=1, ge=1, le=MAX_MESSAGES)


class Incast(BaseModel):
    """Every sender writes `bytes` bytes to the one target at once; without `senders`, all other NICs do.

    The victim's first NIC writes to its second beside it, as much as the target receives.
    """

    kind: Literal["incast"]
    target: str
    senders: list[str] | None = Field(default=None, min_length=1)
    bytes: int = Field(gt=0)
    victim: tuple[str, str] | None = None


Work = Annotated[RingAllReduce | Writes | Permutation | Incast, Field(discriminator="kind")]


class _Qp(BaseModel):
    """What every QP of the run gets, whatever its transport. With several QPs per peer each message is cut into
    stripes, one a QP; the i-th QP connects the ports in plane i modulo planes."""

    qps_per_peer: int = Field(default=1, ge=1, le=64)
    path_mtu: Literal[256, 512, 1024, 2048, 4096] = 4096
    timeout: int = Field(default=7, ge=0, le=24)


class MrcQp(_Qp):
    """MRC. `congestion`: NSCC scaled to the fabric, or a fixed window of `window_bytes`; both are at most
    1.5 x line rate x base RTT if nothing is said."""

    transport: Literal["mrc"] = "mrc"
    active_evs: int = Field(default=128, ge=1)
    backup_evs: int = Field(default=16, ge=0)
    spray: SprayPolicy = SprayPolicy.MRC
    congestion: Literal["nscc", "fixed"] = "nscc"
    window_bytes: int | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _has_one_window(self) -> Self:
        if self.window_bytes is not None and self.congestion != "fixed":
            raise ValueError(f"window_bytes is for congestion: fixed, {self.congestion} has a window of its own")
        return self


class RoceQp(_Qp):
    """RoCEv2 RC: one path per QP, in order, go-back-N. `congestion`: DCQCN scaled to the port, or none (PFC only)."""

    transport: Literal["roce"]
    congestion: Literal["dcqcn", "none"] = "dcqcn"


def _transport(settings: Any) -> Any:
    return settings.get("transport", "mrc") if isinstance(settings, dict) else "mrc"


QpSettings = Annotated[
    Annotated[MrcQp, Tag("mrc")] | Annotated[RoceQp, Tag("roce")],
    Discriminator(_transport, custom_error_type="transport", custom_error_message="transport must be 'mrc' or 'roce'"),
]


class Variant(BaseModel):
    """A fabric and the transport of its NICs, to be compared with others under the same work."""

    topology: str
    qp: QpSettings = MrcQp()


class Scenario(BaseModel):
    """One run. `topology` is a preset's name or a file, relative to the scenario's own.

    The workloads are its phases: each starts as soon as the one before is done. `capture` names the NIC whose frames
    go into a pcapng file. Instead of `topology` and `qp` it may have `variants` of both, by name: `choose` one.
    """

    schema_: Literal[1] = Field(alias="schema")
    name: str = Field(pattern=NAME)
    topology: str = ""
    seed: int = 1
    time_limit_us: float = Field(default=100_000, gt=0)
    sample_us: float = Field(default=10, gt=0)
    control_latency_us: float = Field(default=1000, ge=0)
    capture: str | None = None
    qp: QpSettings = MrcQp()
    variants: dict[Annotated[str, Field(pattern=NAME)], Variant] = {}
    workloads: list[Work] = Field(min_length=1)
    faults: list[Fault] = []

    @model_validator(mode="after")
    def _has_a_fabric(self) -> Self:
        given = self.model_fields_set & {"topology", "qp"}
        if self.variants and given:
            raise ValueError(f"{min(given)} stands beside variants, which have their own")
        if not self.variants and not self.topology:
            raise ValueError("topology is missing, or variants with one each")
        return self

    def choose(self, name: str) -> Scenario:
        """The scenario of one variant. Raises KeyError."""
        variant = self.variants[name]
        update: dict[str, Any] = {
            "name": f"{self.name}-{name}",
            "topology": variant.topology,
            "qp": variant.qp,
            "variants": {},
        }
        return self.model_copy(update=update)


def ns(us: float) -> int:
    """Microseconds, as a file has them, in ns."""
    return round(us * 1000)
