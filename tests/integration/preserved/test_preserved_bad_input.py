"""What only real targets do to preserved copies: they lose acknowledged records, and their disk is full."""

import asyncio
import contextlib
import resource
from pathlib import Path

from integration.kafka.hanging_rig import down
from integration.preserved.preserved_rig import preserved_rig, write_mixture
from twinlog.errors import KafkaError
from twinlog.kafka.ports import OffsetSpec
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.testing.brokers import KafkaPair, eventually
from twinlog.testing.raw_copying import open_session
from twinlog_source.partitions.orders import PartitionState

PATIENCE_SECONDS = 180.0


async def test_what_an_unclean_election_of_the_target_took_is_copied_again_at_its_offsets(
    kafka_pair: KafkaPair, three_brokers: BlockingCluster, unique_topic: str, tmp_path: Path
) -> None:
    configs = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    pair = KafkaPair(a=kafka_pair.a, b=three_brokers)
    async with preserved_rig(
        pair, tmp_path, unique_topic, target=configs, target_replicas=2, positions_replicas=3
    ) as rig:
        (partition,) = rig.every
        await write_mixture(pair.a, unique_topic, 1, rounds=1)
        await rig.copy_everything()
        before = await rig.ends()
        async with open_session("B", three_brokers.client_properties()) as session:
            leader = await session.leader(partition, "look")
        (follower,) = (
            broker
            for broker in three_brokers.broker_ids
            if broker != leader and log_of(three_brokers, broker, unique_topic).is_dir()
        )
        async with down(three_brokers, leader, at_once=False):
            async with down(three_brokers, follower):
                await write_mixture(pair.a, unique_topic, 1, rounds=1)
                await rig.copy_everything()
                assert rig.positions == await rig.ends() != before
                three_brokers.kill_broker(leader)

            async def is_led_by_the_follower() -> bool:
                with contextlib.suppress(KafkaError):
                    return await rig.target_bounds(OffsetSpec.LATEST) == before
                return False

            await eventually(is_led_by_the_follower, PATIENCE_SECONDS)
        ends = await rig.ends()
        async with rig.task() as running:

            async def is_copied_again() -> bool:
                return await rig.target_bounds(OffsetSpec.LATEST) == ends

            await eventually(is_copied_again, PATIENCE_SECONDS)
            assert not running.look()[partition].needs_translation
        assert await rig.same() > 50


def log_of(cluster: BlockingCluster, broker: int, topic: str) -> Path:
    return cluster.log_file(broker).parent / "data" / f"{topic}-0"


async def test_a_full_disk_of_the_target_holds_up_its_copies_until_there_is_room(
    kafka_pair: KafkaPair, three_brokers: BlockingCluster, unique_topic: str, tmp_path: Path
) -> None:
    """The limit of a process for the size of files is a full disk to it: no file of the broker grows."""
    pair = KafkaPair(a=kafka_pair.a, b=three_brokers)
    async with preserved_rig(pair, tmp_path, unique_topic, target_replicas=1, positions_replicas=3) as rig:
        (partition,) = rig.every
        await write_mixture(pair.a, unique_topic, 1, rounds=1)
        await rig.copy_everything()
        async with open_session("B", three_brokers.client_properties()) as session:
            leader = await session.leader(partition, "look")
        pid = three_brokers.broker_pid(leader)
        assert pid is not None
        async with rig.task() as running:
            before = running.position(partition)
            try:
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, 1))
                await write_mixture(pair.a, unique_topic, 1, rounds=3)
                ends = await rig.ends()
                await eventually(lambda: running.look()[partition].state == PartitionState.BACKOFF)
                report = running.look()[partition]
                # The broker ends with its disk, and nobody else has the partition.
                assert report.reason in ("KAFKA_UNAVAILABLE", "LEADER_UNAVAILABLE")
                assert report.position == before
            finally:
                await asyncio.to_thread(three_brokers.restart_broker, leader)
            await eventually(lambda: running.copied(ends), PATIENCE_SECONDS)
            assert not running.look()[partition].needs_translation
        assert await rig.same() > 100
