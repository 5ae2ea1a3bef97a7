"""What the tests of groups share."""

import pytest

from unit.checkpoint.checkpoint_rig import FlowOnFakes


@pytest.fixture
def flow() -> FlowOnFakes:
    """`orders` with 3 partitions on A and its copy on B; nothing copied yet."""
    fakes = FlowOnFakes()
    fakes.source.add_topic("orders", 3)
    fakes.target.add_topic("A.orders", 3)
    return fakes
