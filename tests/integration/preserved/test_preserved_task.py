"""Copies with the source's offsets, as a task of the source service writes them, on two fake clusters."""

import asyncio
from pathlib import Path

import pytest

from integration.fake_pair import kafka_pair as kafka_pair
from integration.preserved.preserved_rig import (
    PreservedRig,
    preserved_rig,
    read,
    write_mixture,
    write_plain,
)
from twinlog.batches import Codec, NewRecord
from twinlog.clock import SystemClock
from twinlog.errors import FatalKafkaError
from twinlog.kafka.ports import OffsetSpec
from twinlog.kafka.raw.lookups import delete_records
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.testing.brokers import KafkaPair, eventually, write_batches
from twinlog.testing.raw_copying import open_session

NOTHING_OLD = {"message.timestamp.before.max.ms": "86400000"}


async def test_no_consumer_sees_anything_of_short_holes(
    kafka_pair: KafkaPair, unique_topic: str, tmp_path: Path
) -> None:
    """Kafka's consumers read uncommitted records by default, and this target takes no old records."""
    async with preserved_rig(kafka_pair, tmp_path, unique_topic, partitions=2, target=NOTHING_OLD) as rig:
        few = [NewRecord(b"k", b"v", SystemClock().now_ms())] * 3
        for abort in (True, False, True, True, False):
            for partition in rig.every:
                count = partition.partition + 1
                await write_batches(
                    kafka_pair.a,
                    unique_topic,
                    [(partition.partition, Codec.NONE, few * count)],
                    transactional_id=unique_topic,
                    abort=abort,
                )
        ends = await rig.ends()
        await rig.copy_everything()
        assert await rig.same() == 18
        assert await rig.target_bounds(OffsetSpec.LATEST) == ends
        for partition in rig.every:
            committed = await read(kafka_pair.a, partition, ends[partition])
            seen = await read(kafka_pair.b, partition, ends[partition], isolation="read_uncommitted")
            assert seen.keys() == committed.keys()


async def test_a_target_that_takes_no_old_records_ends_the_copy_and_nothing_is_lost(
    kafka_pair: KafkaPair, unique_topic: str, tmp_path: Path
) -> None:
    async with preserved_rig(kafka_pair, tmp_path, unique_topic, target=NOTHING_OLD) as rig:
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


async def _abort_many(cluster: BlockingCluster, topic: str) -> None:
    """200 records between plain ones."""
    await write_plain(cluster, topic, 100)
    many = [NewRecord(b"k", b"v", SystemClock().now_ms())] * 200
    await write_batches(cluster, topic, [(0, Codec.NONE, many)], transactional_id=topic, abort=True)
    await write_plain(cluster, topic, 100)


async def test_a_long_hole_is_filled_by_its_leader_and_no_consumer_sees_anything_of_it(
    rig: PreservedRig,
) -> None:
    (partition,) = rig.every
    await _abort_many(rig.pair.a, rig.topic)
    await rig.copy_everything()
    assert await rig.same() == 200
    ends = await rig.ends()
    assert await rig.target_bounds(OffsetSpec.LATEST) == ends
    seen = await read(rig.pair.b, partition, ends[partition], isolation="read_uncommitted")
    assert len(seen) == 200


async def test_a_hole_that_consumers_would_see_ends_the_copy_before_it_and_nothing_is_lost(
    rig: PreservedRig,
) -> None:
    (partition,) = rig.every
    rig.writes_markers = False
    await _abort_many(rig.pair.a, rig.topic)
    async with rig.task() as running:
        await eventually(lambda: running.look()[partition].needs_translation)
        report = running.look()[partition]
    assert (report.reason, report.preserved_until) == ("HOLE_TOO_LONG", report.position)
    assert report.position <= 100
    assert await rig.target_bounds(OffsetSpec.LATEST) == {partition: report.position}
    # Where the offsets are demanded it is filled.
    rig.required = True
    await rig.copy_everything()
    assert await rig.same() == 200


@pytest.mark.parametrize("required", [False, True])
async def test_a_range_that_the_source_lost_is_in_the_ledger_and_filled_where_offsets_are_demanded(
    kafka_pair: KafkaPair, unique_topic: str, tmp_path: Path, required: bool
) -> None:
    async with preserved_rig(
        kafka_pair,
        tmp_path,
        unique_topic,
        properties={"A.producer.request.timeout.ms": "5000"},
    ) as rig:
        (partition,) = rig.every
        rig.lease_seconds, rig.required, rig.writes_markers = 2.0, required, False
        await write_plain(kafka_pair.a, unique_topic, 100)
        await rig.copy_everything()
        await write_plain(kafka_pair.a, unique_topic, 400)
        async with open_session("A", kafka_pair.a.client_properties()) as session:
            await delete_records(session, {partition: 300})
        ends = await rig.ends()
        async with rig.task() as running:
            if not required:
                await eventually(lambda: running.look()[partition].needs_translation)
                report = running.look()[partition]
                assert (report.reason, report.preserved_until, report.position) == ("HOLE_TOO_LONG", 100, 300)
                assert running.gaps == [(100, 300, "RETENTION")]
                return
            await eventually(lambda: running.copied(ends))
            assert running.gaps == [(100, 300, "RETENTION")]
        assert rig.skips[partition] == (100, 300)
        copied = await read(kafka_pair.b, partition, 500)
        assert sorted(copied) == [*range(100), *range(300, 500)]


async def test_a_task_whose_lease_is_over_writes_nothing_more(rig: PreservedRig) -> None:
    (partition,) = rig.every
    await write_plain(rig.pair.a, rig.topic, 100)
    await rig.copy_everything()

    async def sleep_too_long() -> None:
        async with rig.task() as running:
            await eventually(lambda: running.look()[partition].source_end == 100)
            rig.has_lease = False
            await write_plain(rig.pair.a, rig.topic, 100)
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as lost:
        await sleep_too_long()
    assert lost.group_contains(FatalKafkaError, match="lease")
    assert await rig.target_bounds(OffsetSpec.LATEST) == {partition: 100}


async def test_what_a_target_lost_of_the_records_that_others_wrote_there_is_copied_from_the_source(
    rig: PreservedRig,
) -> None:
    """The topic has come back to the cluster that it was copied from."""
    (partition,) = rig.every
    await write_plain(rig.pair.a, rig.topic, 100)
    await rig.copy_everything()
    others = rig.identity.producer_id
    rig.identity = rig.identity._replace(producer_id=others + 1_000_000)
    await write_plain(rig.pair.a, rig.topic, 100)
    rig.positions[partition] = rig.common_until = 180
    async with rig.task() as running:
        await eventually(lambda: running.position(partition) == 200)
        assert not running.look()[partition].needs_translation
    assert await rig.same() == 200


async def test_a_copy_whose_records_were_deleted_keeps_its_place(rig: PreservedRig) -> None:
    """By retention of the target's own, or an operator: nothing is left to look at, and its end stays."""
    (partition,) = rig.every
    await write_mixture(rig.pair.a, rig.topic, 1, rounds=2)
    async with rig.task(kill=True) as running:
        ends = await rig.ends()
        await eventually(lambda: running.copied(ends))
    deleted = ends[partition]
    async with open_session("B", rig.pair.b.client_properties()) as session:
        assert await delete_records(session, {partition: deleted}) == {partition: deleted}
    await write_mixture(rig.pair.a, rig.topic, 1, rounds=1)
    await rig.copy_everything()
    original = await read(rig.pair.a, partition, (await rig.ends())[partition])
    copied = await read(rig.pair.b, partition, (await rig.ends())[partition])
    assert copied == {offset: content for offset, content in original.items() if offset >= deleted}
    assert rig.positions == await rig.ends()
