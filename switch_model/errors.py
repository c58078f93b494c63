"""Errors of the switch model."""

from collections.abc import Iterable

from finsy.proto import p4r


class PipelineError(ValueError):
    """A pipeline that can't be loaded: malformed JSON, or a P4Info that does not describe it."""


class UnsupportedError(PipelineError):
    """A construct outside the supported subset of v1model; the message names it and where it stands."""


class StatusError(Exception):
    """A P4Runtime request that is refused. `code` is a google.rpc.Code; `errors` are those of a batch's updates."""

    def __init__(self, code: int, message: str, errors: Iterable[p4r.Error] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.errors = tuple(errors)
