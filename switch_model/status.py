"""How P4Runtime requests fail."""

from collections.abc import Iterable

from finsy.proto import p4r


class StatusError(Exception):
    """A request that is refused. `code` is a google.rpc.Code; `errors` are those of a batch's updates, if any."""

    def __init__(self, code: int, message: str, errors: Iterable[p4r.Error] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.errors = tuple(errors)
