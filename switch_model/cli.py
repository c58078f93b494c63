"""`mrcfab switch`: one embedded switch on real interfaces, with the command line of BMv2's `simple_switch_grpc`.

Exit codes: 0 ended by a signal, 1 it could not serve, 2 bad input.
"""

import asyncio
import signal
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand

from switch_model.device import Device
from switch_model.packet_port import PacketPort, PortError
from switch_model.realtime import RealTimeDriver, event_loop
from switch_model.server import P4RuntimeServer

FAILED = 1
BAD_INPUT = 2
MAX_PORT = 510
"""Of a v1model switch; 511 means drop."""
MAX_RATE = 10**9


class _Bmv2Command(TyperCommand):
    """Takes the options that BMv2 has behind `--` wherever they stand."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [argument for argument in args if argument != "--"])


switch_app = typer.Typer()


@switch_app.command("switch", cls=_Bmv2Command)
def switch(
    interface: Annotated[
        list[str] | None, typer.Option("-i", "--interface", metavar="PORT@INTERFACE", help="A port; may be repeated.")
    ] = None,
    device_id: Annotated[int, typer.Option(min=0, help="The P4Runtime device_id.")] = 0,
    grpc_server_addr: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where to serve P4Runtime.")
    ] = "127.0.0.1:9559",
    cpu_port: Annotated[
        int | None, typer.Option(min=1, max=MAX_PORT, help="The port of the controller's frames.")
    ] = None,
    priority_queues: Annotated[int, typer.Option(min=1, max=8, help="Queues of each port.")] = 1,
    queue_rate: Annotated[
        list[str] | None,
        typer.Option(
            metavar="QUEUE=PACKETS/S",
            help="The rate of one queue of each port, as BMv2's set_queue_rate; may be repeated.",
        ),
    ] = None,
    no_p4: Annotated[  # noqa: ARG001
        bool, typer.Option("--no-p4", help="As for BMv2: it waits for a pipeline. It always does.")
    ] = False,
) -> None:
    """Run one switch on real interfaces, until Ctrl-C; it needs CAP_NET_RAW. It stands in for simple_switch_grpc.

    Example: mrcfab switch -i 1@eth0 -i 2@eth1 --no-p4 -- --grpc-server-addr 127.0.0.1:9559 --priority-queues 8
    """
    try:
        ports = _pairs(interface or [], "@", "-i", "PORT@INTERFACE, such as 1@eth0", MAX_PORT)
        rates = _pairs(queue_rate or [], "=", "--queue-rate", "QUEUE=PACKETS/S, such as 0=1000", priority_queues - 1)
        device = Device(device_id, priority_queues=priority_queues, cpu_port=cpu_port)
        packets = {queue: _rate(text) for queue, text in rates.items()}
    except ValueError as error:
        _fail(str(error), BAD_INPUT)
    opened: list[PacketPort] = []
    try:
        opened.extend(PacketPort(number, name) for number, name in ports.items())
        with asyncio.Runner(loop_factory=event_loop) as runner:
            runner.run(_serve(device, opened, packets, grpc_server_addr))
    except (PortError, OSError, RuntimeError) as error:
        _fail(str(error), FAILED)
    finally:
        for port in opened:
            port.close()


async def _serve(device: Device, ports: Sequence[PacketPort], rates: dict[int, int], address: str) -> None:
    server = P4RuntimeServer([device], lambda _, frame: driver.packet_out(frame))
    driver = RealTimeDriver(device, ports, rates, lambda frame: server.deliver_packet_in(device.device_id, frame))
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    bound = await server.start(address)
    try:
        with driver:
            where = ", ".join(f"{port.number}@{port.interface}" for port in ports)
            typer.echo(f"{device.name}: P4Runtime at {bound}; ports {where or 'none'}; Ctrl-C ends it")
            await stop.wait()
    finally:
        await server.stop()
    for port in ports:
        port.count_overrun()
        counters = port.counters
        if counters.overrun or counters.unsent:
            typer.echo(
                f"{device.name}: {port.number}@{port.interface}: {counters.overrun} frames came too fast, "
                f"{counters.unsent} did not leave"
            )


def _pairs(texts: Sequence[str], separator: str, option: str, form: str, limit: int) -> dict[int, str]:
    """Texts of the form NUMBER, separator, VALUE, by number. Raises ValueError."""
    pairs: dict[int, str] = {}
    for text in texts:
        number, _, value = text.partition(separator)
        if not number.isdecimal() or not value:
            raise ValueError(f"{option} is {text!r}, must be {form}")
        if int(number) > limit:
            raise ValueError(f"{option} {text}: {number} is not in 0..{limit}")
        if int(number) in pairs:
            raise ValueError(f"{option} {text}: {number} was given already")
        pairs[int(number)] = value
    return pairs


def _rate(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= MAX_RATE:
        raise ValueError(f"--queue-rate: {text!r} is not a number of packets/s, 1 to {MAX_RATE}")
    return int(text)


def _fail(reason: str, code: int) -> NoReturn:
    typer.echo(f"error: {reason}", err=True)
    raise typer.Exit(code)
