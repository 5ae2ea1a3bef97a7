"""Filling the offsets that a source does not show, on targets that take little, on two fake clusters."""

from pathlib import Path

import pytest

from integration.fake_pair import kafka_pair as kafka_pair
from integration.preserved.preserved_rig import preserved_rig, write_mixture, write_plain
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import ConfigChange
from twinlog.testing.brokers import KafkaPair, eventually, retry_admin
from twinlog_source.partitions.reports import PartitionState


@pytest.mark.parametrize("codec", ["lz4", "uncompressed"])
async def test_a_copy_begins_far_behind_offset_0_on_a_target_that_takes_small_batches(
    kafka_pair: KafkaPair, unique_topic: str, tmp_path: Path, codec: str
) -> None:
    configs = {"max.message.bytes": "60000", "compression.type": codec}
    async with preserved_rig(kafka_pair, tmp_path, unique_topic, target=configs) as rig:
        (partition,) = rig.every
        begin = 234_567
        await rig.begin_source_at(begin)
        await write_plain(kafka_pair.a, unique_topic, 100)
        rig.skips[partition] = 0, begin
        # The driver need not know them yet: then the leader refuses, and less is tried.
        await rig.copy_everything()
        assert await rig.same() == 100
        assert await rig.ends() == {partition: begin + 100}


async def test_short_holes_need_no_records_that_a_target_may_refuse(
    kafka_pair: KafkaPair, unique_topic: str, tmp_path: Path
) -> None:
    async with preserved_rig(
        kafka_pair, tmp_path, unique_topic, target={"message.timestamp.before.max.ms": "86400000"}
    ) as rig:
        await write_mixture(kafka_pair.a, unique_topic, 1, rounds=3, timestamps_ms=None)
        await rig.copy_everything()
        assert await rig.same() > 0


async def test_a_target_that_takes_no_old_records_ends_the_copy_and_nothing_is_lost(
    kafka_pair: KafkaPair, unique_topic: str, tmp_path: Path
) -> None:
    async with preserved_rig(
        kafka_pair, tmp_path, unique_topic, target={"message.timestamp.before.max.ms": "86400000"}
    ) as rig:
        (partition,) = rig.every
        rig.writes_markers = False
        await rig.begin_source_at(500)
        await write_plain(kafka_pair.a, unique_topic, 50)
        rig.skips[partition] = 0, 500
        async with rig.task() as running:
            await eventually(lambda: running.look()[partition].needs_translation)
            report = running.look()[partition]
        assert (report.reason, report.position) == ("FILL_REFUSED", 500)
        assert await rig.copied_offsets(partition) == []


async def test_a_limit_that_is_lowered_below_a_batch_stops_only_its_partition_until_it_is_raised(
    kafka_pair: KafkaPair, unique_topic: str, tmp_path: Path
) -> None:
    async with (
        preserved_rig(kafka_pair, tmp_path, unique_topic) as rig,
        open_cluster("B", kafka_pair.b.client_properties()) as admin,
    ):
        (partition,) = rig.every
        await write_plain(kafka_pair.a, unique_topic, 100)
        await rig.copy_everything()

        async def limit(size_bytes: int) -> None:
            changes = {unique_topic: [ConfigChange(name="max.message.bytes", value=str(size_bytes))]}
            await retry_admin(lambda: admin.alter_topic_configs(changes))

        await limit(2_000)
        await write_plain(kafka_pair.a, unique_topic, 3, size_bytes=5_000)
        await write_mixture(kafka_pair.a, unique_topic, 1, rounds=2)
        ends = await rig.ends()
        async with rig.task() as running:
            await eventually(lambda: running.look()[partition].reason == "RECORD_TOO_LARGE")
            assert running.look()[partition].state == PartitionState.FAULTED
            assert running.position(partition) == 100
            await limit(1_000_000)
            await eventually(lambda: running.copied(ends))
            assert not running.look()[partition].needs_translation
        assert await rig.same() > 100
