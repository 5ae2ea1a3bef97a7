"""Moves of real size: the number of requests does not grow with groups times partitions."""

from collections import Counter

import pytest
from hypothesis import settings

from twinlog.kafka.ports import CommittedOffset
from twinlog.model import Record, TopicPartition
from twinlog.testing.fakes.cluster import Call
from twinlog.testing.fakes.cluster_state import FakeGroup
from twinlog.wire import OffsetSync
from twinlog_checkpoint.moves.copy_states import CopyReport, CopyState
from twinlog_checkpoint.moves.plan import MoveAction, MoveOptions
from unit.checkpoint.checkpoint_harness import FlowOnFakes, ToldTopics
from unit.checkpoint.test_move_backlog import replicated
from unit.checkpoint.test_moves import run

RECORDS = 3
PER_TOPIC = 100
OFFSETS_PER_GROUP = 4
OPERATIONS = (
    "list_topics",
    "describe_topics",
    "list_groups",
    "describe_groups",
    "group_offsets",
    "alter_group_offsets",
    "list_offsets",
    "fetch",
    "describe_acls",
    "create_acls",
)


def world(groups: int, partitions: int) -> FlowOnFakes:
    """A flow whose topics are copied to the end, and as many groups that have read all but one record."""
    topics = ToldTopics()
    fakes = FlowOnFakes(known_topics=topics)
    names = [f"t{number:03}" for number in range(partitions // PER_TOPIC)]
    record = Record(offset=-1, timestamp_ms=1, key=None, value=b"v")
    for name in names:
        for cluster, topic in ((fakes.source, name), (fakes.target, f"A.{name}")):
            cluster.add_topic(topic, PER_TOPIC)
            for number in range(PER_TOPIC):
                log = cluster.log(TopicPartition(topic, number), "fill")
                for _ in range(RECORDS):
                    log.append(record)
    topics.known = {name: replicated(fakes, name) for name in names}
    all_partitions = [TopicPartition(name, number) for name in names for number in range(PER_TOPIC)]
    fakes.copy_states.report = CopyReport(
        partitions={each: CopyState(state="RUNNING", position=RECORDS) for each in all_partitions}
    )
    for number in range(groups):
        fakes.source.groups[f"g{number:05}"] = FakeGroup(
            offsets={
                all_partitions[(number * OFFSETS_PER_GROUP + step) % partitions]: CommittedOffset(
                    next_offset=RECORDS - 1
                )
                for step in range(OFFSETS_PER_GROUP)
            }
        )
    return fakes


async def requests_of_a_failover(groups: int, partitions: int) -> Counter[str]:
    """What a plan and a run ask of both clusters."""
    fakes = world(groups, partitions)
    parts = fakes.parts()
    tail = parts.checkpointer.tail
    for partition in fakes.copy_states.report.partitions:
        tail.apply(OffsetSync(partition=partition, upstream_offset=0, downstream_offset=0))
        tail.apply(
            OffsetSync(partition=partition, upstream_offset=RECORDS - 1, downstream_offset=RECORDS - 1)
        )
    tail.store.finish_reading()
    asked: Counter[str] = Counter()

    def count(call: Call) -> None:
        asked[call.operation] += 1

    for cluster in (fakes.source, fakes.target):
        for operation in OPERATIONS:
            cluster.intercept(operation, count)
    failover = fakes.served(parts).failover
    plan = await failover.plan(MoveOptions())
    assert len(plan.partitions) == groups * OFFSETS_PER_GROUP
    assert len(plan.backlog) == partitions
    assert plan.records_not_copied == 0
    _, report = await run(failover, MoveOptions(wait_seconds=60, fence=True))
    assert report.left_behind == []
    assert {entry.action for entry in report.plan.partitions} == {MoveAction.WRITE}
    assert len(fakes.target.groups) == groups
    return asked


LARGE = (5_000, 10_000) if settings().max_examples >= 1_000 else (500, 2_000)
"""Groups and partitions; the larger ones by HYPOTHESIS_PROFILE=exhaustive."""


@pytest.mark.parametrize(("groups", "partitions"), [LARGE])
async def test_the_requests_of_a_failover_do_not_grow_with_groups_times_partitions(
    groups: int, partitions: int
) -> None:
    small = await requests_of_a_failover(10, 100)
    large = await requests_of_a_failover(groups, partitions)
    # Kafka takes the offsets of one group in one request.
    assert (small.pop("alter_group_offsets"), large.pop("alter_group_offsets")) == (10, groups)
    assert large == small
    assert "fetch" not in large
