"""Every data-plane test runs on both targets; without simple_switch_grpc the BMv2 half says that it was skipped."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from controller.p4runtime import Pipeline
from tests.dataplane.harness import Switch
from tests.dataplane.targets import BMV2, bmv2, embedded


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=["embedded", "bmv2"])
async def switch(request: pytest.FixtureRequest) -> AsyncIterator[Switch]:
    """A switch of either kind, one process for each module; tests give it a pipeline of their own entries."""
    if request.param == "bmv2" and BMV2 is None:
        pytest.skip("no simple_switch_grpc on the PATH")
    async with embedded() if request.param == "embedded" else bmv2() as target:
        yield Switch(target, Pipeline())
