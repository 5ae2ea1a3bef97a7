"""What the tests of groups share."""

import pytest

from unit.checkpoint.checkpoint_rig import CheckpointFlowRig


@pytest.fixture
def flow() -> CheckpointFlowRig:
    """`orders` with 3 partitions on A and its copy on B; nothing copied yet."""
    fakes = CheckpointFlowRig()
    fakes.source.add_topic("orders", 3)
    fakes.target.add_topic("A.orders", 3)
    return fakes
