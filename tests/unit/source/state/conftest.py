"""What the tests of a flow's state share."""

import pytest

from unit.source.state.state_rig import StateRig


@pytest.fixture
async def copied() -> StateRig:
    """Five records, all of them copied; nobody works at it."""
    rig = StateRig()
    await rig.write([b"%d" % n for n in range(5)])
    await rig.position(5)
    await rig.owned()
    return rig
