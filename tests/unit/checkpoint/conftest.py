"""What tests of checkpoint share."""

from collections.abc import AsyncIterator

import pytest

from unit.checkpoint.moves.move_rig import MoveRig, move_rig


@pytest.fixture
async def rig() -> AsyncIterator[MoveRig]:
    """A flow and its mirror, which has copied everything."""
    async with move_rig() as made:
        yield made
