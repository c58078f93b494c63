"""The form of a file of cases, read strictly: every key that is not here is an error with file and line.

README.md explains the keys to whoever writes or plays cases; this module is what they mean to a program.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

from controller.yaml_file import load
from tests.cases.bench import Mode
from tests.cases.wire import Kind, field_names, is_data

HERE = Path(__file__).parent

Value = int | str
"""A number, or an expression over what has a name: `target+256`, `p3.ev`, `1/3`, `SKIP_ONCE`."""
Status = Literal["SUCCESS", "WR_FLUSH_ERR", "REM_INV_REQ_ERR", "REM_ACCESS_ERR", "REM_OP_ERR", "RETRY_EXC_ERR", "ERROR"]
"""IBV_WC_*; ERROR: any of them but SUCCESS."""
QPState = Literal["RTS", "ERR"]
EvState = Literal["GOOD", "SKIP", "ASSUMED_BAD", "DENIED"]
Planes = list[Annotated[int, Field(ge=0, le=7)]]


class _Model(BaseModel):
    model_config = ConfigDict(populate_by_name=True)


# ---- the device under test ---------------------------------------------------------------------------------


class QPSettings(_Model):
    """The QP's attributes by their names on the OCP MRC API, and the EV profile. README.md has the defaults."""

    path_mtu: int = 256
    sq_psn: int = 0x100
    rq_psn: int = 0x100
    mpr: int = 8
    mpr_dest: int = 8
    max_wimm: int = 32
    max_wimm_dest: int = 32
    dynamic_mpr: bool = False
    timeout: int = 7
    linear_cnt: int = 7
    exp_cnt: int = 6


class EvSettings(_Model):
    """How many EVs the profile asks for, over all planes."""

    active: int = 4
    backup: int = 4
    min_active: int | None = None


class RegionSettings(_Model):
    """A memory region of the DUT: `fill` names the pattern it begins with, absent: zeros."""

    length: int
    fill: str | None = None
    remote_write: bool = True
    own_domain: bool = True
    """False: it belongs to another protection domain than the QP."""


# ---- packets to the DUT ------------------------------------------------------------------------------------


class ArrivingMessage(_Model):
    """A message of the peer's, or the packets `part` of it, to be cut into packets of path_mtu."""

    data: str
    to: Value
    rkey: Value | None = None
    msn: int
    rqmsn: int = 0
    psn: int
    """Of its first packet."""
    imm: int | None = None
    part: int | str | None = None
    """`2` or `0..3`: packet numbers within the message; absent: all."""
    count: int = 1
    """So many messages with the same data, one after the other: PSN, MSN and RQMSN go on."""


class Arrival(_Model):
    """One packet to the DUT (`kind`, its `fields`), or a message's, or raw bytes."""

    kind: Kind | None = None
    fields: dict[str, Value] = {}
    payload: str = ""
    message: ArrivingMessage | None = None
    raw: str | None = None
    """A whole frame in hex."""
    answers: str | None = None
    """The packet of the DUT whose EV, time and number this one reflects."""
    cut_to: int | None = None
    """A switch trims the frame to so many bytes and says so in the outer header."""
    flip: list[int] = []
    """Bytes whose bits are all inverted on the way, by offset; negative from the end."""
    copies: int = 1
    bind: Annotated[str | None, Field(alias="as")] = None

    @model_validator(mode="before")
    @classmethod
    def _unfold(cls, data: Any) -> Any:
        return _unfold_kind(data, "set")

    @model_validator(mode="after")
    def _check(self) -> Arrival:
        if sum(part is not None for part in (self.kind, self.message, self.raw)) != 1:
            raise ValueError("an arrival is one packet by its kind, or a message, or raw")
        if self.kind is not None:
            _check_fields(self.kind, self.fields)
        return self


# ---- packets from the DUT ----------------------------------------------------------------------------------


class Constraint(_Model):
    """What a field must be that need not be one number."""

    open: str | None = None
    """Any value; the text says why."""
    not_: Annotated[list[Value] | None, Field(alias="not")] = None
    one_of: list[Value] | None = None
    plane: Planes | None = None
    """Of an EV."""
    in_plane_of: Value | None = None
    """Of an EV: this one, if it is of the same plane."""


Expected = int | str | Constraint


class SentMessage(_Model):
    """The packets `part` of the message that work request `wr_id` makes."""

    wr_id: int
    msn: int
    rqmsn: int | None = None
    """Absent: open for a WRITE without immediate."""
    psn: int
    """Of the message's first packet."""
    part: int | str | None = None
    count: int = 1
    """So many messages of the work requests from `wr_id` on: PSN, MSN and RQMSN go on."""
    ack_req: list[int] = []
    """Packet numbers that ask for an acknowledgement although they are not the last."""


class Expectation(_Model):
    """One packet from the DUT (`kind`, its `fields`), or a message's packets, or one of several alternatives."""

    kind: Kind | None = None
    fields: dict[str, Expected] = {}
    message: SentMessage | None = None
    one_of: list[Expectation] | None = None
    answers: str | None = None
    """The packet of the script whose EV, time and number this one reflects."""
    at: int | Literal["any"] | None = None
    """When it is sent, ns; absent: at the step's time."""
    optional: bool = False
    bind: Annotated[str | None, Field(alias="as")] = None

    @model_validator(mode="before")
    @classmethod
    def _unfold(cls, data: Any) -> Any:
        return _unfold_kind(data, "with")

    @model_validator(mode="after")
    def _check(self) -> Expectation:
        if sum(part is not None for part in (self.kind, self.message, self.one_of)) != 1:
            raise ValueError("an expectation is one packet by its kind, or a message, or one_of")
        if self.kind is not None:
            _check_fields(self.kind, self.fields)
            if is_data(self.kind):
                raise ValueError("data packets of the DUT are expected as the parts of a message")
        return self


def _unfold_kind(data: Any, fields_key: str) -> Any:
    """`{sack: {...}, ...}` is short for `{kind: sack, fields: {...}, ...}`; a message's fields have `fields_key`."""
    if not isinstance(data, dict):
        return data
    rest = dict(data)
    kinds = [key for key in get_args(Kind) if key in rest]
    if len(kinds) == 1:
        rest["kind"], rest["fields"] = kinds[0], rest.pop(kinds[0])
    elif fields_key in rest:
        rest["fields"] = rest.pop(fields_key)
    return rest


def _check_fields(kind: Kind, fields: dict[str, Any]) -> None:
    for name in fields:
        if name not in (*field_names(kind), "ev"):
            raise ValueError(f"a packet {kind} has no field {name}")


# ---- steps -------------------------------------------------------------------------------------------------


class Post(_Model):
    """A work request of the DUT's application: WRITE `write`, a slice of a region, to address `to` of the peer."""

    wr_id: int
    write: str
    to: Value = "remote"
    imm: int | None = None
    count: int = 1
    """So many alike, numbered from `wr_id`."""


class Rule(_Model):
    """A denylist's rule: a plane, or the paths over one T1 (`uplink`) in it."""

    plane: int
    uplink: int | None = None


class Completion(_Model):
    """One completion; what is absent is not looked at."""

    wr_id: int
    status: Status
    byte_len: int | None = None
    imm: int | None = None
    count: int = 1
    """So many alike, numbered from `wr_id`."""


class Completions(_Model):
    """All completions since the last look, in order."""

    send: list[Completion] = []
    recv: list[Completion] = []


class Spread(_Model):
    """How packets that have a name are spread over planes and EVs."""

    of: list[str]
    planes: Planes | None = None
    """Exactly these carry some, and their shares differ by at most one packet."""
    without_plane_of: str | None = None
    """The plane of this EV carries none, the others equal shares."""
    evs: int | None = None
    """So many different EVs."""
    uses: dict[str, int] = {}
    """How many packets went out on an EV."""
    most: int | None = None
    """No EV carries more."""


class Then(_Model):
    """What holds at the end of a step."""

    completions: Completions | None = None
    memory: dict[str, list[str]] = {}
    """Per region, its bytes from the first to the last, in pieces."""
    qp_state: QPState | None = None
    counters: dict[str, int] = {}
    evs: dict[str, EvState] = {}
    spread: list[Spread] = []


class Wait(_Model):
    """Let time pass until the DUT sends a packet, at most `within` ns."""

    packet: Expectation
    within: int


class Step(_Model):
    """What happens at one moment, in the order of these keys, and what it leads to."""

    at: int | None = None
    after: int | None = None
    """ns since the step before."""
    post_recv: int | str | None = None
    """`3` or `1..32`: the wr_ids of receives."""
    post_send: list[Post] = []
    deregister: list[str] = []
    port_down: Planes = []
    port_up: Planes = []
    deny: list[Rule] | None = None
    host_penalty: int | None = None
    receive: list[Arrival] = []
    wait: Wait | None = None
    expect: list[Expectation] = []
    ordered: bool = False
    """The packets of `expect` leave in the order of the list."""
    others: Literal["none", "ignore"] = "none"
    then: Then = Then()

    @model_validator(mode="after")
    def _check(self) -> Step:
        if (self.at is None) == (self.after is None):
            raise ValueError("a step says when: at, or after the step before")
        return self


class Case(_Model):
    """A scripted case: one QP of the DUT, what comes to it, and what must come of it."""

    id: Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)+$")]
    title: str
    rule: Annotated[list[str], Field(min_length=1)]
    """Where the specification says so."""
    role: Literal["requester", "responder", "both"]
    mode: Mode = "srv6"
    planes: Annotated[int, Field(ge=1, le=8)] = 4
    qp: QPSettings = QPSettings()
    evs: EvSettings = EvSettings()
    cwnd: int = 1_000_000
    regions: dict[str, RegionSettings] = {}
    ev_probes: Literal["allowed", "forbidden"] = "allowed"
    refused: dict[str, int] = {}
    """Frames that the DUT counted as refused in the whole case, by reason, and no others."""
    steps: Annotated[list[Step], Field(min_length=1)]


class CaseFile(_Model):
    """A file: cases of one theme."""

    format: Annotated[Literal["mrc-cases/1"], Field(alias="schema")]
    theme: str
    cases: Annotated[list[Case], Field(min_length=1)]


def case_paths() -> list[Path]:
    """All files of cases, by name."""
    return sorted(HERE.glob("*.yaml"))


def load_cases(path: Path) -> list[Case]:
    """The cases of a file. Raises controller.yaml_file.FileError, one line with file, line and key."""
    return load(path, CaseFile).cases
