"""What `switch_model` refuses when a pipeline is loaded."""


class PipelineError(ValueError):
    """A pipeline that can't be loaded: malformed JSON, or a P4Info that does not describe it."""


class UnsupportedError(PipelineError):
    """A construct outside the supported subset of v1model; the message names it and where it stands."""
