"""How much a QP may have in flight. One interface, so that algorithms can be exchanged.

Bytes are nominal packet sizes (UDP payload + 40, see `nic_model.packet.nominal_size`), times are ns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class CongestionControl(Protocol):
    """A window, moved by what SACKs and losses say."""

    cwnd: int
    """The congestion window, bytes."""

    def on_sack(self, newly: int, rtt: int | None, marked: bool, in_flight: int, now: int) -> str:
        """`newly` bytes were acknowledged; `rtt` where the SACK gave an unambiguous sample; `marked`: ECN-CE.

        Returns what it decided, in words, for the event log; so does `on_loss`.
        """
        ...

    def on_loss(self, size: int, in_flight: int, now: int) -> str:
        """A packet of `size` bytes was trimmed or is taken for lost."""
        ...

    def on_penalty(self, penalty: int, newly: int, in_flight: int) -> None:
        """The responder's host is slow (CC_STATE.rcv_cwnd_pen, 1..127)."""
        ...

    def on_restore(self) -> None:
        """It is not any more (CC_STATE.restore_cwnd)."""
        ...


class Window:
    """What is in flight to one destination, under one congestion control: shared by all QPs that go there."""

    def __init__(self, control: CongestionControl) -> None:
        self.control = control
        self.in_flight = 0

    def admits(self, size: int) -> bool:
        """May `size` bytes more be sent? One packet always may."""
        in_flight = self.in_flight
        return not in_flight or in_flight + size <= self.control.cwnd


@dataclass(slots=True)
class FixedWindow:
    """A window that nothing changes: for runs in which congestion control is not the question."""

    cwnd: int

    def on_sack(self, newly: int, rtt: int | None, marked: bool, in_flight: int, now: int) -> str:  # noqa: ARG002
        """Nothing to learn."""
        return "fixed"

    def on_loss(self, size: int, in_flight: int, now: int) -> str:  # noqa: ARG002
        """Nothing to reduce."""
        return "fixed"

    def on_penalty(self, penalty: int, newly: int, in_flight: int) -> None:
        """Nothing to reduce."""

    def on_restore(self) -> None:
        """Nothing to give back."""


@dataclass(frozen=True, slots=True)
class NsccParameters:
    """The parameters of NSCC by the names of the OCP MRC API ("uet-1.0-nscc"), for one NIC and network.

    `base_rtt`, `target_delay` and `adjust_period_threshold` in ns; `max_cwnd`, `eta`, `fi` and
    `adjust_bytes_threshold` in bytes; `alpha` in bytes per ns; `qa_threshold` in ns; `gamma`, `fi_scale`,
    `max_md_jump` are factors; `qa_gate` is a number of bits.
    """

    base_rtt: int
    max_cwnd: int
    mtu: int
    target_delay: int
    alpha: float
    eta: float
    fi: float
    fi_scale: float
    adjust_bytes_threshold: int
    adjust_period_threshold: int
    gamma: float = 0.8
    max_md_jump: float = 0.5
    qa_gate: int = 3
    qa_threshold: int = 0
    disable_qa: bool = False

    @classmethod
    def scaled(cls, rate_gbps: float, base_rtt: int, mtu: int, trimming: bool = True) -> NsccParameters:
        """From the NIC's total rate and its base RTT, as uet-htsim scales them from 100 Gb/s and 12 us."""
        bdp = rate_gbps * base_rtt / 8
        a = bdp / (100 * 12_000 / 8)
        target_delay = round(base_rtt * (0.75 if trimming else 1.0))
        b = target_delay / 12_000
        return cls(
            base_rtt=base_rtt,
            max_cwnd=round(1.5 * bdp),
            mtu=mtu,
            target_delay=target_delay,
            alpha=4 * mtu * a * b / target_delay,
            eta=0.15 * mtu * a,
            fi=5 * mtu * a,
            fi_scale=0.25 * a,
            adjust_bytes_threshold=8 * mtu,
            adjust_period_threshold=base_rtt,
            qa_threshold=4 * target_delay,
        )


AVERAGE_WEIGHT = 0.0125
"""Of a new delay in the moving average (uet-htsim)."""
NO_DELAY = 0.01
"""A queueing delay below this part of the base RTT counts as none."""


class Nscc:
    """Network-Signalled Congestion Control (UEC 1.0; OCP MRC 1.0 keeps it without receiver credits).

    |            | delay < target_delay           | delay >= target_delay                   |
    |------------|--------------------------------|-----------------------------------------|
    | no ECN     | proportional increase          | fair (additive) increase                |
    | ECN        | nothing: the path is changed   | multiplicative decrease, once a base RTT |

    Quick Adapt: once an RTT, after a trim, a loss or a very large delay, the window becomes what was achieved in that
    RTT, if that was little; then the bytes in flight are left out of account.
    """

    def __init__(self, parameters: NsccParameters) -> None:
        self._p = parameters
        self._cwnd = float(parameters.max_cwnd)
        self.cwnd = parameters.max_cwnd
        """The congestion window, bytes: between one packet and max_cwnd."""
        self._average = 0.0
        self._increase = 0.0  # bytes^2, to be divided by the window
        self._adjusted_at = 0
        self._since_adjusted = 0
        self._decreased_at = 0
        self._without_delay = 0
        self._fast = False
        self._achieved = 0
        self._round_ends = 0
        self._adapt = False
        self._ignore = 0
        self._before_penalty: float | None = None

    def on_sack(self, newly: int, rtt: int | None, marked: bool, in_flight: int, now: int) -> str:
        """See CongestionControl."""
        delay = self._average if rtt is None else float(max(0, rtt - self._p.base_rtt))
        if rtt is not None:
            self._average += AVERAGE_WEIGHT * (delay - self._average)
        self._achieved += newly
        if self._quick_adapt(delay, in_flight, now):
            return "quick adapt"
        if self._ignore > 0:
            self._ignore -= newly
            return "nothing: sent before the quick adapt"
        decision = "nothing: the path is changed"
        if not marked:
            decision = self._grow(newly, delay)
        elif delay >= self._p.target_delay:
            self._fast = False
            decision = self._decrease(now)
        self._since_adjusted += newly
        if self._since_adjusted >= self._p.adjust_bytes_threshold or now - self._adjusted_at >= (
            self._p.adjust_period_threshold
        ):
            self._adjust(now)
        self._clamp()
        return decision

    def on_loss(self, size: int, in_flight: int, now: int) -> str:
        """See CongestionControl."""
        self._adapt = True
        self._fast = False
        self._without_delay = 0
        if self._quick_adapt(0.0, in_flight, now):
            return "quick adapt"
        if self._ignore > 0:
            return "nothing: sent before the quick adapt"
        self._cwnd -= size
        self._clamp()
        return "one packet less"

    def on_penalty(self, penalty: int, newly: int, in_flight: int) -> None:
        """See CongestionControl: `penalty` 128ths of what was acknowledged come off the window (OCP MRC)."""
        if self._before_penalty is None:
            self._before_penalty = self._cwnd
        self._cwnd = min(self._cwnd, in_flight) - (penalty * newly >> 7)
        self._clamp()

    def on_restore(self) -> None:
        """See CongestionControl: what penalties took is given back."""
        if self._before_penalty is not None:
            self._cwnd = max(self._cwnd, self._before_penalty)
            self._before_penalty = None
            self._clamp()

    def _grow(self, newly: int, delay: float) -> str:
        p = self._p
        if delay >= p.target_delay:
            self._fast = False
            self._without_delay = 0
            self._increase += p.fi * newly
            return "fair increase"
        if delay <= NO_DELAY * p.base_rtt:
            self._without_delay += newly
            self._fast = self._fast or self._without_delay > self._cwnd
        else:
            self._without_delay = 0
            self._fast = False
        if self._fast:
            self._cwnd += newly * p.fi_scale
            return "fast increase"
        self._increase += p.alpha * newly * (p.target_delay - delay)
        return "proportional increase"

    def _decrease(self, now: int) -> str:
        p = self._p
        if now - self._decreased_at < p.base_rtt or self._average <= p.target_delay:
            return "nothing: decreased a moment ago, or the average delay is small"
        self._decreased_at = now
        self._increase = 0.0
        self._cwnd *= max(1 - p.gamma * (self._average - p.target_delay) / self._average, p.max_md_jump)
        return "multiplicative decrease"

    def _adjust(self, now: int) -> None:
        self._cwnd += self._increase / self._cwnd
        if now - self._adjusted_at >= self._p.adjust_period_threshold:
            self._cwnd += self._p.eta
            self._adjusted_at = now
        self._increase = 0.0
        self._since_adjusted = 0

    def _quick_adapt(self, delay: float, in_flight: int, now: int) -> bool:
        p = self._p
        if p.disable_qa or now < self._round_ends:
            return False
        wanted = self._adapt or delay > p.qa_threshold
        little = self._achieved < p.max_cwnd >> p.qa_gate
        adapting = bool(self._round_ends) and wanted and little
        if adapting:
            self._cwnd = float(self._achieved)
            self._clamp()
            self._ignore = in_flight
            self._increase = 0.0
        self._adapt = False
        self._achieved = 0
        self._round_ends = now + p.base_rtt + p.target_delay
        return adapting

    def _clamp(self) -> None:
        self._cwnd = min(max(self._cwnd, self._p.mtu), self._p.max_cwnd)  # after each change
        self.cwnd = int(self._cwnd)
