"""What the next task is told of a partition."""

from twinlog.api.source.v1 import source_service_pb2 as source_pb
from twinlog.kafka.ports import ConfigChange
from twinlog.testing.fakes.cluster_hooks import Call
from twinlog_source.partitions.events import Reported
from twinlog_source.partitions.reports import PartitionReport, TaskReport
from twinlog_source.partitions.states import PartitionState
from unit.source.flow_rig import P, Site, reported


async def test_a_limit_that_somebody_changed_is_seen_while_batches_are_refused(site: Site) -> None:
    estate = await site.owner()
    planned = estate.table.plannable()
    for limit in ("500", "2000"):
        changes = {"A.t": [ConfigChange(name="max.message.bytes", value=limit)]}
        assert not any((await site.target.alter_topic_configs(changes)).values())
        site.clock.advance(3)
        reported(estate, state=source_pb.PARTITION_STATE_FAULTED, reason="RECORD_TOO_LARGE")
        assert await estate.plan_is_stale(planned)
        await estate.refresh(owned=planned)
        assignment = estate.assignment(P)
        assert assignment.topic.target_max_message_bytes == int(limit)
    reported(estate, state=source_pb.PARTITION_STATE_RUNNING)
    site.clock.advance(3)
    assert not await estate.plan_is_stale(planned)


async def test_a_setback_goes_to_the_next_task_unless_its_cause_may_be_gone(site: Site) -> None:
    estate = await site.owner()
    estate.assignment(P)
    report = PartitionReport(
        partition=P,
        position=0,
        state=PartitionState.BACKOFF,
        reason="LEADER_UNAVAILABLE",
        failures=3,
        retry_at_ms=site.clock.now_ms() + 4000,
    )
    estate.table.apply(Reported(slot=0, report=TaskReport(partitions=(report,)), now_ms=1), 1.0)
    setback = estate.assignment(P).setback
    assert setback is not None
    assert (setback.reason, setback.failures, setback.retry_in_ms) == ("LEADER_UNAVAILABLE", 3, 4000)
    site.target.add_topic("A.t")
    site.say(estate.watch)
    await estate.refresh(owned=estate.table.plannable())
    assert estate.assignment(P).setback is None


async def test_a_flow_of_which_nothing_new_is_told_is_looked_at_less_often_beside_many(site: Site) -> None:
    """What its tasks tell, and what configsync says, is looked at as soon as ever."""
    estate = await site.owner()
    estate.flows = 100
    planned = estate.table.plannable()
    looks = 0

    def count(_: Call) -> None:
        nonlocal looks
        looks += 1

    site.source.intercept("describe_topics", count)

    async def looks_after(seconds: float) -> int:
        site.clock.advance(seconds)
        assert not await estate.plan_is_stale(planned)
        return looks

    assert await looks_after(60) == 1
    assert await looks_after(4) == 1
    reported(estate, state=source_pb.PARTITION_STATE_RUNNING)
    assert await looks_after(0) == 2
    assert await looks_after(9) == 2
    assert await looks_after(1) == 3
    estate.topics_changed.set()
    assert await looks_after(1) == 4
