"""How much a QP may have in flight. One interface, so that algorithms can be exchanged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class CongestionControl(Protocol):
    """A window in bytes of nominal packet sizes (UDP payload + 40, see `nic_model.packet.nominal_size`)."""

    @property
    def cwnd(self) -> int:
        """The congestion window, bytes."""
        ...

    def on_sack(self, newly: int, rtt: int | None, marked: bool, now: int) -> None:
        """`newly` bytes were acknowledged; `rtt` in ns where the SACK gave an unambiguous sample."""
        ...

    def on_loss(self, size: int, now: int) -> None:
        """A packet of `size` bytes was trimmed or is taken for lost."""
        ...


@dataclass(slots=True)
class FixedWindow:
    """A window that nothing changes: for runs in which congestion control is not the question."""

    cwnd: int

    def on_sack(self, newly: int, rtt: int | None, marked: bool, now: int) -> None:
        """Nothing to learn."""

    def on_loss(self, size: int, now: int) -> None:
        """Nothing to reduce."""
