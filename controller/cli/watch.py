"""`mrcfab routes watch`: keeps switches at their plan and says what it had to do."""

from __future__ import annotations

import asyncio
import signal
import time
from dataclasses import asdict
from typing import Annotated

import typer

from controller.cli.common import (
    P4,
    ElectionId,
    File,
    Json,
    Switches,
    Timeout,
    Verbose,
    bad_input,
    count,
    print_json,
)
from controller.cli.routes import pushed_text, routes_app
from controller.p4runtime import PIPELINE_DIR, Pipeline
from controller.push import DEFAULT_ELECTION_ID, DEFAULT_TIMEOUT, PushResult, chosen
from controller.topology import Topology
from controller.watch import DEFAULT_CHECK, watch


@routes_app.command("watch")
def routes_watch(
    file: File,
    switch: Switches = None,
    p4: P4 = PIPELINE_DIR,
    check: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="Time between two readings of a switch.")
    ] = DEFAULT_CHECK,
    election_id: ElectionId = DEFAULT_ELECTION_ID,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Keep the switches at the plan until Ctrl-C: one that restarts, and forgets everything, is programmed again
    at once, one that drifts is repaired at the next reading. Each line says what was done, or what is wrong.

    Exit codes: 0 ended by Ctrl-C or SIGTERM, 2 bad input.

    Example: mrcfab routes watch demo.yaml
    """
    with bad_input():
        topo = Topology.load(file)
        pipeline = Pipeline(p4)
        total = len(chosen(topo, switch or ()))
        seen: set[str] = set()

        def tell(result: PushResult) -> None:
            if as_json:
                print_json({"time": time.time(), **asdict(result)})
                return
            if result.changed or result.errors or verbose:
                again = "came back empty: " if result.pipeline_set and result.switch in seen else ""
                _say(f"{result.switch}: {again}{pushed_text(result)}")
            if not result.errors and result.switch not in seen:
                seen.add(result.switch)
                if len(seen) == total:
                    _say(f"{count(total, 'switch', 'switches')} as planned, watching; Ctrl-C ends it")

        async def until_stopped() -> None:
            work = asyncio.create_task(
                watch(
                    topo,
                    pipeline,
                    tell,
                    only=switch or (),
                    election_id=election_id,
                    answer_timeout=timeout,
                    check=check,
                )
            )
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, work.cancel)
            await asyncio.wait({work})
            if not work.cancelled():
                work.result()

        asyncio.run(until_stopped())


def _say(text: str) -> None:
    typer.echo(f"{time.strftime('%H:%M:%S')} {text}")
