"""Runs the PTF suite: `python -m ptf_tests.run embedded|bmv2 ...`, what follows is ptf's.

Starts the switch, has ptf run all tests in random order, stops the switch. Exit code 0: all passed, or there is no
BMv2 and that is said; 1: a test failed; 2: bad input.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.dataplane.processes import BMV2, NO_BMV2, running

ROOT = Path(__file__).resolve().parents[1]
TARGETS = ("embedded", "bmv2")
TEST_TIMEOUT = 60
"""Seconds after which ptf gives up on one test."""


def ptf_command(*arguments: str) -> list[str]:
    """ptf on this suite. Its negative timeout is 0: the tests know when nothing more can come."""
    return [
        *(sys.executable, str(Path(sys.executable).with_name("ptf")), "--pypath", str(ROOT), "--allow-user"),
        *("--test-dir", str(ROOT / "ptf_tests"), "--platform-dir", str(ROOT / "ptf_tests" / "platforms")),
        *("--test-case-timeout", str(TEST_TIMEOUT), "--default-negative-timeout", "0", "--qlen", "20000"),
        *arguments,
    ]


def test_names(selected: list[str]) -> list[str]:
    """Of all tests, or of those that are selected as ptf does it."""
    listed = subprocess.run(
        ptf_command("--list-test-names", "--log-file", os.devnull, *selected), cwd=ROOT, text=True, capture_output=True
    )
    if listed.returncode != 0:
        sys.exit(listed.stdout + listed.stderr)
    return listed.stdout.split()


def run(target: str, seed: int, selected: list[str]) -> int:
    """ptf's exit code. ptf and what its tests start are one process group, and none of it stays."""
    logs = ROOT / "out" / "ptf" / target
    with running(target) as switch:
        arguments = ["--platform", target, "--platform-args", str(switch.addresses), "--log-dir", str(logs), "--quiet"]
        order = ["--test-order", "rand", "--test-order-seed", str(seed), "--random-seed", str(seed)]
        started = time.monotonic()
        ptf = subprocess.Popen(ptf_command(*arguments, *order, *selected), cwd=ROOT, start_new_session=True)
        try:
            code = ptf.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(ptf.pid, signal.SIGKILL)
            ptf.wait()
    print(f"ptf on {target}: {'passed' if code == 0 else 'FAILED'}, seed {seed}, {time.monotonic() - started:.0f} s")
    return code


def main() -> None:
    parser = argparse.ArgumentParser(description="Run the PTF suite on a target.", allow_abbrev=False)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seed", type=int, help="of the order of the tests; a new one each time if not given")
    parser.add_argument("tests", nargs="*", help="names or groups, as ptf takes them; all if none is given")
    arguments = parser.parse_intermixed_args()
    if arguments.target == "bmv2" and BMV2 is None:
        print(f"skipped: {NO_BMV2} ({len(test_names(arguments.tests))} tests)")
        return
    seed = random.randrange(1 << 32) if arguments.seed is None else arguments.seed
    sys.exit(run(arguments.target, seed, arguments.tests))


if __name__ == "__main__":
    main()
