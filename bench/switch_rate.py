"""Packets per second of the fabric's program on the embedded switch: ingress, queue and egress, one process.

    .venv/bin/python bench/switch_rate.py [--program DIR]

The packet is an SRv6 uN packet from another switch that is shifted, routed, admitted and sent to the next switch. CPU
time, best round.
"""

import argparse
import time
from collections.abc import Callable
from ipaddress import IPv6Address
from pathlib import Path

from switch_model.codegen import Frame, compile_program
from switch_model.device import Device
from switch_model.ir import ActionCall

PROGRAM = Path(__file__).parents[1] / "p4src" / "build"
ROUNDS = 100
PACKETS = 2_000  # a round
IN_PORT, OUT_PORT = 1, 5
ROUTER_MAC, NEXT_MAC = 0x020000000001, 0x020000000002
DSCP, ECT0 = 10, 2
NO_LIMIT = 1 << 30  # packets
FRAME_SIZE = 4096 + 102


def device(program: Path) -> Device:
    """A switch with one station and SID, 64 routes, one next hop, and limits that nothing reaches."""
    switch = Device(1)
    tables = switch.load(compile_program((program / "mrc_switch.json").read_bytes())).tables
    by_name = {name.rpartition(".")[2]: table for name, table in tables.items()}

    def call(table: str, action: str, *args: int) -> ActionCall:
        names = [item.name.rpartition(".")[2] for item in by_name[table].spec.actions]
        return ActionCall(names.index(action), args)

    station = ((IN_PORT, 0), (ROUTER_MAC, 0))
    by_name["my_station"].insert(station, 0, call("my_station", "admit_frame"))
    by_name["my_sid"].insert(((_address("fcbb:bbbb:1::"), 48),), 0, call("my_sid", "end_un"))
    for usid in range(2, 66):
        prefix = ((_address(f"fcbb:bbbb:{usid:x}::"), 48),)
        by_name["fib"].insert(prefix, 0, call("fib", "route_to", 7))
    by_name["next_hop"].insert(((7, 0),), 0, call("next_hop", "forward", OUT_PORT, ROUTER_MAC, NEXT_MAC))
    out = ((OUT_PORT, 0),)
    by_name["traffic_class"].insert(((DSCP, 0),), 0, call("traffic_class", "classify", 0, 1))
    by_name["queue_limits"].insert(out, 0, call("queue_limits", "set_limits", NO_LIMIT, NO_LIMIT))
    by_name["port_role"].insert(out, 0, call("port_role", "fabric_role", DSCP, 128, NO_LIMIT, 28))
    return switch


def _address(text: str) -> int:
    return int(IPv6Address(text))


def frame() -> Frame:
    """Ethernet, IPv6, IPv6, UDP in the head; payload in the tail."""
    version_class_flow = 6 << 28 | DSCP << 22 | ECT0 << 20
    outer = version_class_flow.to_bytes(4) + bytes.fromhex("1028 29 40") + IPv6Address("fc00::1").packed
    inner = bytes.fromhex("60000000 1000 11 40") + IPv6Address("fc00::1").packed + IPv6Address("fc00::2").packed
    ethernet = ROUTER_MAC.to_bytes(6) + bytes.fromhex("0200000000aa 86dd")
    destination = IPv6Address("fcbb:bbbb:1:2:3::").packed
    head = ethernet + outer + destination + inner + bytes.fromhex("c000 12b7 1000 0000")
    return head, bytes(FRAME_SIZE - len(head))


def best(run: Callable[[], None]) -> float:
    """Microseconds of CPU per packet."""
    times = []
    for _ in range(ROUNDS):
        start = time.process_time_ns()
        run()
        times.append(time.process_time_ns() - start)
    return min(times) / PACKETS / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=PROGRAM, help="where mrc_switch.json is (%(default)s)")
    switch, packet = device(parser.parse_args().program), frame()
    ingress, dequeue = switch.ingress, switch.dequeue

    def whole() -> None:
        for now in range(PACKETS):
            ingress(IN_PORT, packet, now)
            dequeue(OUT_PORT, now)

    def in_only() -> None:
        for now in range(PACKETS):
            ingress(IN_PORT, packet, now)

    def out_only() -> None:
        for now in range(PACKETS):
            dequeue(OUT_PORT, now)

    total = best(whole)
    spent = best(in_only)
    print(f"ingress and egress  {total:5.2f} us a packet  {1e6 / total:9,.0f} packets/s")
    print(f"ingress             {spent:5.2f} us")
    print(f"egress              {best(out_only):5.2f} us")


if __name__ == "__main__":
    main()
