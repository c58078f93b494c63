"""Runs inside a NIC's container: sends frames out of one port and tells which frames came back to it.

Standard input is JSON: `subnet` of the port's link, `frames` to send in hex, `gap` between two in seconds at least,
`count` of frames to wait for, `timeout` in seconds, `ether_dst` of those that count. Standard output is a JSON list of
frames in hex, in the order in which they came.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time

from nic_model.drivers.interface import find

ETH_P_IPV6 = 0x86DD
BUFFER = 1 << 20


def main() -> None:
    order = json.load(sys.stdin)
    wanted = bytes.fromhex(order["ether_dst"])
    came: list[str] = []
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as port:
        port.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
        port.bind((find(order["subnet"]).name, ETH_P_IPV6))
        until = time.monotonic() + order["timeout"]
        due = time.monotonic()
        frames = [bytes.fromhex(frame) for frame in order["frames"]]
        while len(came) < order["count"] and (now := time.monotonic()) < until:
            if frames and now >= due:
                port.send(frames.pop(0))
                due = now + order["gap"]  # never less, or a stall would make a burst
            wait = max(0.0, due - now) if frames else until - now
            if select.select([port], [], [], wait)[0]:
                frame = port.recv(1 << 16)
                if frame.startswith(wanted):
                    came.append(frame.hex())
    json.dump(came, sys.stdout)


main()
