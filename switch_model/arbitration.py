"""Which client may write to a device (P4Runtime 1.4, "Client Arbitration and Controller Replication").

Knows no gRPC: clients are opaque, and what they are to be told comes back as messages. Only the default role exists.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

from finsy.proto import U128, p4r, rpc_code, rpc_status

from switch_model.status import StatusError

C = TypeVar("C", bound=Hashable)

MAX_CLIENTS = 16
"""Streams per device, as in PI."""


class Arbitration(Generic[C]):
    """The live clients of one device and the highest election id that was ever seen."""

    def __init__(self, device_id: int) -> None:
        self._device_id = device_id
        self._clients: dict[C, int | None] = {}  # election id; None never becomes primary
        self._highest: int | None = None

    @property
    def clients(self) -> list[C]:
        """The live clients."""
        return list(self._clients)

    @property
    def primary(self) -> C | None:
        """The live client with the highest election id ever seen, if there is one."""
        if self._highest is None:
            return None
        return next((client for client, number in self._clients.items() if number == self._highest), None)

    def may_write(self, election_id: int | None) -> bool:
        """Whether a request with this election id comes from the primary. Like PI, a device to which nobody is
        connected takes requests without an election id."""
        if not self._clients:
            return election_id is None
        return self.primary is not None and election_id == self._highest

    def update(self, client: C, request: p4r.MasterArbitrationUpdate) -> dict[C, p4r.MasterArbitrationUpdate]:
        """A MasterArbitrationUpdate of a new or a live client; the notifications that follow from it.

        Raises StatusError, which ends the client's stream.
        """
        _refuse_role(request)
        election_id = U128.decode(request.election_id) if request.HasField("election_id") else None
        others = {number for other, number in self._clients.items() if other != client}
        if election_id is not None and election_id in others:
            raise StatusError(
                rpc_code.INVALID_ARGUMENT,
                f"election id {election_id} is used by another client of device {self._device_id}",
            )
        if client not in self._clients and len(self._clients) >= MAX_CLIENTS:
            raise StatusError(
                rpc_code.RESOURCE_EXHAUSTED, f"device {self._device_id} has {MAX_CLIENTS} clients already"
            )
        was_primary = self.primary == client
        self._clients[client] = election_id
        becomes_primary = election_id is not None and (self._highest is None or election_id >= self._highest)
        if becomes_primary:
            self._highest = election_id
        if becomes_primary or was_primary:
            return self._notify_all()
        return {client: self._notification(client)}

    def disconnect(self, client: C) -> dict[C, p4r.MasterArbitrationUpdate]:
        """The client's stream has ended; the notifications to the others."""
        was_primary = self.primary == client
        self._clients.pop(client, None)
        return self._notify_all() if was_primary else {}

    def _notify_all(self) -> dict[C, p4r.MasterArbitrationUpdate]:
        return {client: self._notification(client) for client in self._clients}

    def _notification(self, client: C) -> p4r.MasterArbitrationUpdate:
        primary = self.primary
        if primary is None:
            status = rpc_status.Status(code=rpc_code.NOT_FOUND, message="there is no primary")
        elif primary == client:
            status = rpc_status.Status(code=rpc_code.OK, message="is primary")
        else:
            status = rpc_status.Status(code=rpc_code.ALREADY_EXISTS, message="is backup")
        highest = None if self._highest is None else U128.encode(self._highest)
        return p4r.MasterArbitrationUpdate(device_id=self._device_id, election_id=highest, status=status)


def _refuse_role(request: p4r.MasterArbitrationUpdate) -> None:
    if request.HasField("role") and (request.role.name or request.role.HasField("config")):
        raise StatusError(rpc_code.UNIMPLEMENTED, f"role '{request.role.name}': only the default role is supported")
