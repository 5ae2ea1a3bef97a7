"""Operators pause, move and limit one topic, and touch no other; what they ordered outlives the service."""

from pathlib import Path

import grpc
import pytest

from simulated.histories import DEFAULT
from simulated.world import ONE_BROKER, World, live, lives_in
from twinlog.api.common.v1.types_pb2 import Flow
from twinlog.api.source.v1 import source_service_pb2 as source
from twinlog.service.errors_wire import error_from_rpc

FILE = f"""{ONE_BROKER}
A->B.enabled = true
A->B.topics = rests, goes-on, moved, slow
replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy
twinlog.offsets = translated
"""
TOPICS = ("rests", "goes-on", "moved", "slow")
SLOW_BYTES = 1000
"""What the limit lets pass in a second."""
LARGE = bytes(500)


def scope(topic: str, begin: str = "A", end: str = "B") -> source.Scope:
    return source.Scope(flow=Flow(source=begin, target=end), source_topic=topic)


def values(world: World, topic: str, cluster: str = "B") -> list[bytes | None]:
    return [seen.value for seen in world.on[cluster].read(topic)]


def copied(world: World, *topics: str) -> bool:
    return all(values(world, topic) == values(world, topic, "A") for topic in topics)


def test_what_weighs_more_is_copied_first_under_a_limit(tmp_path: Path) -> None:
    async def life() -> None:
        file = f"{FILE}A->B.twinlog.weight = goes-on:9, sl.*:1\n"
        async with World(tmp_path, file, seed=22) as world:
            applications = world.on["A"]
            for topic in ("goes-on", "slow"):
                applications.cluster.create_topic(topic)
                applications.produce(topic, 0, b"first")
            world.start("configsync", "source")
            await world.until(lambda: copied(world, "goes-on", "slow"))
            limit = source.SetThrottleRequest(scope=scope(""), bytes_per_second=50 * SLOW_BYTES, by="ann")
            await world.order("SetThrottle", limit)
            for number in range(300):
                for topic in ("goes-on", "slow"):
                    applications.produce(topic, 0, b"%d" % number + bytes(5000))
            await world.until(lambda: len(values(world, "goes-on")) > 200)
            assert len(values(world, "slow")) < 100
            await world.until(lambda: copied(world, "goes-on", "slow"))

    live(life())


@lives_in(World, FILE, seed=21)
async def test_each_order_is_about_its_topic_alone_and_outlives_the_service(world: World) -> None:
    applications = world.on["A"]
    for topic in TOPICS:
        applications.cluster.create_topic(topic)
        applications.produce(topic, 0, *(b"%d" % number for number in range(10)))
    world.start("configsync", "source")
    await world.until(lambda: copied(world, *TOPICS))

    await world.order("PauseReplication", source.PauseReplicationRequest(scope=scope("rests"), by="ann"))
    limit = source.SetThrottleRequest(scope=scope("slow"), bytes_per_second=SLOW_BYTES, by="ann")
    await world.order("SetThrottle", limit)
    for topic in ("rests", "goes-on"):
        applications.produce(topic, 0, b"while one rests")
    for _ in range(100):
        applications.produce("slow", 0, LARGE)
    limited_at = world.now()
    await world.until(lambda: copied(world, "goes-on"))
    assert len(values(world, "rests")) == 10

    await world.pause(30)  # Tasks report from time to time.
    move = source.SetPositionsRequest(scope=scope("moved"), dry_run=True, by="ann")
    move.target.timestamp.FromMilliseconds(applications.read("moved")[6].timestamp_ms)
    (change,) = (await world.order("SetPositions", move)).changes
    assert (change.from_offset, change.to_offset, change.repeated_offsets) == (10, 6, 4)
    await world.pause(10)
    assert len(values(world, "moved")) == 10
    move.dry_run = False
    assert (await world.order("SetPositions", move)).applied
    await world.until(lambda: len(values(world, "moved")) == 14)
    assert values(world, "moved")[10:] == [b"6", b"7", b"8", b"9"]

    await world.kill("source")
    applications.produce("goes-on", 0, b"after the kill")
    world.start("source")
    await world.until(lambda: copied(world, "goes-on"))
    assert len(values(world, "rests")) == 10
    await world.until(lambda: copied(world, "slow"))
    assert world.now() - limited_at > 100 * len(LARGE) / SLOW_BYTES / 2

    resume = source.ResumeReplicationRequest(scope=scope("rests"), by="ann")
    await world.order("ResumeReplication", resume)
    await world.until(lambda: copied(world, "rests"))
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await world.order("ResumeReplication", resume)
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND


@lives_in(World, DEFAULT, seed=23)
async def test_what_others_wrote_is_told_until_somebody_says_so_and_then_by_whom(world: World) -> None:
    """A topic is meant by its name on either side, and a wrong one is told by one word."""
    source_apps, target_apps = world.on["A"], world.on["B"]
    source_apps.cluster.create_topic("orders")
    source_apps.produce("orders", 0, b"1", b"2")
    world.start("configsync", "source")
    await world.until(lambda: len(values(world, "A.orders")) == 2)

    async def told() -> source.PartitionStatus:
        asked = source.ListPartitionsRequest(source_topic="A.orders")
        answer: source.ListPartitionsResponse = await world.order("ListPartitions", asked)
        return answer.partitions[0]

    async def others_write(count: int) -> None:
        target_apps.produce("A.orders", 0, *(b"foreign" for _ in range(count)))
        for _ in range(100):
            source_apps.produce("orders", 0, b"more")
            await world.pause(1)
            if (await told()).foreign_records == count:
                return
        raise AssertionError(await told())

    await others_write(3)
    for method, request in (
        ("AcknowledgeGaps", source.AcknowledgeGapsRequest),
        ("AcknowledgeForeignWrites", source.AcknowledgeForeignWritesRequest),
    ):
        for name in ("order", "A.order"):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await world.order(method, request(scope=scope(name), by="ann"))
            assert error_from_rpc(refused.value, peer="source").reason == "PARTITION_UNKNOWN"
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await world.order("AcknowledgeGaps", source.AcknowledgeGapsRequest(scope=scope("A.orders")))
    assert error_from_rpc(refused.value, peer="source").reason == "GAP_UNKNOWN"
    acknowledge = source.AcknowledgeForeignWritesRequest(scope=scope("A.orders"), by="ann")
    await world.order("AcknowledgeForeignWrites", acknowledge)
    await world.stop("source")
    world.start("source")
    await world.pause(20)
    row = await told()
    assert (row.foreign_records, row.foreign_acknowledged_by) == (0, "ann")
    assert row.HasField("foreign_acknowledged_at")
    assert sum(each.records for each in row.foreign_writes) == 3
    await others_write(2)
    row = await told()
    assert row.foreign_acknowledged_by == "ann", "of the others"
    assert sum(each.records for each in row.foreign_writes) == 5
