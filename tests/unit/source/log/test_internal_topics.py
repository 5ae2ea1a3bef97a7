"""The positions topic is kept small: as the service creates it, and as it finds it."""

import pytest

from twinlog.kafka.admin.compacted_topic import COMPACTED_SOON
from unit.source.flow_rig import POSITIONS, FlowRig

COMPACT = {"cleanup.policy": "compact"}


async def test_the_positions_topic_is_created_so_that_it_is_compacted_soon(rig: FlowRig) -> None:
    await rig.owner("offset.storage.segment.bytes = 1048576")
    configs = rig.target.topics[POSITIONS].configs
    assert configs == {**COMPACT, **COMPACTED_SOON, "segment.bytes": "1048576"}


@pytest.mark.parametrize(
    ("storage", "is_ours"), [(POSITIONS, True), ("connect-offsets", False)], ids=["mm2", "connect"]
)
async def test_only_a_positions_topic_that_has_no_other_purpose_is_changed(
    rig: FlowRig, storage: str, is_ours: bool
) -> None:
    rig.target.add_topic(storage, partition_count=25, configs=COMPACT)
    state = await rig.process(f"offset.storage.topic = {storage}", "offset.storage.segment.ms = 5000")
    await state.ownership.internal.ensure()
    soon = {name: value for name, value in COMPACTED_SOON.items() if name != "segment.ms"}
    assert rig.target.topics[storage].configs == (COMPACT | soon if is_ours else COMPACT)
