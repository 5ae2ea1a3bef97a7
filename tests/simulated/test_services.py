"""What services tell and do where something is missing: rights, a cluster, a peer, records."""

import asyncio
from pathlib import Path

import pytest

from simulated import histories
from simulated.histories import DEFAULT
from simulated.test_whole_life import FILE, copied
from simulated.world import ONE_BROKER, SERVICES, World, live, lives_in
from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.api.checkpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from twinlog.api.common.v1.types_pb2 import Flow
from twinlog.api.heartbeat.v1 import heartbeat_service_pb2 as heartbeat
from twinlog.api.heartbeat.v1.heartbeat_service_pb2_grpc import HeartbeatServiceStub
from twinlog.preflight.gather import gather_facts
from twinlog.service.options import ServiceOptions, load_configuration
from twinlog.testing.broker.acls import (
    CLUSTER_NAME,
    OPERATIONS,
    Acl,
    Authorizer,
    Operation,
    Pattern,
    Permission,
    Resource,
)
from twinlog.testing.broker.faults import Loss
from twinlog.testing.rpc import MemoryRpc
from twinlog.testing.virtual_time import LoopClock
from twinlog.wire.offset_sync import decode_offset_sync

EVERYBODY = "User:*"
OF_PROVIDERS = frozenset({Operation.ALTER, Operation.CLUSTER_ACTION})
CHECKPOINT_ADDRESS = "127.0.0.1:17402"
HEARTBEAT_ADDRESS = "127.0.0.1:17403"
BEATS = f"{ONE_BROKER}A->B.enabled = true\nemit.heartbeats.interval.seconds = 1\n"


@lives_in(World, FILE)
async def test_preflight_finds_records_without_a_key_in_a_compacted_topic(world: World) -> None:
    for topic, key in (("orders.old", None), ("orders.new", b"key")):
        world.on["A"].cluster.create_topic(topic, partition_count=2)
        world.on["A"].produce(topic, 1, b"1", key=b"key")
        world.on["A"].produce(topic, 1, b"2", key=key)
        world.on["A"].cluster.topics[topic].configs["cleanup.policy"] = "compact"
    configuration = load_configuration("source", ServiceOptions(config=world.file), environment={})
    (flow,) = (await gather_facts(configuration, timeout_seconds=10)).flows
    assert {topic.name: topic.keyless for topic in flow.topics} == {
        "orders.old": {1: 1},
        "orders.new": {},
    }


def test_preflight_asks_for_topics_that_the_file_names_and_the_source_does_not_show(tmp_path: Path) -> None:
    async def look() -> None:
        async with World(tmp_path, FILE.replace("orders.*", "orders, payments, later")) as world:
            for topic in ("orders", "payments"):
                world.on["A"].cluster.create_topic(topic)
            rights = world.on["A"].cluster.authorizer = managed()
            for operation in (Operation.DESCRIBE, Operation.READ):
                denied = Acl(
                    Resource.TOPIC, "payments", Pattern.LITERAL, EVERYBODY, "*", operation, Permission.DENY
                )
                rights.add([denied])
            configuration = load_configuration("source", ServiceOptions(config=world.file), environment={})
            (flow,) = (await gather_facts(configuration, timeout_seconds=10)).flows
            assert [topic.name for topic in flow.topics] == ["orders"]
            told = {name: each.reason for name, each in flow.unseen.items()}
            assert told == {"payments": "TOPIC_UNAUTHORIZED", "later": "TOPIC_UNKNOWN"}

    live(look())


class Managed(Authorizer):
    """As a provider's: notes what it was asked for in vain."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: set[Operation] = set()

    def allows(self, principal: str, host: str, operation: Operation, resource: Resource, name: str) -> bool:
        if super().allows(principal, host, operation, resource, name):
            return True
        self.refused.add(operation)
        return False


def managed() -> Managed:
    """All rights but those on the cluster that providers keep for themselves."""
    authorizer = Managed()
    rights = {
        **OPERATIONS,
        Resource.CLUSTER: set(OPERATIONS[Resource.CLUSTER]) - OF_PROVIDERS,
        Resource.TRANSACTIONAL_ID: (Operation.DESCRIBE, Operation.WRITE),
    }
    for resource, operations in rights.items():
        name = CLUSTER_NAME if resource is Resource.CLUSTER else "*"
        authorizer.add(
            Acl(resource, name, Pattern.LITERAL, EVERYBODY, "*", operation, Permission.ALLOW)
            for operation in operations
        )
    return authorizer


@lives_in(World, FILE, seed=11)
async def test_a_managed_target_that_grants_neither_alter_nor_cluster_action_is_enough(world: World) -> None:
    source, target = world.on["A"], world.on["B"]
    rights = target.cluster.authorizer = managed()
    source.cluster.create_topic("orders", partition_count=2)
    source.produce("orders", 0, b"first", b"second")
    world.start(*SERVICES)
    await world.until(lambda: copied(world, "orders"))
    for number in range(5):
        source.transaction("orders", b"paid %d" % number, partitions=2)
        source.transaction("orders", b"not paid", partitions=2, commits=False)
    source.commit("readers", "orders", {0: 4, 1: 2})
    await world.until(lambda: copied(world, "orders"))
    await world.until(lambda: target.committed("readers") == source.committed("readers"))
    for name in ("source", "checkpoint"):
        await world.kill(name)
    source.produce("orders", 1, b"while they are away")
    source.commit("readers", "orders", {0: 4, 1: 4})
    world.start("source", "checkpoint")
    await world.until(lambda: copied(world, "orders"))
    await world.until(lambda: target.committed("readers") == source.committed("readers"))
    await world.move("failover")
    for name in SERVICES:
        await world.stop(name)
    assert not [each for each in world.logged if each["level"] in ("error", "critical")]
    assert rights.refused == OF_PROVIDERS, "nothing else was missing"


async def path(world: World) -> heartbeat.FlowDelay:
    async with MemoryRpc(world.rpc).insecure_channel(HEARTBEAT_ADDRESS) as channel:
        request = heartbeat.ListDelaysRequest(flow=Flow(source="A", target="B"))
        (delay,) = (await HeartbeatServiceStub(channel).ListDelays(request, timeout=10)).delays
        return delay


async def until_path(
    world: World, state: "heartbeat.PathState.ValueType", reason: str
) -> heartbeat.FlowDelay:
    for _ in range(300):
        told = await path(world)
        if (told.state, told.reason) == (state, reason):
            return told
        await world.pause(1)
    raise AssertionError(told)


@lives_in(World, BEATS, seed=12)
async def test_heartbeats_measure_the_delay_and_tell_of_a_path_that_is_cut(world: World) -> None:
    world.start(*SERVICES)
    await world.pause(60)
    alive = await until_path(world, heartbeat.PATH_STATE_ALIVE, "")
    assert alive.observed > 3
    assert alive.emitted >= alive.observed
    assert 0 <= alive.last_delay.ToMilliseconds() <= alive.max_delay.ToMilliseconds() < 5_000
    assert world.on["B"].cluster.topics["heartbeats"].configs["cleanup.policy"] == "compact"
    await world.kill("source")
    await until_path(world, heartbeat.PATH_STATE_SILENT, "HEARTBEAT_MISSING")


@lives_in(World, BEATS.replace("{B}", "{A}"))
async def test_one_cluster_under_two_names_is_refused(world: World) -> None:
    world.start("heartbeat")
    await until_path(world, heartbeat.PATH_STATE_UNKNOWN, "SAME_CLUSTER")


@lives_in(World, BEATS, seed=13)
async def test_a_cluster_that_is_away_is_said_and_ends_nothing(world: World) -> None:
    await world.kafka["A"].stop_node(1)
    world.start(*SERVICES)
    await world.pause(120)
    away = await path(world)
    assert away.state == heartbeat.PATH_STATE_UNKNOWN
    assert away.reason not in ("", "STARTING")
    await world.kafka["A"].start_node(1)
    await until_path(world, heartbeat.PATH_STATE_ALIVE, "")


def test_groups_of_copies_with_the_sources_offsets_are_followed_every_few_seconds(tmp_path: Path) -> None:
    """Without an interval in the file; with one, as often as it says."""

    async def seconds_until_known(interval: str) -> float:
        text = f"{ONE_BROKER}A->B.enabled = true\nsync.group.offsets.enabled = true\n{interval}"
        async with World(tmp_path, text) as world:
            a, b = world.on["A"], world.on["B"]
            a.cluster.create_topic("orders")
            a.produce("orders", 0, *(b"%d" % number for number in range(100)))
            a.commit("billing", "orders", {0: 10})
            world.start(*SERVICES)
            await world.until(lambda: b.committed("billing").get(("A.orders", 0)) == 10)
            await world.pause(70)
            a.commit("billing", "orders", {0: 60})
            began = asyncio.get_running_loop().time()
            await world.until(lambda: b.committed("billing").get(("A.orders", 0)) == 60)
            return asyncio.get_running_loop().time() - began

    async def life() -> None:
        assert await seconds_until_known("") < 12
        assert await seconds_until_known("emit.checkpoints.interval.seconds = 60\n") > 12

    live(life())


@lives_in(World, DEFAULT)
async def test_a_group_past_the_end_of_a_source_that_lost_records_skips_no_record_written_since(
    world: World,
) -> None:
    """An unclean election: what is written then has lower offsets than the group has committed."""
    a, b = world.on["A"], world.on["B"]
    a.cluster.create_topic("orders")
    for number in range(20):
        a.produce("orders", 0, b"%d" % number)
    a.commit("readers", "orders", {0: 18})
    world.start(*SERVICES)
    await world.until(lambda: b.committed("readers") == {("A.orders", 0): 18})
    a.cluster.lose_tail(a.partition("orders"), 5)
    a.produce("orders", 0, *(b"new %d" % number for number in range(10)))
    await world.until(lambda: len(b.read("A.orders")) == 30)
    await world.pause(100)
    assert b.committed("readers") == {("A.orders", 0): 18}
    *_, last = await world.move("failover")
    (moved,) = last.report.plan.partitions
    assert (moved.to_offset, last.report.left_behind) == (18, [])
    assert b.committed("readers") == {("A.orders", 0): 18}


def test_syncs_after_a_killed_source_service_lead_a_group_past_no_record_either_way(tmp_path: Path) -> None:
    """Where the source's last offset is that of a marker, its newest record is not the one before the end."""

    async def life() -> None:
        async with World(tmp_path, DEFAULT + "twinlog.offsets = translated\n") as world:
            source, target = world.on["A"], world.on["B"]
            source.cluster.create_topic("orders")
            source.transaction("orders", b"1", b"2")
            world.start(*SERVICES)
            await histories.copied(world, prefix="A.")
            await world.pause(60)
            await world.kill("source")
            world.start("source")
            await world.pause(60)
            source.produce("orders", 0, b"4")
            await histories.copied(world, prefix="A.")
            await world.pause(30)
            syncs = [
                decode_offset_sync(each.key, each.value)
                for each in source.read("mm2-offset-syncs.B.internal")
            ]
            behind = [
                (
                    [each.value for each in source.read("orders") if each.offset >= sync.upstream_offset],
                    [each.value for each in target.read("A.orders") if each.offset >= sync.downstream_offset],
                )
                for sync in syncs
                if sync.partition.topic == "orders"
            ]
            assert behind
            assert [here for here, _ in behind] == [there for _, there in behind]
            of_records = {each.offset for each in source.read("orders")}
            assert {sync.upstream_offset for sync in syncs if sync.partition.topic == "orders"} <= of_records


@lives_in(World, DEFAULT + "twinlog.offsets = translated\n", seed=3)
async def test_groups_of_a_quiet_topic_whose_offset_syncs_were_all_lost_with_a_task_have_their_places(
    world: World,
) -> None:
    """No record comes that would bring another one."""
    source, target = world.on["A"], world.on["B"]
    source.cluster.create_topic("orders", partition_count=2)
    world.start(*SERVICES)
    await world.until(lambda: "A.orders" in target.cluster.topics)
    await world.pause(20)
    with world.kafka["A"].faults.during(api="produce", loses=Loss.BEFORE):
        for partition in range(2):
            source.produce("orders", partition, b"one", b"two", b"three")
        source.commit("readers", "orders", {0: 3, 1: 2})
        await histories.copied(world, prefix="A.")
        await world.kill_tasks()
    await world.until(lambda: target.committed("readers") == {("A.orders", 0): 4, ("A.orders", 1): 2})
    syncs = source.read("mm2-offset-syncs.B.internal")
    named = {decode_offset_sync(each.key, each.value).partition.topic for each in syncs}
    assert "orders" not in named
    await world.move("failover")
    await world.move("failback")
    assert source.committed("readers") == {("orders", 0): 3, ("orders", 1): 2}


@lives_in(World, DEFAULT + "A->B.sync.group.offsets.enabled = true\n")
async def test_internal_topics_have_no_header_where_copies_have_names_of_their_own(world: World) -> None:
    source, target = world.on["A"], world.on["B"]
    source.cluster.create_topic("orders")
    source.produce("orders", 0, b"1", b"2")
    source.commit("readers", "orders", {0: 1})
    world.start(*SERVICES)
    await world.until(lambda: bool(target.committed("readers")), 120)
    syncs, checkpoints = (
        cluster.read(name)
        for cluster, name in (
            (source, "mm2-offset-syncs.B.internal"),
            (target, "A.checkpoints.internal"),
        )
    )
    assert syncs
    assert checkpoints
    assert not [each for each in (*syncs, *checkpoints) if each.headers]


@pytest.mark.parametrize("last", SERVICES)
def test_a_first_start_warns_of_nothing(tmp_path: Path, last: str) -> None:
    """Whichever service is the last to be there, and whichever topic of Twinlog's own is not there yet."""

    async def look() -> None:
        file = f"{ONE_BROKER}A->B.enabled = true\nB->A.enabled = true\nsync.group.offsets.enabled = true\n"
        async with World(tmp_path, file) as world:
            world.on["A"].cluster.create_topic("orders")
            world.on["A"].produce("orders", 0, b"1")
            world.on["A"].commit("billing", "orders", {0: 1})
            world.start(*(each for each in SERVICES if each != last))
            await world.pause(20)
            world.start(last)
            await world.until(lambda: world.on["B"].committed("billing"))
            await world.pause(60)
            assert [each for each in world.logged if each["level"] != "info"] == []

    live(look())


def test_groups_are_listed_no_sooner_than_a_pass_comes_and_never_called_late(tmp_path: Path) -> None:
    """Groups that are known before anything is copied are looked at once a minute."""

    async def life() -> None:
        file = f"{ONE_BROKER}A->B.enabled = true\nrefresh.groups.interval.seconds = 5\n"
        async with World(tmp_path, file, seed=1) as world:
            world.on["A"].cluster.create_topic("orders")
            world.on["A"].produce("orders", 0, b"1")
            world.on["A"].commit("billing", "orders", {0: 1})
            world.start(*SERVICES)
            await world.pause(10)
            for _ in range(9):
                await world.pause(9)
                async with MemoryRpc(world.rpc).insecure_channel(CHECKPOINT_ADDRESS) as channel:
                    told = await CheckpointServiceStub(channel).ListGroups(pb2.ListGroupsRequest())
                (flow,) = told.flows
                assert flow.next_listing.ToMilliseconds() >= LoopClock().now_ms()

    live(life())
