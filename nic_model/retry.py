"""How long to wait for an answer, again and again (OCP MRC 1.0: timeout, linear_cnt, exp_cnt)."""

from __future__ import annotations

TIMEOUT_UNIT = 1024
"""ns; a timeout of n is 1.024 us x 2^n (OCP MRC)."""
ENDLESS = 25
"""exp_cnt that never gives up."""


class RetryTimes:
    """`linear` waits of `timeout` ns are followed by `exponential` ones, each twice as long as the one before.

    With the default counts a silence of 133 timeouts is the end of it.
    """

    def __init__(self, timeout: int, linear: int = 7, exponential: int = 6) -> None:
        self.timeout = timeout
        """The first wait, ns."""
        self._linear = linear
        self._exponential = exponential
        self.waits = 0
        """How many have been begun since the last answer."""

    @property
    def total(self) -> int:
        """How long all waits take together, ns; of those without end, as long as they grow."""
        return self.timeout * (self._linear + (2 << self._exponential) - 2)

    @property
    def exhausted(self) -> bool:
        """All waits are over."""
        return self._exponential != ENDLESS and self.waits >= self._linear + self._exponential

    @property
    def wait(self) -> int:
        """The length of the wait that was begun last, ns."""
        doublings = max(0, self.waits - self._linear)
        return self.timeout << min(doublings, ENDLESS)

    def next_wait(self) -> int:
        """The length of the next wait, ns."""
        self.waits += 1
        return self.wait

    def restart(self) -> None:
        """There was an answer: the next wait is the first again."""
        self.waits = 0
