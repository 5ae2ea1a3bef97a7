"""Moves whose flow back runs in another process: it is in the file, so it counts."""

import asyncio
from pathlib import Path

import pytest

from twinlog.config import Configuration, load
from twinlog.errors import FatalKafkaError, StateError
from twinlog.model import Flow, TopicPartition
from twinlog.policy.replication import IdentityReplicationPolicy
from twinlog.testing.fakes.cluster import Call, FakeCluster
from twinlog.wire import Checkpoint, encode_checkpoint
from twinlog_checkpoint.api.moves_servicer import ServedFlow
from twinlog_checkpoint.assembly import assemble_moves
from twinlog_checkpoint.config import with_flow
from twinlog_checkpoint.moves.planning.plan import MoveOptions
from unit.checkpoint.checkpoint_rig import A_TO_B, B_TO_A, CHECKPOINTS_TOPIC, CheckpointFlowRig, turns
from unit.checkpoint.mirrored_logs import ORIGIN
from unit.checkpoint.moves.move_rig import NO_WAIT, MoveRig, actions, run

SALES = TopicPartition("sales", 0)
ON_A = TopicPartition("B.sales", 0)
TWO_WAY = (
    "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\nA->B.enabled = true\n"
    "B->A.enabled = true\n"
)


def split(rig: MoveRig) -> ServedFlow:
    """The moves of A->B in a process that does not run B->A."""
    elsewhere = {B_TO_A: rig.fakes.reverse_parts(elsewhere=True)}
    served = assemble_moves({A_TO_B: rig.parts}, rig.fakes.around(), elsewhere=elsewhere)[A_TO_B]
    for runner in (served.failover, served.failback):
        runner.drain_look_seconds = runner.planner.rate_seconds = 0
    return served


async def sales(rig: MoveRig, records: int) -> None:
    rig.logs.target.add_topic(SALES.topic)
    async with rig.logs.target.writer() as writer:
        for number in range(records):
            await writer.append(SALES, key=None, value=str(number).encode())


async def test_a_failback_waits_for_what_was_written_to_topics_of_the_target(rig: MoveRig) -> None:
    rig.logs.source.set_group("g", {ORIGIN: 100})
    await sales(rig, 100)
    served = split(rig)
    await run(served.failover)
    plan = await served.failback.plan(NO_WAIT)
    assert plan.records_not_copied == 100

    async def waited() -> None:
        async for _ in served.failback.run(MoveOptions(wait_seconds=5)):
            rig.fakes.clock.advance(10)

    with pytest.raises(StateError) as refused:
        await waited()
    assert refused.value.reason == "BACKLOG_NOT_COPIED"
    assert str(SALES) in str(refused.value)


async def test_an_offset_on_a_topic_of_the_target_makes_a_failback_incomplete(rig: MoveRig) -> None:
    rig.logs.source.set_group("g", {ORIGIN: 100})
    await sales(rig, 10)
    served = split(rig)
    await run(served.failover)
    rig.logs.target.set_group("g", {SALES: 5})
    _, report = await run(served.failback)
    assert any(f"g on {SALES}" in reason for reason in report.left_behind)


async def test_progress_on_a_copy_of_a_topic_of_the_target_moves_there(rig: MoveRig) -> None:
    await sales(rig, 10)
    rig.logs.source.add_topic(ON_A.topic)
    rig.logs.source.set_group("g", {ON_A: 0})
    plan = await split(rig).failover.plan(NO_WAIT)
    (entry,) = plan.partitions
    assert (entry.from_partition, entry.to_partition) == (ON_A, SALES)


async def test_offsets_that_the_other_process_committed_are_not_the_groups_own(rig: MoveRig) -> None:
    await sales(rig, 10)
    for topic in (ON_A.topic, CHECKPOINTS_TOPIC):
        rig.logs.source.add_topic(topic)
    for group in ("told", "own"):
        rig.logs.source.set_group(group, {ON_A: 7 if group == "told" else 3})
        checkpoint = Checkpoint(
            group=group, partition=ON_A, upstream_offset=7, downstream_offset=7, metadata=""
        )
        key, value = encode_checkpoint(checkpoint)
        async with rig.logs.source.writer() as writer:
            await writer.append(TopicPartition(CHECKPOINTS_TOPIC, 0), key=key, value=value)
    plan = await split(rig).failover.plan(NO_WAIT)
    assert actions(plan).keys() == {"own"}


async def test_without_the_other_flows_checkpoints_nobody_knows_which_offsets_are_the_groups_own(
    rig: MoveRig,
) -> None:
    await sales(rig, 10)
    for topic in (ON_A.topic, CHECKPOINTS_TOPIC):
        rig.logs.source.add_topic(topic)
    rig.logs.source.set_group("told", {ON_A: 7})

    async def refuse(call: Call) -> None:
        if CHECKPOINTS_TOPIC in str(call.arguments):
            raise FatalKafkaError("no right to read it", reason="TOPIC_UNAUTHORIZED", code=29)

    rig.logs.source.set_group("moved", {ORIGIN: 100})
    await run(split(rig).failover, MoveOptions(groups=("moved",), wait_seconds=0))
    rig.logs.source.intercept("list_offsets", refuse)
    plan = await split(rig).failover.plan(NO_WAIT)
    with pytest.raises(FatalKafkaError, match="no right to read it"):
        await run(split(rig).failover)
    assert [each.partition(" is not known: ")[0] for each in plan.blockers] == [
        "which offsets the flow in the other direction has committed",
        "which groups have been moved",
    ]
    assert not plan.looked


async def test_a_flow_that_has_never_run_has_copied_nothing() -> None:
    fakes, stop = CheckpointFlowRig(), asyncio.Event()
    parts = fakes.reverse_parts(elsewhere=True)
    tail = parts.checkpointer.tail
    tail.store = type(tail.store)(must_read_to_end=False)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(tail.run(stop), name="tail")
        await turns(lambda: parts.syncs_are_read)
        stop.set()


async def test_a_flow_that_cannot_be_read_blocks_both_moves(rig: MoveRig) -> None:
    rig.logs.source.set_group("g", {ORIGIN: 100})
    why = {B_TO_A: "this process cannot read the flow B->A: no secret"}
    served = assemble_moves({A_TO_B: rig.parts}, rig.fakes.around(), unknown=why)[A_TO_B]
    for runner in (served.failover, served.failback):
        with pytest.raises(StateError, match="no secret") as refused:
            await run(runner)
        assert refused.value.reason == "MOVE_BLOCKED"


async def test_where_names_are_kept_a_flow_back_of_another_process_stands_against_a_fence() -> None:
    fakes = CheckpointFlowRig(
        source=FakeCluster("A", authorizer=True), policy=IdentityReplicationPolicy(source_cluster_alias="A")
    )
    fakes.source.add_topic(ORIGIN.topic)
    async with fakes.running() as parts:
        elsewhere = {B_TO_A: fakes.reverse_parts(elsewhere=True)}
        served = assemble_moves({A_TO_B: parts}, fakes.around(), elsewhere=elsewhere)[A_TO_B]
        plan = await served.failover.plan(MoveOptions(wait_seconds=0, fence=True))
    assert any("flow B->A writes to" in blocker for blocker in plan.blockers)


@pytest.mark.parametrize(
    ("more", "is_there"),
    [
        ("", True),
        ("B->A.emit.checkpoints.enabled = false\n", True),
        ("B->A.emit.offset-syncs.enabled = false\n", True),
        ("B->A.enabled = false\n", False),
    ],
)
@pytest.mark.parametrize("only", [None, [A_TO_B]])
def test_the_flow_back_is_that_of_the_file(
    tmp_path: Path, more: str, is_there: bool, only: list[Flow] | None
) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text(TWO_WAY + more)
    configuration: Configuration = load(file, environ={}, only_flows=only)
    found = with_flow(configuration, B_TO_A)
    assert (found is not None) is is_there
    assert found is None or found.flow(B_TO_A).enabled
