"""Every frame that the cases send to a device, in hex, for implementations that do not want to build them.

`python -m tests.cases.frames` writes a `.frames.jsonl` beside each file of cases; a test holds them against the cases.
Where a frame reflects what a device chose (an EV, a time), the one written down reflects an example, and says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from tests.cases.arrivals import frames
from tests.cases.expectations import example, wanted
from tests.cases.names import Names
from tests.cases.player import written
from tests.cases.schema import Case, Expectation, Post, Step, case_paths, load_cases


def frames_path(path: Path) -> Path:
    """Where the frames of a file of cases are."""
    return path.with_suffix(".frames.jsonl")


def frame_lines(path: Path) -> Iterator[str]:
    """The lines of that file: one frame each."""
    for case in load_cases(path):
        for record in _Rehearsal(case).records():
            yield json.dumps(record)


class _Rehearsal:
    """A case without a device: what it sends depends on no one but, by example, on what it would receive."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._names = Names(case)
        self._posts: dict[int, Post] = {}
        self._examples = count()
        self._now = 0

    def records(self) -> Iterator[dict[str, object]]:
        """One for each frame."""
        for number, step in enumerate(self._case.steps):
            self._now = self._now + (step.after or 0) if step.at is None else step.at
            for post in step.post_send:
                self._posts |= dict.fromkeys(range(post.wr_id, post.wr_id + post.count), post)
            for arrival in step.receive:
                reflects = arrival.answers or any("." in str(value) for value in arrival.fields.values())
                for frame in frames(arrival, self._names, self._case):
                    shown = {name: value for name, value in frame.fields.items() if name not in _LONG}
                    yield {
                        "case": self._case.id,
                        "step": number,
                        "port": frame.port,
                        "reflects_example": bool(reflects),
                        "fields": shown,
                        "frame": frame.data.hex(),
                    }
            self._remember(step)

    def _remember(self, step: Step) -> None:
        for expectation in [*([step.wait.packet] if step.wait else []), *step.expect]:
            if expectation.bind is not None:
                self._names.bind(expectation.bind, list(self._likely(expectation)))

    def _likely(self, expectation: Expectation) -> Iterator[dict[str, int]]:
        if expectation.one_of is not None:
            expectation = expectation.one_of[0]
        memory = b""
        if expectation.message is not None:
            memory = written(self._posts[expectation.message.wr_id], self._case)
        for packet in wanted(expectation, self._names, self._case, self._posts, memory):
            yield example(packet, next(self._examples), self._now, self._case.planes)


_LONG = frozenset({"eth_dst", "eth_src", "outer_src", "outer_dst", "src", "dst"})
"""Addresses: they are in the frame and follow from port and EV."""


def write_all() -> None:
    """Write the frames of all files of cases."""
    for path in case_paths():
        frames_path(path).write_text("".join(f"{line}\n" for line in frame_lines(path)), encoding="utf-8")


if __name__ == "__main__":
    write_all()
