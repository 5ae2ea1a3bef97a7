"""What the tests of the source service share."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from unit.source.flow_rig import Site


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        yield Site(stack=stack)
