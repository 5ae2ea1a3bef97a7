"""Copies with the source's offsets on three brokers that are killed in turn."""

import asyncio
from pathlib import Path

from integration.kafka.hanging_rig import down
from integration.preserved.preserved_rig import Running, preserved_rig, write_mixture
from twinlog.kafka.ports import OffsetSpec
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.testing.brokers import KafkaPair, eventually

PATIENCE_SECONDS = 180.0


async def test_leaders_that_are_killed_in_turn_leave_every_record_at_its_source_offset(
    kafka_pair: KafkaPair, three_brokers: BlockingCluster, unique_topic: str, tmp_path: Path
) -> None:
    """Batches in flight and holes being filled meet the loss of each leader, and of the coordinator. Records
    of old times, whose writer a restarted leader forgets."""
    pair = KafkaPair(a=kafka_pair.a, b=three_brokers)
    async with preserved_rig(pair, tmp_path, unique_topic, partitions=6, target_replicas=3) as rig:
        async with rig.task() as running:
            for broker in three_brokers.broker_ids:
                over = asyncio.Event()
                async with asyncio.TaskGroup() as group:
                    group.create_task(_keep_writing(pair.a, unique_topic, rig.partitions, over), name="write")
                    async with down(three_brokers, broker):
                        await _one_goes_on(running)
                        over.set()
            ends = await rig.ends()

            await eventually(
                lambda: (
                    running.copied(ends) or any(each.needs_translation for each in running.look().values())
                ),
                PATIENCE_SECONDS,
            )
            # No coordinator writes what fills holes, so none writes it again (docs/adr/0014).
            assert not {each: report.reason for each, report in running.look().items() if report.reason}
        assert await rig.same() > 6 * 10
        assert await rig.target_bounds(OffsetSpec.LATEST) == await rig.ends()


async def _keep_writing(cluster: BlockingCluster, topic: str, partitions: int, over: asyncio.Event) -> None:
    """There is always something left to copy."""
    while not over.is_set():
        await write_mixture(cluster, topic, partitions, rounds=1)


async def _one_goes_on(running: Running) -> None:
    """Wait until something was copied from here on."""
    before = {each: report.position for each, report in running.look().items()}
    await eventually(
        lambda: any(running.position(each) > position for each, position in before.items()), PATIENCE_SECONDS
    )
