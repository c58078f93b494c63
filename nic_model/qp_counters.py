"""The counters of one QP and of each of its paths, as one JSON object."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from nic_model.queue_pair import QueuePair


def record(nic: str, queue_pair: QueuePair) -> dict[str, Any]:
    """`sent` and `received` are the two halves' counters (null before RTS, RTR), `paths` one object for each EV.

    Packets, or bytes where a name says so; `rtt_ns` is the newest round trip on a path, null before any.
    """
    requester, responder = queue_pair.requester, queue_pair.responder
    sent = None
    if requester is not None:
        losses = {reason.value: count for reason, count in requester.losses.items() if count}
        sent = asdict(requester.counters) | {"losses": losses}
    return {
        "nic": nic,
        "qpn": queue_pair.qpn,
        "state": queue_pair.state.name,
        "sent": sent,
        "received": None if responder is None else asdict(responder.counters),
        "paths": [
            {
                "plane": ev.plane,
                "ev": ev.value,
                "state": ev.state.value,
                "packets": ev.packets,
                "retransmissions": ev.retransmissions,
                "losses": ev.losses,
                "rtt_ns": ev.rtt,
            }
            for ev in (() if requester is None else requester.evs)
        ],
    }
