"""Moves of real size: the number of requests does not grow with groups times partitions."""

import asyncio
from collections import Counter
from collections.abc import Coroutine
from dataclasses import replace

import pytest
from hypothesis import settings

from twinlog.acl_rights import ALLOW
from twinlog.model import Record, TopicPartition
from twinlog.moves.record import Moves
from twinlog.testing.fakes.cluster import Call, FakeCluster
from twinlog.wire import OffsetSync
from twinlog.write_blocks import fence_of
from twinlog_checkpoint.flow.parts import FlowParts
from twinlog_checkpoint.moves.planning.decision import CopyReport, CopyState
from twinlog_checkpoint.moves.planning.plan import MoveAction, MoveOptions
from twinlog_checkpoint.side_by_side import TURN_GROUPS, TURN_ITEMS
from unit.checkpoint.checkpoint_rig import A_TO_B, CheckpointFlowRig, ToldTopics, one_turn
from unit.checkpoint.moves.move_rig import run
from unit.checkpoint.moves.test_move_backlog import replicated

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


def world(groups: int, partitions: int) -> CheckpointFlowRig:
    """A flow whose topics are copied to the end, and as many groups that have read all but one record."""
    topics = ToldTopics()
    fakes = CheckpointFlowRig(known_topics=topics)
    names = [f"t{number:03}" for number in range(partitions // PER_TOPIC)]
    record = Record(offset=-1, timestamp_ms=1, key=None, value=b"v")
    for name in names:
        for cluster, topic in ((fakes.source, name), (fakes.target, f"A.{name}")):
            cluster.add_topic(topic, PER_TOPIC)
            for number in range(PER_TOPIC):
                cluster.append(TopicPartition(topic, number), *[record] * RECORDS)
    topics.known = {name: replicated(fakes, name) for name in names}
    all_partitions = [TopicPartition(name, number) for name in names for number in range(PER_TOPIC)]
    fakes.copy_states.report = CopyReport(
        partitions={each: CopyState(state="RUNNING", position=RECORDS) for each in all_partitions}
    )
    for number in range(groups):
        first = number * OFFSETS_PER_GROUP
        read = [all_partitions[each % partitions] for each in range(first, first + OFFSETS_PER_GROUP)]
        fakes.source.set_group(f"g{number:05}", dict.fromkeys(read, RECORDS - 1))
    return fakes


def with_syncs(fakes: CheckpointFlowRig) -> FlowParts:
    parts = fakes.parts()
    tail = parts.checkpointer.tail
    for partition in fakes.copy_states.report.partitions:
        tail.apply(OffsetSync(partition=partition, upstream_offset=0, downstream_offset=0))
        tail.apply(
            OffsetSync(partition=partition, upstream_offset=RECORDS - 1, downstream_offset=RECORDS - 1)
        )
    tail.store.finish_reading()
    return parts


async def requests_of_a_failover(groups: int, partitions: int) -> Counter[str]:
    """What a plan and a run ask of both clusters."""
    fakes = world(groups, partitions)
    parts = with_syncs(fakes)
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


async def turns_of_others(work: Coroutine[None, None, object]) -> int:
    """How often another task has its turn meanwhile."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while not done.is_set():
            turns += 1
            await one_turn()

    done = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(others(), name="others")
        await one_turn()
        await work
        done.set()
    return turns


async def test_a_large_flow_keeps_nobody_waiting_who_keeps_the_lease() -> None:
    """Neither a pass, nor the writing of group offsets, nor a plan handles all offsets in one go."""
    turns: dict[int, list[int]] = {}
    for groups in (10, 1000):
        fakes = world(groups, 100)
        parts = with_syncs(fakes)
        turns[groups] = [
            await turns_of_others(fakes.do_pass(parts.checkpointer)),
            await turns_of_others(fakes.sync_groups(parts)),
            await turns_of_others(fakes.served(parts).failover.plan(MoveOptions())),
        ]
    offsets = 1000 * OFFSETS_PER_GROUP
    # A turn of the others takes two of the loop's.
    least = [2 * offsets // TURN_ITEMS // 2, 1000 // TURN_GROUPS // 2, 3 * offsets // TURN_ITEMS // 2]
    more = [large - small for small, large in zip(turns[10], turns[1000], strict=True)]
    assert all(got >= wanted for got, wanted in zip(more, least, strict=True)), (more, least)


async def test_groups_that_are_done_with_are_not_searched_for_each_offset() -> None:
    searches = 0

    class Searched(list[str]):
        def __contains__(self, name: object) -> bool:
            nonlocal searches
            searches += 1
            return super().__contains__(name)

    fakes = world(10, 100)
    planner = fakes.served(with_syncs(fakes)).failover.planner
    without = Searched(f"g{number:05}" for number in range(9))
    left = await planner.places.partitions(
        MoveOptions(), from_reachable=True, without=without, moves=Moves(flow=A_TO_B)
    )
    assert {entry.group for entry in left.partitions} == {"g00009"}
    assert searches == 0


async def test_the_moves_of_a_flow_with_thousands_of_topics_fit_into_the_journal() -> None:
    """A first failover with a fence and rights to write, a second one, and the way back."""
    names = [f"payments.domain-{number:05}.events.v1" for number in range(2_000)]
    fakes = CheckpointFlowRig(
        source=FakeCluster("A", authorizer=True), target=FakeCluster("B", authorizer=True)
    )
    for name in names:
        fakes.source.add_topic(name)
        fakes.target.add_topic(f"A.{name}")
        fakes.source.acls.add(replace(fence_of(name), principal="User:app", permission=ALLOW))
    fakes.source.set_group("g", {TopicPartition(names[0], 0): 0})
    parts = fakes.parts()
    parts.checkpointer.tail.store.finish_reading()
    moves = fakes.served(parts)
    fenced = MoveOptions(wait_seconds=0, fence=True, grant_write=True, accept_loss=True)
    for _ in range(2):
        _, report = await run(moves.failover, fenced)
        assert report.plan.fenced_topics == names
        assert set(map(fence_of, names)) <= fakes.source.acls
        assert len(fakes.target.acls) == len(names)
        fakes.source.acls.discard(fence_of(names[0]))
    await run(moves.failback, MoveOptions(wait_seconds=0, accept_loss=True))
    assert fakes.source.acls.isdisjoint(map(fence_of, names))
    assert not fakes.target.acls
