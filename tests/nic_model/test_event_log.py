"""The event log: what is written is what was decided, and the published schema describes it."""

from __future__ import annotations

import io
import json
from dataclasses import fields
from pathlib import Path

import pytest

from nic_model import qp_counters
from nic_model.event_log import EventLog, EventLogError, read, record, schema
from nic_model.events import (
    EVENT_NAMES,
    Event,
    EvEvent,
    EvState,
    LossEvent,
    LossReason,
    PortEvent,
    ProbeEvent,
    ProbeReason,
    QpEvent,
    RetransmissionEvent,
    TimerEvent,
    WindowEvent,
)
from nic_model.packet import Frame, parse
from tests.nic_model.back_to_back import BackToBack

EVENTS: list[Event] = [
    EvEvent(1, 16, 2, 0x4000_0000, EvState.GOOD, EvState.ASSUMED_BAD, "ACK timer", 3),
    LossEvent(2, 16, 7, 2, 0x4000_0000, 1, 1, LossReason.LATE, True),
    RetransmissionEvent(3, 16, 7, 1, 0x2000_0000, 2),
    ProbeEvent(4, 16, 9, 0, 0, ProbeReason.WINDOW),
    TimerEvent(5, 16, 1, 131_077),
    WindowEvent(6, 16, "fair increase", 6_000, False, 4_176, 100_000, 50_000),
    WindowEvent(6, 16, "one packet less", None, False, 0, 95_824, 50_000),
    QpEvent(7, 16, "ERR", "RETRY_EXC_ERR"),
    PortEvent(8, 3, False, None),
]
SCHEMA = Path(__file__).parents[2] / "docs" / "event-log.schema.json"


def test_a_log_reads_back_as_it_was_written(tmp_path: Path) -> None:
    file = io.StringIO()
    log = EventLog(file)
    for event in EVENTS:
        log.add("nic3", event)
    path = tmp_path / "log.jsonl"
    path.write_text(file.getvalue())
    assert list(read(path)) == [("nic3", event) for event in EVENTS]
    assert json.loads(file.getvalue().splitlines()[1]) == {
        "event": "loss", "nic": "nic3", "time": 2, "qpn": 16, "psn": 7, "plane": 2, "value": 0x4000_0000, "sent_at": 1,
        "transmissions": 1, "reason": "later than its path can be", "blamed": True,
    }  # fmt: skip


def test_the_published_schema_is_current_and_knows_every_event() -> None:
    published = json.loads(SCHEMA.read_text())
    assert published == schema()
    by_name = {kind["properties"]["event"]["const"]: kind for kind in published["oneOf"]}
    assert set(by_name) == set(EVENT_NAMES.values()) == {record("", event)["event"] for event in EVENTS}
    for kind, name in EVENT_NAMES.items():
        written = {"event", "nic", *(field.name for field in fields(kind))}
        assert set(by_name[name]["properties"]) == set(by_name[name]["required"]) == written
        assert by_name[name]["additionalProperties"] is False


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[]",
        "{}",
        '{"event": "loss", "nic": "n"}',
        '{"event": "lost", "nic": "n"}',
        '{"event": 1',
        '{"nic": "n", "event": "port", "time": "x", "plane": 0, "up": true, "peer": null}',
    ],
)
def test_a_line_that_is_no_event_is_told_with_its_place(tmp_path: Path, line: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps(record("n", EVENTS[0])) + "\n" + line + "\n")
    events = read(path)
    next(events)
    with pytest.raises(EventLogError, match=r"log\.jsonl:2: not an event: "):
        next(events)


def test_a_qps_counters_are_those_of_its_packets() -> None:
    lost: list[int] = []

    def lose_one(sender: int, _plane: int, frame: Frame, _now: int) -> int | None:
        if not sender and not lost and frame[1]:
            lost.append(parse(frame).envelope.ev)
            return None
        return 2_000

    pair = BackToBack(lose_one)
    source, target = pair.region(0, 100 * 4096), pair.region(1, 100 * 4096)
    pair.write(source, target)
    pair.run()
    mine, other = (qp_counters.record(f"nic{side}", pair.sides[side].qp.core) for side in (0, 1))
    assert json.loads(json.dumps(mine)) == mine
    assert (mine["nic"], mine["qpn"], mine["state"]) == ("nic0", 16, "RTS")
    assert (mine["sent"]["packets"], mine["sent"]["retransmissions"], mine["sent"]["payload_bytes"]) == (
        101,
        1,
        409_600,
    )
    assert sum(mine["sent"]["losses"].values()) == 1
    assert sum(path["packets"] for path in mine["paths"]) == 101
    assert [path["ev"] for path in mine["paths"] if path["losses"]] == lost
    assert (other["received"]["packets"], other["received"]["payload_bytes"]) == (100, 409_600)
