"""The monitor measures a flow, also one that another process copies."""

import asyncio
from dataclasses import replace

from structlog.testing import capture_logs

from twinlog.model import TopicPartition
from twinlog.testing.brokers import eventually
from twinlog.testing.fakes.cluster import Call
from twinlog.wire import connect_json
from twinlog_source.driver.flow_monitor import FOLLOW_SECONDS, FlowMonitor, PositionsFollower
from twinlog_source.driver.state import FlowState
from twinlog_source.log.fact_records import control_key
from twinlog_source.partitions.events import Reported, TopicsChosen
from twinlog_source.partitions.orders import PartitionReport, PartitionState, TaskReport
from twinlog_source.topics.source_ends import SourceEnds
from unit.source.flow_rig import FlowRig
from unit.source.partitions.standing_facts import FACTS


def monitor_of_standby(rig: FlowRig, state: FlowState) -> FlowMonitor:
    return FlowMonitor(
        book=state,
        ends=SourceEnds(
            source=rig.source,
            reader=rig.source.reader(),
            table=state.table,
            read_committed=True,
            clock=rig.clock,
        ),
        follower=PositionsFollower(book=state, decisions=state.decisions, is_owned=lambda: False),
        facts=lambda: replace(FACTS, now=rig.clock.monotonic(), heard_at=lambda _: rig.clock.monotonic()),
    )


async def test_a_record_of_a_later_release_does_not_end_a_standby(rig: FlowRig) -> None:
    """The owner runs a later release already."""
    owner = await rig.owner()
    key = control_key("A", "pause", None, None)
    await owner.journal.append(key, connect_json.dumps({"format": 99, "by": "root", "at_ms": 1}))
    reads: list[Call] = []
    rig.target.intercept("fetch", reads.append)

    def has_read_twice() -> bool:
        rig.clock.advance(FOLLOW_SECONDS)
        return len(reads) > 1

    stop = asyncio.Event()
    monitor = monitor_of_standby(rig, await rig.process())
    async with asyncio.TaskGroup() as group:
        group.create_task(monitor.run(stop), name="monitor")
        await eventually(has_read_twice)
        stop.set()


async def test_a_start_on_a_slow_machine_is_logged_once_and_its_moments_never(rig: FlowRig) -> None:
    state = await rig.process()
    monitor = monitor_of_standby(rig, state)
    place, now = TopicPartition("t", 0), rig.clock.monotonic
    state.table.apply(TopicsChosen(targets={place: "A.t"}, owned=()), now())

    def stand(kind: PartitionState, reason: str, seconds: int) -> list[str]:
        with capture_logs() as lines:
            for _ in range(seconds):
                said = PartitionReport(partition=place, position=1, source_end=9, state=kind, reason=reason)
                report = TaskReport(partitions=(said,))
                state.table.apply(Reported(slot=0, report=report, now_ms=1), now())
                monitor.note_progress()
                monitor.tell_standing()
                rig.clock.advance(1)
        return [line["reason"] for line in lines]

    waiting, faulted, backoff = PartitionState.WAITING, PartitionState.FAULTED, PartitionState.BACKOFF
    assert stand(waiting, "STARTING", 45) == []
    assert stand(backoff, "KAFKA_TIMEOUT", 5) == []
    assert stand(faulted, "ORIGIN_UNKNOWN", 5) == []
    assert stand(waiting, "STARTING", 45) == ["STARTING"]
    assert stand(backoff, "KAFKA_TIMEOUT", 5) == []
    assert stand(backoff, "HIGH_WATERMARK_BEHIND", 45) == ["HIGH_WATERMARK_BEHIND"]
    assert stand(waiting, "BOTH_WAYS", 5) == [], "it becomes translated"


async def test_what_stands_is_logged_once_at_each_place_and_together(rig: FlowRig) -> None:
    state = await rig.process()
    monitor = monitor_of_standby(rig, state)
    every = [TopicPartition("t", number) for number in range(3)]
    state.table.apply(TopicsChosen(targets=dict.fromkeys(every, "A.t"), owned=()), rig.clock.monotonic())

    def look(
        position: int, kind: PartitionState, reason: str, seconds: float = 40.0
    ) -> list[tuple[str, int]]:
        """What is logged after that many seconds of this."""
        said = [
            PartitionReport(partition=each, position=position, source_end=9, state=kind, reason=reason)
            for each in every
        ]
        with capture_logs() as lines:
            for _ in range(3):
                report = TaskReport(partitions=tuple(said))
                state.table.apply(Reported(slot=0, report=report, now_ms=1), rig.clock.monotonic())
                monitor.note_progress()
                monitor.tell_standing()
                rig.clock.advance(seconds)
        return [(line["reason"], line["partitions"]) for line in lines]

    behind = "HIGH_WATERMARK_BEHIND"
    assert look(1, PartitionState.BACKOFF, behind, seconds=1.0) == []
    assert look(1, PartitionState.BACKOFF, behind) == [(behind, 3)]
    assert look(1, PartitionState.BACKOFF, behind) == []
    assert look(1, PartitionState.FAULTED, "RECORD_TOO_LARGE") == [("RECORD_TOO_LARGE", 3)]
    assert look(2, PartitionState.RUNNING, "", seconds=1.0) == []
    assert look(2, PartitionState.BACKOFF, behind) == [(behind, 3)]
    for _ in range(2):
        assert look(3, PartitionState.FAULTED, "ORIGIN_UNKNOWN", seconds=1.0) == [], "it is of a moment"
        assert look(3, PartitionState.RUNNING, "", seconds=8.0) == []
