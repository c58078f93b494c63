"""DCQCN: the rate control of RoCEv2 (Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015).

A switch marks CE, the receiver (NP) answers with a CNP, and the sender (RP, section 5 of the paper) paces its QP:

- a CNP cuts the rate: R_T = R_C, R_C = R_C (1 - alpha/2), alpha = (1 - g) alpha + g;
- K without a CNP: alpha = (1 - g) alpha;
- each T, and each B bytes, without a CNP the rate rises. With T_i and B_i the number of such events so far:
      max(T_i, B_i) < F   fast recovery       R_C = (R_T + R_C) / 2
      min(T_i, B_i) > F   hyper increase      R_T = R_T + R_HAI, then as above
      else                additive increase   R_T = R_T + R_AI, then as above
  so that F events of one kind are fast recovery.

A flow starts at line rate. Rates are in Gb/s (bits per ns), times in ns. Nothing runs in the background: a limiter
catches up with the time whenever it is asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from math import ceil
from typing import Protocol

PAPER_RATE = 40
"""Gb/s of the links for which the paper gives its parameters."""
RATE_RESOLUTION = 0.001
"""Gb/s: a rate as near as this to the line rate is the line rate."""


def _about(unit: str, meaning: str, source: str) -> dict[str, str]:
    return {"unit": unit, "meaning": meaning, "source": source}


_PAPER = "Zhu et al. 2015"
_SCALED = "Zhu et al. 2015 at 40 Gb/s, scaled with the line rate"
_AUTHORS = "the authors' ns-3 at 40 Gb/s, scaled with the line rate"


@dataclass(frozen=True, slots=True)
class DcqcnParameters:
    """The parameters of one port by the paper's names in lower case; str() is a table of them with their sources.

    `scaled` gives the paper's values and, for what it does not say, those of its authors' ns-3 (github.com/bobzhuyb/
    ns3-rdma, mix/config.txt); rates and bytes in proportion to the line rate. Others in use, for comparison: the ns-3
    of HPCC (SIGCOMM 2019, run.py; 100 and 400 Gb/s) has r_ai = rate / 5000, r_hai = rate / 500, min_rate = 1 Gb/s,
    f = 1 and, in its vendor's variant, t = 300 us; htsim has r_ai = rate / 20, r_hai = rate / 10.
    """

    line_rate: float = field(metadata=_about("Gb/s", "rate of the port, at which a flow starts", "the topology"))
    r_ai: float = field(metadata=_about("Gb/s", "step of additive increase", _AUTHORS))
    r_hai: float = field(metadata=_about("Gb/s", "step of hyper increase", _AUTHORS))
    min_rate: float = field(
        metadata=_about("Gb/s", "the lowest rate", "line_rate / 100, 1 Gb/s at 100 Gb/s, as HPCC's ns-3, SIGCOMM 2019")
    )
    b: int = field(metadata=_about("bytes", "byte counter of the rate increase", _SCALED))
    t: int = field(default=55_000, metadata=_about("ns", "timer of the rate increase", _PAPER))
    f: int = field(default=5, metadata=_about("events", "of fast recovery", _PAPER))
    g: float = field(default=1 / 256, metadata=_about("", "weight of a new sample in alpha", _PAPER))
    k: int = field(default=55_000, metadata=_about("ns", "without a CNP until alpha decays", _PAPER))
    n: int = field(default=50_000, metadata=_about("ns", "at least between two CNPs for one QP", _PAPER))

    def __post_init__(self) -> None:
        for row in fields(self):
            if getattr(self, row.name) <= 0:
                raise ValueError(f"DCQCN parameter {row.name} is {getattr(self, row.name)}, must be more than 0")
        if self.min_rate > self.line_rate or self.g >= 1:
            raise ValueError(
                f"DCQCN needs min_rate <= line_rate and g < 1: {self.min_rate}, {self.line_rate}, {self.g}"
            )

    @classmethod
    def scaled(cls, rate_gbps: float) -> DcqcnParameters:
        """For a port of `rate_gbps`. At 40 Gb/s r_ai is 40 Mb/s, r_hai 200 Mb/s, and b 10 MB."""
        scale = rate_gbps / PAPER_RATE
        r_ai = 0.040 * scale
        return cls(
            line_rate=rate_gbps, r_ai=r_ai, r_hai=5 * r_ai, min_rate=rate_gbps / 100, b=round(10_000_000 * scale)
        )

    def rows(self) -> Iterator[tuple[str, float, str, str, str]]:
        """(name, value, unit, meaning, source) of each."""
        for row in fields(self):
            about = row.metadata
            yield row.name, getattr(self, row.name), about["unit"], about["meaning"], about["source"]

    def __str__(self) -> str:
        return "\n".join(
            f"{name:9} {value:>14,} {unit:6} {meaning} ({source})" for name, value, unit, meaning, source in self.rows()
        )


class RateLimiter(Protocol):
    """When a QP's next packet may leave."""

    @property
    def send_at(self) -> int:
        """Not before this time, ns."""
        ...

    def on_sent(self, size: int, now: int) -> None:
        """A packet of `size` bytes on the wire leaves."""
        ...

    def on_cnp(self, now: int) -> None:
        """The receiver saw congestion."""
        ...


class LineRate:
    """No rate control: as fast as the port is."""

    send_at = 0

    def on_sent(self, size: int, now: int) -> None:
        """Nothing to pace."""

    def on_cnp(self, now: int) -> None:
        """Nothing to reduce."""


class Dcqcn:
    """The reaction point of one QP. `rate` is R_C and `target` R_T, both in min_rate..line_rate."""

    def __init__(self, parameters: DcqcnParameters) -> None:
        self.rate = self.target = parameters.line_rate
        self.alpha = 1.0
        self._p = parameters
        self._send_at = 0.0
        self._alpha_since: int | None = None  # alpha is 1 until the first CNP
        self._timer_since = 0
        self._timer_events = 0
        self._bytes = 0
        self._byte_events = 0

    @property
    def send_at(self) -> int:
        """See RateLimiter."""
        return ceil(self._send_at)

    def on_sent(self, size: int, now: int) -> None:
        """See RateLimiter. A packet that had to wait for its port costs no rate: one packet's time is made up for."""
        if not self._is_limited:
            self._send_at = now  # the port itself is the pace
            return
        self._catch_up(now)
        gap = size * 8 / self.rate
        self._send_at = max(self._send_at, now - gap) + gap
        self._bytes += size
        while self._bytes >= self._p.b:
            self._bytes -= self._p.b
            self._increase()
            self._byte_events += 1

    def on_cnp(self, now: int) -> None:
        """See RateLimiter."""
        p = self._p
        self._catch_up(now)
        self.target = self.rate
        self.rate = max(self.rate * (1 - self.alpha / 2), p.min_rate)
        self.alpha = (1 - p.g) * self.alpha + p.g
        self._alpha_since = self._timer_since = now
        self._timer_events = self._bytes = self._byte_events = 0

    @property
    def _is_limited(self) -> bool:
        return self.rate < self._p.line_rate

    def _catch_up(self, now: int) -> None:
        p = self._p
        if self._alpha_since is not None:
            intervals = (now - self._alpha_since) // p.k
            self._alpha_since += intervals * p.k
            self.alpha *= (1 - p.g) ** intervals
        while self._is_limited and now - self._timer_since >= p.t:
            self._timer_since += p.t
            self._increase()
            self._timer_events += 1

    def _increase(self) -> None:
        p = self._p
        if min(self._timer_events, self._byte_events) > p.f:
            self.target += p.r_hai
        elif max(self._timer_events, self._byte_events) >= p.f:
            self.target += p.r_ai
        self.target = min(self.target, p.line_rate)
        self.rate = (self.target + self.rate) / 2
        if p.line_rate - self.rate < RATE_RESOLUTION:
            self.rate = p.line_rate
