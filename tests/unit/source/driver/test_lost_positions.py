"""A positions topic that was deleted, created again or cut off: what a process of the flow knows of it is
written again, once."""

import pytest

from twinlog.errors import KafkaError, TransientKafkaError
from twinlog.kafka.reasons import KafkaReason
from twinlog.model import TopicPartition
from twinlog.testing.fakes.cluster import Call
from twinlog_source.driver.ownership import RENEW_SECONDS
from twinlog_source.driver.state import FlowState
from twinlog_source.log.facts import PauseFact
from unit.source.flow_rig import POSITIONS, FlowRig, P, reported
from unit.source.topics.lost_copies_rig import TRANSLATED

PAUSED = PauseFact(topic=None, partition=None, by="root", at_ms=1)


async def renewed(rig: FlowRig, owner: FlowState) -> FlowState:
    """As the driver does it: an owner whose log has lost something takes over again."""
    rig.clock.advance(RENEW_SECONDS)
    await owner.renew()
    if owner.positions.has_lost:
        await owner.take_over(displaced=False)
    return owner


async def standby_of(rig: FlowRig) -> FlowState:
    """A process that has planned nothing, and follows the log."""
    standby = await rig.process(TRANSLATED)
    standby.positions.note_topic(await standby.ownership.internal.positions())
    await standby.positions.peek()
    return standby


async def delete(rig: FlowRig) -> None:
    await rig.target.delete_topics([POSITIONS])


@pytest.mark.parametrize("is_created", [False, True])
async def test_a_later_process_knows_what_was_on_a_topic_that_was_deleted(
    rig: FlowRig, is_created: bool
) -> None:
    """Also if somebody has created it at once."""
    owner = await rig.owner(TRANSLATED)
    await owner.journal.position(P, 5)
    await owner.command("pause", None, None, PAUSED)
    await owner.ownership.check()
    await delete(rig)
    if is_created:
        rig.target.add_topic(POSITIONS, partition_count=25)
        await owner.ownership.note_slots(1)  # It has not noticed, and signs for another epoch.
    assert not (await renewed(rig, owner)).positions.has_lost
    later = await rig.owner(TRANSLATED)
    assert (later.positions.known(), set(later.control.pauses)) == ({P: 5}, {(None, None)})


async def test_a_later_process_knows_what_only_a_lost_tail_had(rig: FlowRig) -> None:
    owner = await rig.owner(TRANSLATED)
    before = {each: rig.target.log(each).end_offset for each in places(rig)}
    await owner.journal.position(P, 5)
    await owner.command("pause", None, None, PAUSED)
    await owner.ownership.check()
    for each, end in before.items():
        rig.target.truncate(each, end)
    await renewed(rig, owner)
    later = await rig.owner(TRANSLATED)
    assert (later.positions.known(), set(later.control.pauses)) == ({P: 5}, {(None, None)})


def places(rig: FlowRig) -> list[TopicPartition]:
    return [
        TopicPartition(POSITIONS, number) for number in range(len(rig.target.topics[POSITIONS].partitions))
    ]


@pytest.mark.parametrize("call", ["list_offsets", "describe_topics"])
async def test_a_broker_that_does_not_know_the_topic_for_a_moment_has_not_lost_it(
    rig: FlowRig, call: str
) -> None:
    owner = await rig.owner(TRANSLATED)
    await owner.journal.position(P, 5)
    await owner.ownership.check()
    ends = {each: rig.target.log(each).end_offset for each in places(rig)}

    def unknown(_call: Call) -> None:
        undo()
        raise TransientKafkaError("no such topic", reason=KafkaReason.TOPIC_UNKNOWN)

    undo = rig.target.intercept(call, unknown)
    rig.clock.advance(RENEW_SECONDS)
    try:
        await owner.renew()
    except KafkaError as error:
        assert error.reason == KafkaReason.TOPIC_UNKNOWN  # noqa: PT017
    await renewed(rig, owner)
    written = sum(rig.target.log(each).end_offset - end for each, end in ends.items())
    assert written <= 2, "it has signed, and written nothing else"


async def test_a_process_that_has_planned_nothing_writes_a_deleted_topic_again(rig: FlowRig) -> None:
    """It knows no copy, which does not mean that all are gone."""
    owner = await rig.owner(TRANSLATED)
    await owner.journal.position(P, 5)
    standby = await standby_of(rig)
    await delete(rig)
    with pytest.raises(KafkaError, match="no such topic"):
        await standby.positions.peek()
    await standby.take_over(displaced=False)
    assert (await rig.owner(TRANSLATED)).table.rows[P].position == 5


async def test_a_standby_forgets_what_its_owner_has_not_written_again(rig: FlowRig) -> None:
    """It was removed before the topic was deleted, and its tombstone is gone."""
    owner = await rig.owner(TRANSLATED)
    await owner.journal.position(P, 5)
    await owner.command("pause", None, None, PAUSED)
    standby = await standby_of(rig)
    await owner.command("pause", None, None, None)
    await owner.ownership.check()
    await delete(rig)
    await renewed(rig, owner)
    await standby.take_over(displaced=False)
    assert (standby.positions.known(), standby.control.pauses) == ({P: 5}, {})
    assert not (await rig.owner(TRANSLATED)).control.pauses


async def test_an_owner_that_was_killed_before_it_had_written_all_again_has_not_signed(rig: FlowRig) -> None:
    owner = await rig.owner(TRANSLATED)
    await owner.journal.position(P, 5)
    await owner.ownership.check()
    standby = await standby_of(rig)
    await delete(rig)
    rig.clock.advance(RENEW_SECONDS)
    await owner.renew()
    appends = 0

    def killed(_call: Call) -> None:
        nonlocal appends
        appends += 1
        if appends > 3:
            raise TransientKafkaError("killed")

    undo = rig.target.intercept("append", killed)
    with pytest.raises(KafkaError, match="killed"):
        await owner.take_over(displaced=False)
    undo()
    await standby.take_over(displaced=False)
    assert (await rig.owner(TRANSLATED)).table.rows[P].position == 5


async def test_a_process_that_leaves_writes_a_deleted_topic_again(rig: FlowRig) -> None:
    """It was deleted since the owner signed last; the next process knows only what the log has."""
    owner = await rig.owner(TRANSLATED)
    await owner.journal.position(P, 5)
    await owner.command("pause", None, None, PAUSED)
    await owner.ownership.check()
    reported(owner, position=7, source_end=20, target_end=7)
    await delete(rig)
    await owner.leave()
    later = await rig.owner(TRANSLATED)
    assert (later.positions.known(), set(later.control.pauses)) == ({P: 7}, {(None, None)})


async def test_copies_that_are_gone_with_the_topic_begin_again_after_a_failure(rig: FlowRig) -> None:
    """The target was built again, and did not take the first claim."""
    owner = await rig.owner(TRANSLATED)
    await owner.journal.position(P, 5)
    await owner.reread([P])
    reported(owner, position=7, source_end=20, target_end=7)
    await owner.target_logs.put_ends_on_log(owner.topics)
    await rig.target.delete_topics([POSITIONS, "A.t"])
    rig.clock.advance(RENEW_SECONDS)
    await owner.renew()

    def fails(_call: Call) -> None:
        raise TransientKafkaError("not now")

    undo = rig.target.intercept("append", fails)
    with pytest.raises(KafkaError, match="not now"):
        await owner.take_over(displaced=False)
    undo()
    await owner.take_over(displaced=False)
    row = owner.table.rows[P]
    assert (owner.positions.known(), row.position, row.target_end) == ({}, 0, None)


async def test_what_a_task_told_before_its_log_was_deleted_is_known_after_it_was_fenced(rig: FlowRig) -> None:
    """It failed, because its positions have no topic any more."""
    owner = await rig.owner(TRANSLATED)
    reported(owner, position=7, target_end=7)
    await delete(rig)
    await owner.ownership.check()
    await owner.reread([P])
    await owner.take_over(displaced=False)
    assert (await rig.owner(TRANSLATED)).table.rows[P].position == 7


async def test_a_log_that_was_deleted_says_of_nobody_that_nothing_was_written(rig: FlowRig) -> None:
    """Its task has written since, and was killed."""
    owner = await rig.owner(TRANSLATED)
    await owner.journal.position(P, 5)
    await rig.store(6, producer_id=77, wrote_nothing=True)
    await owner.reread([P])
    assert owner.table.rows[P].wrote_nothing
    reported(owner, position=7, target_end=1)
    await delete(rig)
    await owner.ownership.check()
    await owner.reread([P])
    row = owner.table.rows[P]
    assert (row.position, row.wrote_nothing) == (7, False)
