"""What the next task is told of a partition."""

import pytest

from twinlog.batches import BATCH_LIMITS
from twinlog.kafka.ports import ConfigChange
from twinlog.model import TopicPartition
from twinlog.testing.fakes.cluster import Call
from twinlog_source.partitions.events import Reported
from twinlog_source.partitions.orders import PartitionReport, PartitionState, TaskReport
from twinlog_source.partitions.rows import PartitionRow
from unit.source.flow_rig import FlowRig, P, reported


@pytest.mark.parametrize("name", BATCH_LIMITS)
async def test_a_limit_that_somebody_changed_is_seen_while_batches_are_refused(
    rig: FlowRig, name: str
) -> None:
    state = await rig.owner()
    planned = state.table.plannable()
    for limit in ("1048576", "1048580"):  # From 4.0 on no segment is smaller (KIP-1030).
        changes = {"A.t": [ConfigChange(name=name, value=limit)]}
        assert not any((await rig.target.alter_topic_configs(changes)).values())
        rig.clock.advance(3)
        reported(state, state=PartitionState.FAULTED, reason="RECORD_TOO_LARGE")
        assert await state.plan_is_stale(planned)
        await state.refresh(owned=planned)
        assignment = state.assignment(P)
        assert assignment.max_message_bytes == int(limit)
    reported(state, state=PartitionState.RUNNING)
    rig.clock.advance(3)
    assert not await state.plan_is_stale(planned)


async def test_a_prior_failure_goes_to_the_next_task_unless_its_cause_may_be_gone(rig: FlowRig) -> None:
    state = await rig.owner()
    state.assignment(P)
    report = PartitionReport(
        partition=P,
        position=0,
        state=PartitionState.BACKOFF,
        reason="LEADER_UNAVAILABLE",
        failures=3,
        retry_in_seconds=4.0,
    )
    told = Reported(slot=0, report=TaskReport(partitions=(report,)), now_ms=1)
    state.table.apply(told, rig.clock.monotonic())
    rig.clock.advance(1)
    prior_failure = state.assignment(P).prior_failure
    assert prior_failure is not None
    assert (prior_failure.reason, prior_failure.failures, prior_failure.retry_in_seconds) == (
        "LEADER_UNAVAILABLE",
        3,
        3.0,
    )
    rig.target.add_topic("A.t")
    await rig.say(state.decisions)
    await state.refresh(owned=state.table.plannable())
    assert state.assignment(P).prior_failure is None


async def test_a_flow_of_which_nothing_new_is_told_is_looked_at_less_often_beside_many(rig: FlowRig) -> None:
    """What its tasks tell, what configsync says, and what waits for a task is looked at as soon as ever."""
    rig.flows = 100
    state = await rig.owner()
    asked: list[Call] = []
    rig.source.intercept("describe_topics", asked.append)

    async def looks_after(seconds: float, planned: frozenset[TopicPartition] = frozenset([P])) -> bool:
        before = len(asked)
        rig.clock.advance(seconds)
        await state.plan_is_stale(planned)
        return len(asked) > before

    assert await looks_after(60)
    assert not await looks_after(29)
    reported(state, state=PartitionState.RUNNING)
    assert await looks_after(0)
    assert not await looks_after(29)
    assert await looks_after(1)
    state.topics_changed.set()
    assert await looks_after(10)
    assert await looks_after(10, frozenset())


def test_which_record_was_the_newest_is_not_known_where_no_task_has_told() -> None:
    """The offset before the position may be a marker's: a sync of it leads groups past the last record."""
    assert PartitionRow(partition=P, position=13, target_end=17, target_end_at=13).sync_pace is None
