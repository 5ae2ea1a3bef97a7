"""What the tests of the source service share."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from unit.source.flow_rig import FlowRig


@pytest.fixture
async def rig() -> AsyncIterator[FlowRig]:
    async with AsyncExitStack() as stack:
        yield FlowRig(stack=stack)
