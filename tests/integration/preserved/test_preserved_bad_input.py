"""What a target does to preserved copies: it refuses the filler, takes less than before, loses acknowledged
records. Each is a state of the partition concerned; nothing is lost, nothing is copied twice."""

import asyncio
import contextlib
import resource
from pathlib import Path

from integration.conftest import MIRROR, GuardedPair
from integration.kafka.hanging_rig import down
from integration.preserved.preserved_rig import preserved_rig, write_mixture, write_plain
from twinlog.errors import KafkaError
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import AclBinding, ConfigChange, OffsetSpec
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.testing.brokers import KafkaPair, eventually, retry_admin
from twinlog.testing.raw_copying import open_session
from twinlog_source.partitions.reports import PartitionState

PATIENCE_SECONDS = 180.0


def right(operation: str, resource_type: str, name: str, *, permission: str = "ALLOW") -> AclBinding:
    return AclBinding(
        resource_type=resource_type,
        resource_name=name,
        pattern_type="LITERAL",
        principal=f"User:{MIRROR}",
        host="*",
        operation=operation,
        permission=permission,
    )


async def test_a_filler_without_rights_is_a_fault_of_its_partitions_until_it_has_them(
    kafka_pair: KafkaPair, guarded: GuardedPair, unique_topic: str, tmp_path: Path
) -> None:
    pair = KafkaPair(a=kafka_pair.a, b=guarded.b)
    as_mirror = {f"B.{key}": value for key, value in guarded.b.client_properties(MIRROR).items()}
    async with (
        preserved_rig(pair, tmp_path, unique_topic, properties=as_mirror) as rig,
        open_cluster("B", guarded.b.client_properties()) as admin,
    ):
        (partition,) = rig.every
        rights = [
            *(right(each, "TOPIC", "*") for each in ("READ", "WRITE", "DESCRIBE", "DELETE")),
            *(right(each, "TRANSACTIONAL_ID", "*") for each in ("WRITE", "DESCRIBE")),
            right("IDEMPOTENT_WRITE", "CLUSTER", "kafka-cluster"),
        ]
        denied = [right("WRITE", "TRANSACTIONAL_ID", f"fill-{rig.alias}", permission="DENY")]
        await retry_admin(lambda: admin.create_acls([*rights, *denied]))
        try:
            await write_mixture(pair.a, unique_topic, 1, rounds=3)
            ends = await rig.ends()
            async with rig.task() as running:
                await eventually(lambda: running.look()[partition].state == PartitionState.FAULTED)
                report = running.look()[partition]
                assert report.reason == "TRANSACTION_UNAUTHORIZED"
                assert report.position == 0
                assert not report.needs_translation
                await retry_admin(lambda: admin.delete_acls(denied))
                await eventually(lambda: running.copied(ends), PATIENCE_SECONDS)
            assert await rig.same() > 50
        finally:
            await retry_admin(lambda: admin.delete_acls([*rights, *denied]))


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


async def test_what_a_source_compacts_later_is_a_hole_of_its_copy(
    kafka_pair: KafkaPair, unique_topic: str, tmp_path: Path
) -> None:
    """Its copy has begun by then: what survives keeps its offset."""
    async with (
        preserved_rig(kafka_pair, tmp_path, unique_topic) as rig,
        open_cluster("A", kafka_pair.a.client_properties()) as admin,
    ):
        (partition,) = rig.every
        await write_plain(kafka_pair.a, unique_topic, 20)
        await rig.copy_everything()
        settings = {"cleanup.policy": "compact", "segment.ms": "10", "min.cleanable.dirty.ratio": "0.01"}
        changes = {unique_topic: [ConfigChange(name=key, value=value) for key, value in settings.items()]}
        await retry_admin(lambda: admin.alter_topic_configs(changes))
        for _ in range(3):
            await write_plain(kafka_pair.a, unique_topic, 20)

        async def left() -> set[int]:
            """What the source still holds of the records that are not copied yet."""
            return {offset for offset in await rig.source_offsets(partition) if offset >= 20}

        async def is_compacted() -> bool:
            return len(await left()) < 60

        await eventually(is_compacted, PATIENCE_SECONDS)
        before = await left()
        async with rig.task() as running:
            ends = await rig.ends()
            await eventually(lambda: running.copied(ends), PATIENCE_SECONDS)
            assert not running.look()[partition].needs_translation
        copied = {offset for offset in await rig.copied_offsets(partition) if offset >= 20}
        # The cleaner may take more while the copy runs.
        assert await left() <= copied <= before


async def test_only_the_copy_whose_broker_is_away_waits_with_its_holes(
    kafka_pair: KafkaPair, three_brokers: BlockingCluster, unique_topic: str, tmp_path: Path
) -> None:
    """Each partition of the copy has one replica, and all of them share the id that fills holes."""
    pair = KafkaPair(a=kafka_pair.a, b=three_brokers)
    async with preserved_rig(
        pair, tmp_path, unique_topic, partitions=3, target_replicas=1, positions_replicas=3
    ) as rig:
        await write_mixture(pair.a, unique_topic, 3, rounds=1)
        await rig.copy_everything()
        async with open_session("B", three_brokers.client_properties()) as session:
            leaders = {each: await session.leader(each, "look") for each in rig.every}
        away = leaders[rig.every[0]]
        async with rig.task() as running:
            async with down(three_brokers, away):
                await write_mixture(pair.a, unique_topic, 3, rounds=2)
                ends = await rig.ends()
                others = {each: end for each, end in ends.items() if leaders[each] != away}
                assert others
                await eventually(lambda: running.copied(others), PATIENCE_SECONDS)
                waiting = ends.keys() - others.keys()
                assert not any(running.position(each) >= ends[each] for each in waiting)
            await eventually(lambda: running.copied(ends), PATIENCE_SECONDS)
            assert not any(report.needs_translation for report in running.look().values())
        assert await rig.same() > 100
