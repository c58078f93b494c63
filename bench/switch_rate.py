"""Packets per second of the fabric's program on the embedded switch: ingress, queue and egress, one process.

    .venv/bin/python bench/switch_rate.py

The packet is an SRv6 uN packet that is shifted, routed and sent: all four tables hit. CPU time, best round.
"""

import time
from collections.abc import Callable
from ipaddress import IPv6Address
from pathlib import Path

from switch_model.codegen import Frame, compile_program
from switch_model.device import Device
from switch_model.ir import ActionCall

PROGRAM = Path(__file__).parents[1] / "p4src" / "build" / "mrc_switch.json"
ROUNDS = 100
PACKETS = 2_000  # a round
IN_PORT, OUT_PORT = 1, 5
ROUTER_MAC, NEXT_MAC = 0x020000000001, 0x020000000002
FRAME_SIZE = 4096 + 102


def device() -> Device:
    """A switch with one station and SID, 64 routes and one next hop."""
    switch = Device(1)
    tables = switch.load(compile_program(PROGRAM.read_bytes())).tables
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
    return switch


def _address(text: str) -> int:
    return int(IPv6Address(text))


def frame() -> Frame:
    """Ethernet, IPv6, IPv6, UDP in the head; payload in the tail."""
    outer = bytes.fromhex("60000000 1028 29 40") + IPv6Address("fc00::1").packed
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
    switch, packet = device(), frame()
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
