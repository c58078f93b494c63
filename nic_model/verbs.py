"""The verbs that an application sees, shaped and named as rdma-core's pyverbs.

`Context`, `PD`, `MR`, `CQ`, `QP` are objects on one NIC; `SendWR`, `RecvWR`, `SGE`, `WC`, `QPAttr` are the
records that pass between. MRC carries RDMA WRITE and WRITE with immediate, nothing else (OCP MRC 1.0).
Misuse of this interface raises `VerbsError`; what a peer does never raises, it shows in a `WC`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nic_model.device import Device, VerbsQueuePair
    from nic_model.queue_pair import QueuePair

RDMA_MAX_MESSAGE = 1 << 31
"""Bytes in one message (InfiniBand 9.4.3)."""
MPR_UNIT = 128
"""The maximum PSN range is given in units of 128 PSNs (OCP MRC, SACK.mpr)."""


class VerbsError(Exception):
    """The application used the verbs wrongly: a bad argument, a full queue, a wrong state."""


class Access(IntFlag):
    """What may be done with a memory region (IBV_ACCESS_*)."""

    LOCAL_WRITE = 1
    REMOTE_WRITE = 2


class WROpcode(IntEnum):
    """IBV_WR_*: the operations of MRC, numbered as in rdma-core."""

    RDMA_WRITE = 0
    RDMA_WRITE_WITH_IMM = 1


class WCOpcode(IntEnum):
    """IBV_WC_*: what a completion is about."""

    RDMA_WRITE = 1
    RECV_RDMA_WITH_IMM = 129


class WCStatus(IntEnum):
    """IBV_WC_*: how a work request ended."""

    SUCCESS = 0
    LOC_PROT_ERR = 4
    WR_FLUSH_ERR = 5
    REM_INV_REQ_ERR = 9
    REM_ACCESS_ERR = 10
    REM_OP_ERR = 11
    RETRY_EXC_ERR = 12
    FATAL_ERR = 16


class QPState(IntEnum):
    """IBV_QPS_*."""

    RESET = 0
    INIT = 1
    RTR = 2
    RTS = 3
    ERR = 6


@dataclass(frozen=True, slots=True)
class SGE:
    """A piece of local memory: `length` bytes at virtual address `addr` in the region of `lkey`."""

    addr: int
    length: int
    lkey: int


@dataclass(slots=True)
class SendWR:
    """One WRITE or WRITE with immediate. Every send work request makes a completion."""

    wr_id: int
    opcode: WROpcode
    sg: Sequence[SGE]
    remote_addr: int
    rkey: int
    imm_data: int = 0

    def __post_init__(self) -> None:
        length = sum(sge.length for sge in self.sg)
        if any(sge.length < 0 for sge in self.sg):
            raise VerbsError(f"work request {self.wr_id}: sg has a negative length")
        if not 0 <= self.remote_addr <= (1 << 64) - length:
            raise VerbsError(f"work request {self.wr_id}: remote_addr {self.remote_addr} is not in 64 bits to its end")
        for name in ("rkey", "imm_data"):
            if not 0 <= getattr(self, name) < 1 << 32:
                raise VerbsError(f"work request {self.wr_id}: {name} {getattr(self, name)} is not in 32 bits")


@dataclass(slots=True)
class RecvWR:
    """Takes the completion of one incoming immediate; MRC places the data where the WRITE says."""

    wr_id: int


@dataclass(frozen=True, slots=True)
class WC:
    """A work completion. `byte_len` is the message's length, `imm_data` is set for received immediates."""

    wr_id: int
    status: WCStatus
    opcode: WCOpcode
    qp_num: int
    byte_len: int = 0
    imm_data: int | None = None


@dataclass(frozen=True, slots=True)
class QPCap:
    """Queue sizes in work requests."""

    max_send_wr: int = 1024
    max_recv_wr: int = 1024


@dataclass(frozen=True, slots=True)
class QPAttr:
    """The attributes of the three steps to RTS (OCP MRC API, by name).

    INIT: `ev_profile_id`, `cc_profile_id` name profiles that the NIC knows. RTR: the peer's QP number,
    first PSN, address (any of its port addresses), and what this side takes as responder: `mpr_dest` in units of
    128 PSNs, at least 8, and `max_wimm_dest` WRITEs with immediate in flight; with `dynamic_mpr` its SACKs tell the
    peer its MPR, which `Responder.set_mpr` changes; with `silent_above_window` a packet above the window is dropped
    without a NACK. RTS: `mpr`, `max_wimm` are what this side sends at most as
    requester, not more than the peer takes; `timeout` 0..24 is 1.024 us x 2^timeout; `linear_cnt` 0..7 retries at
    that interval are followed by `exp_cnt` 0..25 at doubling ones (25: without end); with `no_trim` its data is of the
    class that switches never trim. PSNs are 24 bits.
    """

    ev_profile_id: int = 0
    cc_profile_id: int = 0
    dest_qp_num: int = 0
    rq_psn: int = 0
    dgid: bytes = b""
    path_mtu: int = 4096
    mpr_dest: int = 8
    dynamic_mpr: bool = False
    max_wimm_dest: int = 32
    sq_psn: int = 0
    mpr: int = 8
    max_wimm: int = 32
    timeout: int = 7
    linear_cnt: int = 7
    exp_cnt: int = 6
    silent_above_window: bool = False
    no_trim: bool = False

    def __post_init__(self) -> None:
        limits = {
            "dest_qp_num": (0, 0xFFFFFF),
            "rq_psn": (0, 0xFFFFFF),
            "sq_psn": (0, 0xFFFFFF),
            "mpr_dest": (8, 255),
            "mpr": (8, 255),
            "max_wimm_dest": (32, 0xFFFF),
            "max_wimm": (32, 0xFFFF),
            "timeout": (0, 24),
            "linear_cnt": (0, 7),
            "exp_cnt": (0, 25),
        }
        for name, (low, high) in limits.items():
            if not low <= getattr(self, name) <= high:
                raise VerbsError(f"QPAttr.{name} is {getattr(self, name)}, must be {low}..{high}")
        if self.path_mtu not in (256, 512, 1024, 2048, 4096):
            raise VerbsError(f"QPAttr.path_mtu is {self.path_mtu}, must be 256, 512, 1024, 2048 or 4096")
        if self.linear_cnt + self.exp_cnt == 0:
            raise VerbsError("QPAttr.linear_cnt and exp_cnt are both 0: one retry is the least")


class Context:
    """An opened device: a NIC."""

    def __init__(self, nic: Device) -> None:
        self.nic = nic


class PD:
    """A protection domain: QPs reach only the memory regions of their own."""

    def __init__(self, context: Context) -> None:
        self.context = context


class MR:
    """A memory region: `length` bytes (or the caller's own `buffer`) that NICs may read and write.

    `addr` is its virtual address in this NIC's address space, `lkey` and `rkey` are its keys.
    """

    def __init__(self, pd: PD, length: int, access: Access, buffer: memoryview | bytearray | None = None) -> None:
        if length < 1:
            raise VerbsError(f"a memory region needs at least 1 byte, not {length}")
        view = memoryview(bytearray(length) if buffer is None else buffer).cast("B")
        if len(view) != length or view.readonly:
            raise VerbsError(f"the buffer of a memory region must be writable and {length} bytes long")
        self.pd = pd
        self.length = length
        self.access = access
        self.allowed = int(access)
        self.buf = view
        self.addr, self.lkey = pd.context.nic.regions.add(self)
        self.rkey = self.lkey

    def read(self, length: int, offset: int = 0) -> bytes:
        """`length` bytes at `offset`."""
        self._check(length, offset)
        return bytes(self.buf[offset : offset + length])

    def write(self, data: bytes, offset: int = 0) -> None:
        """Put `data` at `offset`."""
        self._check(len(data), offset)
        self.buf[offset : offset + len(data)] = data

    def _check(self, length: int, offset: int) -> None:
        if offset < 0 or length < 0 or offset + length > self.length:
            raise VerbsError(f"{length} bytes at offset {offset} are outside a region of {self.length} bytes")

    def close(self) -> None:
        """Deregister: from now on no packet finds it."""
        self.pd.context.nic.regions.remove(self)


class Regions:
    """The memory regions of one NIC, by key."""

    # Regions lie on their own 4 GiB each, so that an address tells which one is meant when it is off by some.
    _SPACING = 1 << 32

    def __init__(self) -> None:
        self._by_key: dict[int, MR] = {}
        self._registered = 0

    def add(self, mr: MR) -> tuple[int, int]:
        """Register; returns (virtual address, key). Keys are never used again."""
        self._registered += 1
        key = self._registered << 8
        self._by_key[key] = mr
        return self._registered * self._SPACING, key

    def remove(self, mr: MR) -> None:
        """Deregister; twice is no error."""
        self._by_key.pop(mr.lkey, None)

    def find(self, key: int, pd: PD, addr: int, length: int, access: int) -> memoryview | None:
        """The bytes [addr, addr + length) if `key` names a region of `pd` that allows it, else None.

        `access` is a plain number made of Access: operations on flags are slow.
        """
        mr = self._by_key.get(key)
        if mr is None or mr.pd is not pd or access & ~mr.allowed:
            return None
        start = addr - mr.addr
        if start < 0 or start + length > mr.length:
            return None
        return mr.buf[start : start + length]

    def pieces(self, pd: PD, wr: SendWR) -> list[memoryview]:
        """The local memory of a send work request. Raises VerbsError if it is not all in regions of `pd`."""
        pieces = []
        for sge in wr.sg:
            piece = self.find(sge.lkey, pd, sge.addr, sge.length, 0)
            if piece is None:
                raise VerbsError(f"work request {wr.wr_id}: {sge} is not inside a region of this PD")
            pieces.append(piece)
        return pieces

    def gather(self, pd: PD, wr: SendWR) -> memoryview:
        """The payload of a send work request. Raises VerbsError as `pieces` does, or if it is too long."""
        pieces = self.pieces(pd, wr)
        if sum(map(len, pieces)) > RDMA_MAX_MESSAGE:
            raise VerbsError(f"work request {wr.wr_id} is longer than {RDMA_MAX_MESSAGE} bytes")
        return pieces[0] if len(pieces) == 1 else memoryview(b"".join(pieces))


class CQ:
    """A completion queue. `channel`, if given, is called after each completion that is added."""

    def __init__(self, context: Context, cqe: int = 65536, channel: Callable[[CQ], None] | None = None) -> None:
        self.context = context
        self.cqe = cqe
        self.channel = channel
        self.overflowed = False
        self._completions: deque[WC] = deque()

    def poll(self, num_entries: int = 1) -> tuple[int, list[WC]]:
        """Up to `num_entries` completions, oldest first: (how many, which)."""
        count = min(num_entries, len(self._completions))
        return count, [self._completions.popleft() for _ in range(count)]

    def add(self, completion: WC) -> None:
        """For the NIC: a work request is complete. A completion that finds the queue full is lost, as on hardware."""
        if len(self._completions) >= self.cqe:
            self.overflowed = True
            return
        self._completions.append(completion)
        if self.channel is not None:
            self.channel(self)


@dataclass(slots=True)
class QPInitAttr:
    """The completion queues and the queue sizes of a new QP."""

    scq: CQ
    rcq: CQ
    cap: QPCap = field(default_factory=QPCap)


class QP:
    """A queue pair. `to_init`, `to_rtr`, `to_rts` take it from RESET to work."""

    def __init__(self, pd: PD, init_attr: QPInitAttr) -> None:
        self._core: VerbsQueuePair = pd.context.nic.create_queue_pair(pd, init_attr)

    @property
    def qp_num(self) -> int:
        """24 bits."""
        return self._core.qpn

    @property
    def qp_state(self) -> QPState:
        """Where it stands."""
        return self._core.state

    @property
    def core(self) -> QueuePair:
        """The MRC endpoint's own object, with counters and EVs. Raises VerbsError if another endpoint made the QP."""
        from nic_model.queue_pair import QueuePair  # which is built on this module

        if not isinstance(self._core, QueuePair):
            raise VerbsError(f"QP {self.qp_num} is not MRC's: its endpoint's queue_pairs() have it")
        return self._core

    def to_reset(self) -> None:
        """Any state -> RESET: outstanding work requests are flushed, the peer is forgotten, the number stays."""
        self._core.to_reset()

    def to_init(self, attr: QPAttr) -> None:
        """RESET -> INIT: choose the profiles."""
        self._core.to_init(attr)

    def to_rtr(self, attr: QPAttr) -> None:
        """INIT -> RTR: learn the peer; from here on it receives."""
        self._core.to_rtr(attr)

    def to_rts(self, attr: QPAttr) -> None:
        """RTR -> RTS: from here on it sends."""
        self._core.to_rts(attr)

    def post_send(self, wr: SendWR) -> None:
        """Queue a WRITE. Its memory must stay as it is until it completes."""
        self._core.post_send(wr)

    def post_recv(self, wr: RecvWR) -> None:
        """Queue a place for one incoming immediate."""
        self._core.post_recv(wr)

    def close(self) -> None:
        """Destroy: outstanding work requests are flushed, and nothing finds the QP any more."""
        self._core.close()
