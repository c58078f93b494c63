"""What a transfer and a probe gave, as text and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich import box
from rich.table import Table

from nic_model.drivers.client import PathResult, WriteResult
from nic_model.drivers.raw import RawDriver

_EVENTS_SHOWN = 20


def untaken(driver: RawDriver) -> dict[str, int]:
    """Frames that came and were not taken, or did not leave, by reason."""
    counts = Counter(driver.nic.counters.refused)
    for port in driver.ports:
        port.count_overrun()
        counts.update(asdict(port.counters))
    return {reason: count for reason, count in sorted(counts.items()) if count}


def untaken_text(counts: dict[str, int]) -> str:
    """`untaken` in one line."""
    hint = "; receive offload joins them: ethtool -K INTERFACE gro off lro off" if "oversized" in counts else ""
    return f"frames not taken: {_listed(counts) or 'none'}{hint}"


def write_record(result: WriteResult, counts: dict[str, int]) -> dict[str, Any]:
    """A transfer as JSON data; `counts` is `untaken`."""
    events = [asdict(event) | {"old": event.old.value, "new": event.new.value} for event in result.ev_events]
    return asdict(result) | {
        "ev_events": events,
        "goodput_mbps": round(result.goodput_mbps, 3),
        "verified": result.verified,
        "untaken": counts,
    }


def write_table(result: WriteResult) -> Table:
    """The shares of the planes."""
    table = Table("plane", "packets", "share", "retransmissions", box=box.SIMPLE_HEAD)
    for plane in result.planes:
        table.add_row(f"{plane.plane}", f"{plane.packets:,}", f"{plane.share:.1%}", f"{plane.retransmissions:,}")
    return table


def write_lines(result: WriteResult, counts: dict[str, int]) -> Iterator[str]:
    """The rest of a transfer."""
    for event in result.ev_events[:_EVENTS_SHOWN]:
        change = f"{event.old.value} -> {event.new.value} ({event.reason})"
        yield f"{event.time / 1e6:9.1f} ms  plane {event.plane} EV {event.value:#010x}: {change}"
    if len(result.ev_events) > _EVENTS_SHOWN:
        yield f"and {len(result.ev_events) - _EVENTS_SHOWN} more EV events"
    if result.losses:
        yield f"taken for lost: {_listed(result.losses)}"
    if counts:
        yield untaken_text(counts)
    yield (
        f"{result.packets:,} packets, {result.retransmissions:,} retransmissions, {result.timeouts:,} timeouts; "
        f"sha256 {result.sha256}"
    )
    if not result.error:
        yield (
            f"{result.peer} has the same {result.payload_bytes:,} bytes, after {result.seconds:.3f} s, "
            f"{result.goodput_mbps:,.0f} Mb/s"
        )


def path_record(path: PathResult) -> dict[str, Any]:
    """A probed path as JSON data; `rtt_us` is the smallest round trip, None if nothing was answered."""
    rtt = round(min(path.rtts) / 1000, 1) if path.rtts else None
    return {
        "plane": path.plane,
        "uplink": path.uplink,
        "sent": path.sent,
        "answered": len(path.rtts),
        "rtt_us": rtt,
    }


def path_table(title: str, paths: list[PathResult]) -> Table:
    """A row for each uplink, a column for each plane: the smallest round trip, and losses if there are any."""
    planes = sorted({path.plane for path in paths})
    table = Table("uplink", *(f"plane {plane}" for plane in planes), title=title, box=box.SIMPLE_HEAD)
    by_place = {(path.plane, path.uplink): path for path in paths}
    for uplink in sorted({path.uplink for path in paths}):
        table.add_row(f"{uplink}", *(_path_text(by_place[plane, uplink]) for plane in planes))
    return table


def _path_text(path: PathResult) -> str:
    if not path.rtts:
        return "lost"
    lost = path.sent - len(path.rtts)
    return f"{min(path.rtts) / 1e6:.3f} ms" + (f", {lost} of {path.sent} lost" if lost else "")


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{reason} {count:,}" for reason, count in counts.items())
