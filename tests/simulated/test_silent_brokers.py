"""What is told of brokers that do not answer, and what nobody begins then."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import grpc
import pytest

from simulated import histories
from simulated.histories import DEFAULT, IDENTITY
from simulated.test_services import BEATS, CHECKPOINT_ADDRESS
from simulated.world import SERVICES, World, live, lives_in
from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.api.checkpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from twinlog.api.common.v1.types_pb2 import Flow
from twinlog.api.source.v1.source_service_pb2 import ListPartitionsRequest
from twinlog.api.source.v1.source_service_pb2_grpc import SourceServiceStub
from twinlog.cli.verdict.issues import Level
from twinlog.cli.verdict.verdict import verdict_of
from twinlog.preflight.checks import judge
from twinlog.preflight.facts import Severity
from twinlog.preflight.gather import gather_facts
from twinlog.service.options import ServiceOptions, load_configuration
from twinlog.testing.broker.faults import Loss
from twinlog.testing.rpc import MemoryRpc

SOURCE_ADDRESS = "127.0.0.1:17401"


@lives_in(World, IDENTITY, seed=1, node_count=3)
async def test_brokers_that_hang_are_the_one_problem_that_is_told(world: World) -> None:
    source = world.on["A"]
    source.cluster.create_topic("orders", partition_count=6)
    for number in range(6):
        source.produce("orders", number, b"first")
    world.start(*SERVICES)
    await histories.copied(world)
    await world.pause(20)
    hung = [world.kafka["B"].faults.begin(node_id=n, hangs=True) for n in (2, 3)]
    for number in range(12):
        source.produce("orders", number % 6, b"%d" % number)
        await world.pause(5)
        if number >= 6:
            (issue,) = verdict_of(await world.status()).pressing
            assert (issue.level, issue.about, issue.reason) == (Level.BAD, "B", "BROKER_SILENT")
            assert "brokers 2, 3 of B do not answer" in issue.message
            assert "of 7 partitions wait" in issue.message
    for each in hung:
        each.ended.set()
    await histories.copied(world)


def test_of_dead_brokers_is_told_where_to_start_them_and_no_factor_is_blamed(tmp_path: Path) -> None:
    async def life() -> None:
        three = IDENTITY.replace("factor = 1", "factor = 3")
        async with World(tmp_path, three, seed=1, node_count=3) as world:
            world.on["A"].cluster.create_topic("orders", partition_count=6)
            world.start(*SERVICES)
            await histories.copied(world)
            await world.pause(30)
            kafka = world.kafka["B"]
            _, second, third = kafka.bootstrap.split(",")
            for node_id in (2, 3):
                await kafka.stop_node(node_id)
            await world.pause(60)
            (issue,) = verdict_of(await world.status()).pressing
            assert (issue.about, issue.reason) == ("B", "BROKER_SILENT")
            assert f": start broker 2 at {second}, and broker 3 at {third}" in issue.message
            assert issue.command.startswith("twinlog preflight ")
            configuration = load_configuration("source", ServiceOptions(config=world.file), environment={})
            found = judge(await gather_facts(configuration, timeout_seconds=10))
            told = [each for each in found if each.level is not Severity.OK and each.about != str(world.file)]
            assert [(each.about, each.check) for each in told if "factor" in each.check] == []
            (brokers,) = [each for each in told if each.check == "brokers"]
            assert brokers.remedy == f"start broker 2 at {second}, and broker 3 at {third}"

    live(life())


@pytest.mark.parametrize("how", [{"hangs": True}, {"loses": Loss.BEFORE}])
@pytest.mark.parametrize(("alias", "silent"), [("A", (1, 3)), ("B", (1, 3)), ("B", (2, 3))])
@lives_in(World, IDENTITY, seed=1, node_count=3)
async def test_preflight_names_the_brokers_that_do_not_answer_and_checks_what_the_others_know(
    world: World, *, alias: str, silent: tuple[int, int], how: dict[str, Any]
) -> None:
    """While two of three hang, or end each connection, and no controller has noticed it."""
    source, kafka = world.on["A"].cluster, world.kafka[alias]
    source.create_topic("orders", partition_count=6)
    world.start(*SERVICES)
    await histories.copied(world)
    for name in SERVICES:
        await world.stop(name)
    source.create_topic("orders.new", partition_count=6)
    led = {name for name, topic in kafka.cluster.topics.items() if topic.partitions[0].leader in silent}
    for number in silent:
        kafka.faults.begin(node_id=number, **how)
    configuration = load_configuration("source", ServiceOptions(config=world.file), environment={})
    began = world.now()
    found = judge(await gather_facts(configuration, timeout_seconds=10))
    assert world.now() - began < 15, "what was found silent once is not asked again"
    places = kafka.bootstrap.split(",")
    (brokers,) = [each for each in found if each.level is Severity.ERROR]
    assert (brokers.about, brokers.check) == (alias, "brokers")
    assert brokers.remedy == "start " + ", and ".join(
        f"broker {number} at {places[number - 1]}" for number in silent
    )
    (reachable,) = [each for each in found if (each.about, each.check) == (alias, "reachable")]
    assert reachable.message.startswith("1 of 3 brokers, ")
    assert {"topics", "replication.factor", "loops"} <= {each.check for each in found}
    open_questions = [each.message for each in found if each.check == "not checked"]
    assert open_questions
    assert all(f"cluster {alias}: " in each for each in open_questions)
    of_new = any("which offsets the copies of orders.new will have" in each for each in open_questions)
    assert of_new == (alias == "A")
    assert any("live" in each for each in open_questions) == ("mm2-configsync.A.internal" in led)


@lives_in(World, IDENTITY, seed=1, node_count=3)
async def test_a_copy_whose_leader_is_gone_says_so(world: World) -> None:
    """Also by a task of a later epoch, which has not read where the copy ends; the source is innocent."""
    source, cluster = world.on["A"], world.on["B"].cluster
    source.cluster.create_topic("orders", partition_count=6)
    for number in range(6):
        source.produce("orders", number, b"first")
    world.start(*SERVICES)
    await histories.copied(world)
    copies = cluster.topics["orders"].partitions
    gone = copies[4].leader
    left = {number for number, copy in enumerate(copies) if copy.leader == gone}
    await world.kafka["B"].stop_node(gone)
    for number in range(50):
        source.produce("orders", number % 6, b"%d" % number)
        await world.pause(1)
        async with MemoryRpc(world.rpc).insecure_channel(SOURCE_ADDRESS) as channel:
            stub = SourceServiceStub(channel)
            told = await stub.ListPartitions(ListPartitionsRequest(), timeout=10)
        stand = [each for each in told.partitions if each.reason]
        assert {each.reason for each in stand} <= {"LEADER_UNAVAILABLE"}
        assert all("cluster B: " in each.message for each in stand)
        assert all(f"its newest records are on broker {gone}" in each.message for each in stand)
    assert left <= {each.source.partition for each in stand}
    assert any(each.source.topic == "heartbeats" for each in stand)


@lives_in(World, f"{BEATS}A->B.topics = orders\n", seed=1, node_count=3)
async def test_a_plan_has_a_row_of_the_group_whose_coordinator_is_gone(world: World) -> None:
    """The group does not exist there, and whether one of its members has come is not known."""
    source, target = world.on["A"], world.on["B"].cluster
    source.cluster.create_topic("orders")
    for number in range(9):
        source.produce("orders", 0, b"%d" % number)
    world.start(*SERVICES)
    for group in ("away", "here"):
        source.commit(group, "orders", {0: 5})
    await world.pause(60)
    before = await plan(world)
    assert [each.action for each in before.partitions] == [pb2.MOVE_ACTION_WRITE] * 2
    target.moved_coordinators[0, "away"] = 2
    await world.kafka["B"].stop_node(2)
    await world.pause(60)
    after = await plan(world)
    away, here = after.partitions
    assert (away.group, away.action, away.verdict) == (
        "away",
        pb2.MOVE_ACTION_SKIP_NO_OFFSET,
        pb2.VERDICT_TARGET_UNREADABLE,
    )
    assert (here.group, here.action) == ("here", pb2.MOVE_ACTION_WRITE)
    assert away.to_offset == here.to_offset == before.partitions[0].to_offset
    assert any("away: cluster B: " in each for each in after.blockers)


@lives_in(World, f"{BEATS}A->B.topics = orders\n", seed=1, node_count=3)
async def test_plans_have_the_groups_of_a_source_coordinator_that_is_gone(world: World) -> None:
    """No broker lists the group any more, and nobody tells whether it is still there."""
    source = world.on["A"]
    source.cluster.create_topic("orders")
    for number in range(9):
        source.produce("orders", 0, b"%d" % number)
    for group in ("away", "here"):
        source.commit(group, "orders", {0: 5})
    world.start(*SERVICES)
    await world.pause(150)
    before = await plan(world)
    leader = source.cluster.topics["orders"].partitions[0].leader
    coordinator = next(each for each in (1, 2, 3) if each != leader)
    source.cluster.moved_coordinators[0, "away"] = coordinator
    await world.kafka["A"].stop_node(coordinator)
    await world.pause(60)
    after = await plan(world)
    away, here = after.partitions
    assert (away.group, away.action, away.verdict, away.from_offset) == (
        "away",
        pb2.MOVE_ACTION_SKIP_NO_OFFSET,
        pb2.VERDICT_SOURCE_UNREADABLE,
        5,
    )
    assert (here.group, here.action) == ("here", pb2.MOVE_ACTION_WRITE)
    assert away.to_offset == here.to_offset == before.partitions[0].to_offset
    assert f"start broker {coordinator}" in after.blockers[0]
    with pytest.raises(grpc.aio.AioRpcError, match="not possible now"):
        await world.move("failover")
    await world.move("failover", groups=["here"])
    back = await plan(world, pb2.MOVE_KIND_FAILBACK)
    assert [each.group for each in back.partitions] == ["here"]
    assert not back.blockers


@lives_in(World, f"{BEATS}A->B.topics = orders\n", seed=1, node_count=3)
async def test_a_plan_says_which_broker_of_the_source_hangs(world: World) -> None:
    """Patience is short while it is known: the others have told what they know before it ends."""
    source = world.on["A"]
    source.cluster.create_topic("orders", partition_count=3)
    for number in range(9):
        source.produce("orders", number % 3, b"%d" % number)
    world.start(*SERVICES)
    source.commit("billing", "orders", {0: 1, 1: 1, 2: 1})
    await world.pause(60)
    hung = source.cluster.topics["orders"].partitions[1].leader
    world.kafka["A"].faults.begin(node_id=hung, hangs=True)
    source.cluster.moved_coordinators[0, "billing"] = next(n for n in (1, 2, 3) if n != hung)
    await world.pause(30)
    told = "; ".join((await plan(world)).blockers)
    assert f"broker {hung} of A does not answer" in told


@lives_in(World, f"{BEATS}A->B.topics = orders\n", seed=1, node_count=3)
async def test_no_run_begins_while_a_copy_has_no_leader(world: World) -> None:
    """It would fence the writers and then wait for records that nobody can copy."""
    source, target = world.on["A"], world.on["B"].cluster
    source.cluster.create_topic("orders", partition_count=3)
    for number in range(9):
        source.produce("orders", number % 3, b"%d" % number)
    world.start(*SERVICES)
    await world.pause(60)
    copies = target.topics["A.orders"].partitions
    gone = copies[1].leader
    await world.kafka["B"].stop_node(gone)
    source.produce("orders", 1, b"more")
    await world.pause(60)
    begin = world.now()
    with pytest.raises(grpc.aio.AioRpcError, match="not possible now") as refused:
        await world.move("failover")
    assert world.now() - begin < 60
    assert f"start broker {gone}" in str(refused.value.details())
    assert "records that cannot be copied now: orders-1" in str(refused.value.details())
    found = await plan(world)
    assert not found.HasField("last")
    assert not found.HasField("estimated")


async def plan(world: World, kind: "pb2.MoveKind.ValueType" = pb2.MOVE_KIND_FAILOVER) -> pb2.MovePlan:
    async with MemoryRpc(world.rpc).insecure_channel(CHECKPOINT_ADDRESS) as channel:
        request = pb2.PlanMoveRequest(flow=Flow(source="A", target="B"), kind=kind)
        told = CheckpointServiceStub(channel).PlanMove(request, timeout=600)
        events = [event async for event in told]
    whole = events[-1].plan
    for event in events:
        whole.partitions.extend(event.part.partitions)
    return whole


@pytest.mark.parametrize("is_elected", [True, False], ids=["the owner works", "nobody knows the owner"])
@lives_in(World, DEFAULT, seed=1, node_count=3)
async def test_what_cannot_be_read_now_is_told_alike_wherever_groups_are_shown(
    world: World, *, is_elected: bool
) -> None:
    """Two of three brokers are dead, and no controller is left that would say so."""
    source, target = world.on["A"], world.on["B"].cluster
    source.cluster.create_topic("orders")
    source.produce("orders", 0, *(b"%d" % number for number in range(9)))
    for group in ("here", "away"):
        source.commit(group, "orders", {0: 5})
    world.start(*SERVICES)
    await histories.copied(world, prefix="A.")
    await world.pause(30)
    before = await world.groups()
    assert {each.verdict for each in before.values()} == {pb2.VERDICT_PRESERVED}
    left = target.topics["A.orders"].partitions[0].leader
    dead = [node_id for node_id in (1, 2, 3) if node_id != left]
    own = left if is_elected else dead[0]
    for group, node_id in (("here", left), ("away", dead[0]), ("twinlog-checkpoint.B", own)):
        target.moved_coordinators[0, group] = node_id
    for node_id in dead:
        await world.kafka["B"].stop_node(node_id, is_noticed=False)
    await world.pause(45)
    unread = pb2.VERDICT_TARGET_UNREADABLE
    expected = {"away": unread, "here": pb2.VERDICT_PRESERVED if is_elected else unread}
    told = await world.groups()
    assert {group: row.verdict for (group, *_), row in told.items()} == expected
    for at, row in told.items():
        assert (row.upstream_offset, row.downstream_offset) == (5, 5)
        assert row.as_of == before[at].as_of or row.verdict != unread
    for group, verdict in expected.items():
        explained = await explain(world, group)
        assert {each.verdict for each in explained.partitions} == {verdict}
        assert explained.translated == (verdict != unread)
        if verdict == unread:
            (cluster,) = explained.findings
            assert (cluster.rule, cluster.passed) == ("CLUSTER", False)
            assert f"start broker {dead[0]} at " in cluster.message
    (flow,) = (await world.status()).flows.values()
    assert flow.groups == Counter(pb2.Verdict.Name(each)[8:] for each in expected.values())
    start = ", and ".join(f"broker {node_id} at [^ ]*" for node_id in dead)
    began = world.now()
    planned = "; ".join((await plan(world)).blockers)
    with pytest.raises(grpc.aio.AioRpcError, match="not possible now") as refused:
        await world.move("failover")
    assert world.now() - began < 20
    for told_by in (planned, str(refused.value.details())):
        cause, _, what_follows = told_by.partition("do not answer")
        assert re.search(f"start {start}", what_follows)
        assert "owns" not in cause
        assert ("no process owns A->B now" in what_follows) == (not is_elected)


async def explain(world: World, group: str) -> pb2.GroupExplanation:
    async with MemoryRpc(world.rpc).insecure_channel(CHECKPOINT_ADDRESS) as channel:
        request = pb2.ExplainGroupRequest(group=group)
        (told,) = (await CheckpointServiceStub(channel).ExplainGroup(request, timeout=100)).explanations
        return told


def test_a_copy_whose_replicas_do_not_follow_says_which_brokers_should(tmp_path: Path) -> None:
    async def life() -> None:
        three = IDENTITY.replace("factor = 1", "factor = 3")
        async with World(tmp_path, three, seed=1, node_count=3) as world:
            source = world.on["A"]
            source.cluster.create_topic("orders")
            source.produce("orders", 0, b"first")
            world.start(*SERVICES)
            await histories.copied(world)
            copy = world.on["B"].partition("orders")
            copy.lagging |= {node_id for node_id in copy.replicas if node_id != copy.leader}
            source.produce("orders", 0, b"second")
            places = [f"{n + 1} at {at}" for n, at in enumerate(world.kafka["B"].bootstrap.split(","))]
            for _ in range(60):
                await world.pause(1)
                async with MemoryRpc(world.rpc).insecure_channel(SOURCE_ADDRESS) as channel:
                    asked = ListPartitionsRequest(source_topic="orders")
                    (told,) = (await SourceServiceStub(channel).ListPartitions(asked, timeout=10)).partitions
                if told.reason == "HIGH_WATERMARK_BEHIND":
                    break
            assert f"in sync (brokers {' and '.join(places)}) not all have the last" in told.message, told

    live(life())
