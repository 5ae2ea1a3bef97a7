"""A process that has stood by without its target for hours knows nothing that has been removed meanwhile."""

import pytest

from twinlog.model import TopicPartition
from twinlog.wire.murmur2 import partition_for_key
from twinlog_source.log.fact_records import control_key
from twinlog_source.log.facts import PauseFact
from unit.source.flow_rig import POSITIONS, FlowRig, P

PAUSED = PauseFact(topic=None, partition=None, by="root", at_ms=1)
PLACE = TopicPartition(POSITIONS, partition_for_key(control_key("A", "pause"), 25))


@pytest.mark.parametrize(("away_seconds", "follows"), [(60, False), (7200, False), (7200, True)])
async def test_a_command_that_was_lifted_meanwhile_is_not_in_force_although_its_tombstone_is_gone(
    rig: FlowRig, away_seconds: int, follows: bool
) -> None:
    """Also if it has followed the log again, before it takes over."""
    owner, standby = await rig.owner(), await rig.process()
    await owner.command("pause", None, None, PAUSED)
    await owner.journal.position(P, 5)
    standby.positions.partition_count = 25
    await standby.positions.peek()
    assert standby.control.pauses
    rig.clock.advance(away_seconds)
    end = rig.target.log(PLACE).end_offset
    await owner.command("pause", None, None, None)
    if away_seconds > 3600:
        rig.target.punch_holes(PLACE, range(end + 1))
    if follows:
        await standby.positions.peek()
    await standby.take_over(displaced=False)
    assert not standby.control.pauses
    assert standby.positions.known() == {P: 5}
    assert standby.control.former_claim is not None


async def test_an_owner_that_could_not_reach_its_target_for_hours_keeps_what_is_on_the_log(
    rig: FlowRig,
) -> None:
    owner = await rig.owner()
    await owner.command("pause", None, None, PAUSED)
    await owner.journal.position(P, 5)
    rig.clock.advance(7200)
    await owner.take_over(displaced=False)
    assert owner.control.pauses == {(None, None): PAUSED}
    assert owner.positions.known() == {P: 5}
