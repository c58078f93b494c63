"""What the tests of the switch model share."""

from pathlib import Path
from typing import Any

import finsy as fy
from finsy.proto import p4i, p4r
from google.protobuf import text_format

from switch_model import p4info
from switch_model.codegen import compile_program
from switch_model.device import Device
from switch_model.entities import Config
from switch_model.traffic import DROPPED

PROGRAMS = Path(__file__).parent / "programs"
FABRIC = Path(__file__).parents[2] / "p4src" / "build" / "mrc_switch"


def pipeline_config(program: Path) -> p4r.ForwardingPipelineConfig:
    """The compiled program that stands at `program`.json and `program`.p4info.txtpb."""
    info = text_format.Parse(program.with_suffix(".p4info.txtpb").read_text(), p4i.P4Info())
    return p4r.ForwardingPipelineConfig(p4info=info, p4_device_config=program.with_suffix(".json").read_bytes())


def load(name: str) -> tuple[Device, Config]:
    """A device that runs a program of tests/switch_model/programs, and its tables as P4Runtime sees them."""
    return load_config(pipeline_config(PROGRAMS / name))


def load_config(message: p4r.ForwardingPipelineConfig) -> tuple[Device, Config]:
    compiled = compile_program(message.p4_device_config)
    device = Device(1, seed=1)
    return device, Config(message, p4info.join(message.p4info, compiled.program), device.load(compiled))


def forward(device: Device, frame: bytes, *, port: int = 1, now: int = 0, head: int | None = None) -> bytes | None:
    """What comes out for a frame that goes in, `head` bytes of it in the first part; None if it is dropped."""
    split = len(frame) if head is None else head
    egress_port = device.ingress(port, (frame[:split], frame[split:]), now)
    if egress_port == DROPPED:
        return None
    out = device.dequeue(egress_port, now)
    assert device.occupancy() == 0
    return None if out is None else out[0] + out[1]


class Ids:
    """Ids of a P4Info by alias or name."""

    def __init__(self, info: p4i.P4Info) -> None:
        self._info = info

    def table(self, name: str) -> int:
        return next(t.preamble.id for t in self._info.tables if name in (t.preamble.alias, t.preamble.name))

    def action(self, name: str) -> int:
        return next(a.preamble.id for a in self._info.actions if name in (a.preamble.alias, a.preamble.name))

    def profile(self, name: str) -> int:
        return next(p.preamble.id for p in self._info.action_profiles if name in (p.preamble.alias, p.preamble.name))

    def counter(self, name: str) -> int:
        return next(c.preamble.id for c in self._info.counters if name in (c.preamble.alias, c.preamble.name))


def exact(field: int, value: bytes) -> p4r.FieldMatch:
    return p4r.FieldMatch(field_id=field, exact=p4r.FieldMatch.Exact(value=value))


def lpm(field: int, value: bytes, length: int) -> p4r.FieldMatch:
    return p4r.FieldMatch(field_id=field, lpm=p4r.FieldMatch.LPM(value=value, prefix_len=length))


def ternary(field: int, value: bytes, mask: bytes) -> p4r.FieldMatch:
    return p4r.FieldMatch(field_id=field, ternary=p4r.FieldMatch.Ternary(value=value, mask=mask))


def interval(field: int, low: bytes, high: bytes) -> p4r.FieldMatch:
    return p4r.FieldMatch(field_id=field, range=p4r.FieldMatch.Range(low=low, high=high))


def optional(field: int, value: bytes) -> p4r.FieldMatch:
    return p4r.FieldMatch(field_id=field, optional=p4r.FieldMatch.Optional(value=value))


def call(action_id: int, *args: bytes) -> p4r.TableAction:
    params = [p4r.Action.Param(param_id=place, value=value) for place, value in enumerate(args, 1)]
    return p4r.TableAction(action=p4r.Action(action_id=action_id, params=params))


def insert(entry: p4r.TableEntry) -> p4r.Update:
    return p4r.Update(type=p4r.Update.INSERT, entity=p4r.Entity(table_entry=entry))


def modify(entry: p4r.TableEntry) -> p4r.Update:
    return p4r.Update(type=p4r.Update.MODIFY, entity=p4r.Entity(table_entry=entry))


def delete(entry: p4r.TableEntry) -> p4r.Update:
    return p4r.Update(type=p4r.Update.DELETE, entity=p4r.Entity(table_entry=entry))


async def read_entries(switch: fy.Switch, selector: fy.P4TableEntry) -> list[fy.P4TableEntry]:
    reader: Any = switch  # finsy's annotation of read() makes a coroutine of an async generator
    return [entry async for entry in reader.read(selector)]
