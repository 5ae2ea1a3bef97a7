"""Copies with the source's offsets on other brokers than the newest single one: Kafka 3.9, and three brokers
that are killed in turn."""

import asyncio
from pathlib import Path

from integration.kafka.hanging_rig import down
from integration.preserved.preserved_rig import Running, preserved_rig, write_mixture, write_plain
from twinlog.kafka.ports import OffsetSpec
from twinlog.kafka.raw.delete_records import delete_records
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.testing.brokers import KafkaPair, eventually
from twinlog.testing.raw_copying import open_session

PATIENCE_SECONDS = 180.0


async def test_every_record_lies_at_its_source_offset_on_kafka_3_9(
    kafka_pair: KafkaPair, older_cluster: BlockingCluster, unique_topic: str, tmp_path: Path
) -> None:
    """Its transactions have version 0: each hole is added by a request of its own, and raises no epoch."""
    pair = KafkaPair(a=kafka_pair.a, b=older_cluster)
    async with preserved_rig(pair, tmp_path, unique_topic, partitions=3) as rig:
        await write_plain(pair.a, unique_topic, 900, partitions=3)
        async with open_session("A", pair.a.client_properties()) as session:
            await delete_records(session, dict.fromkeys(rig.every, 200))
        rig.skips = dict.fromkeys(rig.every, (0, 200))
        await write_mixture(pair.a, unique_topic, 3, rounds=3)
        ends = await rig.ends()
        async with rig.task(kill=True) as running:
            await eventually(lambda: running.copied(dict.fromkeys(rig.every, 250)), PATIENCE_SECONDS)
        async with rig.task() as running:
            await eventually(lambda: running.copied(ends), PATIENCE_SECONDS)
        await write_mixture(pair.a, unique_topic, 3, rounds=1)
        await rig.copy_everything()
        assert await rig.same() > 3 * 100
        assert await rig.target_bounds(OffsetSpec.EARLIEST) == dict.fromkeys(rig.every, 200)
        assert await rig.target_bounds(OffsetSpec.LATEST) == await rig.ends()


async def test_a_copy_of_a_log_on_kafka_3_9_keeps_its_offsets(
    kafka_pair: KafkaPair, older_cluster: BlockingCluster, unique_topic: str, tmp_path: Path
) -> None:
    pair = KafkaPair(a=older_cluster, b=kafka_pair.b)
    async with preserved_rig(pair, tmp_path, unique_topic, partitions=2) as rig:
        await write_mixture(pair.a, unique_topic, 2, rounds=3)
        await rig.copy_everything()
        assert await rig.same() > 2 * 50
        assert await rig.target_bounds(OffsetSpec.LATEST) == await rig.ends()


async def test_leaders_that_are_killed_in_turn_leave_every_record_at_its_source_offset(
    kafka_pair: KafkaPair, three_brokers: BlockingCluster, unique_topic: str, tmp_path: Path
) -> None:
    """Batches in flight and holes being filled meet the loss of each leader, and of the coordinator. Records
    of old times, whose writer a restarted leader forgets."""
    pair = KafkaPair(a=kafka_pair.a, b=three_brokers)
    async with preserved_rig(pair, tmp_path, unique_topic, partitions=6, target_replicas=3) as rig:
        async with rig.task() as running:
            for broker in three_brokers.broker_ids:
                async with asyncio.TaskGroup() as group:
                    group.create_task(
                        write_mixture(pair.a, unique_topic, rig.partitions, rounds=2), name="write"
                    )
                    async with down(three_brokers, broker):
                        await _one_goes_on(running)
            ends = await rig.ends()

            def is_over() -> bool:
                reports = running.look()
                return all(
                    reports[each].needs_translation or running.position(each) >= end
                    for each, end in ends.items()
                )

            await eventually(is_over, PATIENCE_SECONDS)
            ended = {each: report for each, report in running.look().items() if report.needs_translation}
        # A coordinator that was killed before it had noted an end writes it again (docs/offsets.md).
        assert {report.reason for report in ended.values()} <= {"MARKER_REPEATED"}
        assert await rig.same({each: report.preserved_until for each, report in ended.items()}) > 6 * 10
        bounds = await rig.target_bounds(OffsetSpec.LATEST)
        assert {each: end for each, end in bounds.items() if each not in ended} == {
            each: end for each, end in ends.items() if each not in ended
        }


async def _one_goes_on(running: Running) -> None:
    """Wait until something was copied from here on."""
    before = {each: report.position for each, report in running.look().items()}
    await eventually(
        lambda: any(running.position(each) > position for each, position in before.items()), PATIENCE_SECONDS
    )
