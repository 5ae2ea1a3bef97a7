"""Operators pause, move and limit one topic, and touch no other; what they ordered outlives the service."""

from pathlib import Path

import grpc
import pytest

from simulated.world import ONE_BROKER, World, live
from twinlog.api.common.v1.types_pb2 import Flow
from twinlog.api.source.v1 import source_service_pb2 as source

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


def test_each_order_is_about_its_topic_alone_and_outlives_the_service(tmp_path: Path) -> None:
    async def life() -> None:
        async with World(tmp_path, FILE, seed=21) as world:
            applications = world.on["A"]
            for topic in TOPICS:
                applications.cluster.create_topic(topic)
                applications.produce(topic, 0, *(b"%d" % number for number in range(10)))
            world.start("configsync", "source")
            await world.until(lambda: copied(world, *TOPICS))

            await world.order(
                "PauseReplication", source.PauseReplicationRequest(scope=scope("rests"), by="ann")
            )
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

    live(life())
