"""What somebody else does to a preserved copy, and what only looks like it, on two fake clusters."""

import asyncio
import contextlib

import pytest
from aiokafka import AIOKafkaProducer

from integration.fake_pair import kafka_pair as kafka_pair
from integration.preserved.preserved_rig import (
    PreservedRig,
    end_a_transaction,
    read,
    write_mixture,
    write_plain,
)
from twinlog.errors import KafkaError
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import NewTopic, OffsetSpec
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.model import TopicPartition
from twinlog.testing.brokers import KafkaPair, eventually, make_topics, retry_admin
from twinlog.wire.source_offset import decode_source_offset, source_offset_key
from twinlog_source.log.fact_records import parse_control
from twinlog_source.log.facts import CopyFact


async def intrude(
    pair: KafkaPair, topic: str, *, transactional_id: str | None = None, count: int = 1
) -> None:
    async with (
        AIOKafkaProducer(
            bootstrap_servers=pair.b.bootstrap_servers, transactional_id=transactional_id
        ) as intruder,
        contextlib.AsyncExitStack() as stack,
    ):
        if transactional_id is not None:
            await stack.enter_async_context(intruder.transaction())
        for _ in range(count):
            await intruder.send_and_wait(topic, b"intruder", partition=0)


async def topic_id(cluster: BlockingCluster, topic: str) -> str:
    async with open_cluster("X", cluster.client_properties()) as admin:
        found = (await admin.describe_topics([topic]))[topic]
        assert not isinstance(found, KafkaError)
        return found.topic_id


async def create_again(cluster: BlockingCluster, topic: str) -> None:
    """Delete a topic, and create it again once it is gone."""
    async with open_cluster("X", cluster.client_properties()) as admin:
        await retry_admin(lambda: admin.delete_topics([topic]))

        async def gone() -> bool:
            found = (await admin.describe_topics([topic]))[topic]
            return isinstance(found, KafkaError) and found.reason == "TOPIC_UNKNOWN"

        await eventually(gone)
        new = NewTopic(name=topic, partition_count=1, replication_factor=1, configs={"retention.ms": "-1"})
        await make_topics(admin, new)


async def said(rig: PreservedRig, partition: TopicPartition) -> tuple[int | None, CopyFact | None]:
    """What the log says of a copy: its position, and the newest fact about it."""
    positions = TopicPartition(f"mm2-offsets.{rig.alias}.internal", 0)
    key = source_offset_key(rig.alias, partition)
    position: int | None = None
    fact: CopyFact | None = None
    async with open_cluster("B", rig.pair.b.client_properties()) as cluster:
        end = (await cluster.list_offsets(OffsetSpec.LAST_STABLE, [positions]))[positions]
        assert isinstance(end, int)
        async with cluster.reader() as reader:
            at = 0
            while at < end:
                fetched = await reader.fetch(positions, at, max_wait_seconds=0.2, max_bytes=1 << 20)
                for record in fetched.records:
                    found = parse_control(rig.alias, record.key, record.value)
                    if found is not None and isinstance(found.fact, CopyFact):
                        fact = found.fact
                    elif record.key == key:
                        position = decode_source_offset(record.value)
                at = max(fetched.next_offset, at)
    return position, fact


async def nothing_is_lost(
    rig: PreservedRig, partition: TopicPartition, *, at: int, behind: int, reason: str = "FOREIGN_WRITE"
) -> None:
    """Others wrote to the copy at an offset: it ends, and holds all before its position, behind that."""
    async with rig.task() as running:
        await eventually(lambda: running.look()[partition].needs_translation)
        report = running.look()[partition]
    assert (report.reason, report.preserved_until) == (reason, at)
    assert report.position >= at
    copied = await read(rig.pair.b, partition, at + behind + report.position - at)
    original = await read(rig.pair.a, partition, (await rig.ends())[partition])
    ours = {offset: content for offset, content in copied.items() if offset < at}
    ours |= {offset - behind: content for offset, content in copied.items() if offset >= at + behind}
    assert ours.items() >= {o: content for o, content in original.items() if o < report.position}.items()


async def test_a_stranger_is_found_however_far_it_is_behind_the_stored_position(rig: PreservedRig) -> None:
    (partition,) = rig.every
    await write_plain(rig.pair.a, rig.topic, 200, size_bytes=100_000)
    await rig.copy_everything()
    await intrude(rig.pair, rig.topic)
    await write_plain(rig.pair.a, rig.topic, 10)
    rig.positions.clear()  # its owner was killed before it stored one
    await nothing_is_lost(rig, partition, at=200, behind=1)


@pytest.mark.parametrize("stored", [True, False])
async def test_the_end_of_a_transaction_where_a_record_belongs_is_told_and_nothing_is_lost(
    rig: PreservedRig, stored: bool
) -> None:
    """A stranger's, or the filler's own once more: a coordinator that is killed may write it twice."""
    (partition,) = rig.every
    await write_mixture(rig.pair.a, rig.topic, 1, rounds=3)
    await rig.copy_everything()
    end = (await rig.ends())[partition]
    await end_a_transaction(rig.pair.b, {partition: (end, 1)})
    await write_plain(rig.pair.a, rig.topic, 50)
    if not stored:
        rig.positions.clear()
    await nothing_is_lost(rig, partition, at=end, behind=1, reason="MARKER_REPEATED")


async def test_p6_a_marker_where_the_target_lost_a_record_is_no_end_of_the_copy(rig: PreservedRig) -> None:
    """The log ends below the stored position, and somebody has ended a transaction there."""
    (partition,) = rig.every
    await write_plain(rig.pair.a, rig.topic, 20)
    await rig.copy_everything()
    await end_a_transaction(rig.pair.b, {partition: (20, 1)})
    await write_plain(rig.pair.a, rig.topic, 80)
    rig.positions[partition] = 50
    await nothing_is_lost(rig, partition, at=20, behind=1, reason="MARKER_REPEATED")


@pytest.mark.parametrize("stranger", [False, True])
async def test_a_copy_that_the_configuration_ends_is_compared_with_the_source_first(
    rig: PreservedRig, stranger: bool
) -> None:
    (partition,) = rig.every
    await write_plain(rig.pair.a, rig.topic, 20)
    await rig.copy_everything()
    if stranger:
        await end_a_transaction(rig.pair.b, {partition: (20, 1)})
    await write_plain(rig.pair.a, rig.topic, 80)
    rig.end_reason = "OFFSETS_CONFIGURED"
    async with rig.task() as running:
        await eventually(lambda: running.look()[partition].needs_translation)
        report = running.look()[partition]
    assert (report.position, report.preserved_until) == (20, 20)
    assert report.reason == ("MARKER_REPEATED" if stranger else "OFFSETS_CONFIGURED")
    position, fact = await said(rig, partition)
    assert position == 20
    assert fact is not None
    assert (fact.preserved, fact.since, fact.reason) == (False, 20, report.reason)


@pytest.mark.parametrize("transactional", [False, True])
async def test_a_stay_of_another_copier_ends_the_copy_where_it_began(
    rig: PreservedRig, transactional: bool
) -> None:
    """MirrorMaker 2 copies for a while, without the holes of the source, and moves the position."""
    (partition,) = rig.every
    await write_mixture(rig.pair.a, rig.topic, 1, rounds=3)
    await rig.copy_everything()
    began = (await rig.ends())[partition]
    await write_mixture(rig.pair.a, rig.topic, 1, rounds=2)
    end = (await rig.ends())[partition]
    missed = [o for o in await read(rig.pair.a, partition, end) if o >= began]
    for _ in range(3):
        name = rig.topic if transactional else None
        await intrude(rig.pair, rig.topic, transactional_id=name, count=len(missed) // 4)
    assert (await rig.target_bounds(OffsetSpec.LATEST))[partition] < end
    rig.positions[partition] = end
    async with rig.task() as running:
        await eventually(lambda: running.look()[partition].needs_translation)
        report = running.look()[partition]
    assert (report.reason, report.preserved_until, report.position) == ("FOREIGN_WRITE", began, began)


async def test_what_was_filled_by_an_owner_that_was_killed_is_not_taken_for_a_strangers(
    rig: PreservedRig,
) -> None:
    await write_mixture(rig.pair.a, rig.topic, 1, rounds=3)
    await rig.copy_everything()
    rig.positions.clear()  # it was killed before it stored one
    await write_mixture(rig.pair.a, rig.topic, 1, rounds=1)
    await rig.copy_everything()
    assert await rig.same() > 0


async def test_a_transaction_of_a_stranger_is_not_counted_as_ours(rig: PreservedRig) -> None:
    (partition,) = rig.every
    await write_plain(rig.pair.a, rig.topic, 100)
    async with rig.task(kill=True) as running:
        await eventually(lambda: running.position(partition) == 100)
        await intrude(rig.pair, rig.topic, transactional_id=rig.topic)
        await write_plain(rig.pair.a, rig.topic, 50)
        await eventually(lambda: running.look()[partition].needs_translation)
        report = running.look()[partition]
    assert (report.reason, report.preserved_until) == ("FOREIGN_WRITE", 100)
    copied = await read(rig.pair.b, partition, report.position + 2)
    original = await read(rig.pair.a, partition, 150)
    # The end of the stranger's transaction may lie before our records or among them.
    ours = [content for offset, content in sorted(copied.items()) if offset > 100]
    assert ours[: report.position - 100] == [original[offset] for offset in range(100, report.position)]


async def test_nothing_lands_in_a_topic_that_was_created_again_while_it_was_written(
    rig: PreservedRig,
) -> None:
    """Its leader would take any batch of a new writer; this one names the topic by its id (KIP-516)."""
    (partition,) = rig.every
    await write_plain(rig.pair.a, rig.topic, 30)
    async with rig.task() as running:
        await eventually(lambda: running.position(partition) == 30)
        await create_again(rig.pair.b, rig.topic)
        await write_plain(rig.pair.a, rig.topic, 20)
        await eventually(lambda: running.look()[partition].reason == "TARGET_RECREATED")
        assert not running.look()[partition].needs_translation, "the driver decides about the new topic"
    assert await rig.target_bounds(OffsetSpec.LATEST) == {partition: 0}
    # The owner that begins the copy of the new topic has all records at their offsets.
    rig.positions.clear()
    rig.target_topic_id = await topic_id(rig.pair.b, rig.topic)
    async with rig.task() as running:
        await eventually(lambda: running.position(partition) == 50)
        assert not running.look()[partition].needs_translation
    assert await rig.copied_offsets(partition) == list(range(50))


async def test_a_copy_into_which_others_write_all_the_time_becomes_translated_while_they_do(
    rig: PreservedRig,
) -> None:
    """The end of the leader's log is then never the same in two requests."""
    (partition,) = rig.every
    await write_plain(rig.pair.a, rig.topic, 30)
    stop = asyncio.Event()

    async def write_on() -> None:
        async with AIOKafkaProducer(bootstrap_servers=rig.pair.b.bootstrap_servers, linger_ms=0) as producer:
            while not stop.is_set():
                await producer.send_and_wait(rig.topic, b"theirs")

    async with rig.task() as running, asyncio.TaskGroup() as others:
        await eventually(lambda: running.position(partition) == 30)
        others.create_task(write_on(), name="others write")
        try:
            await write_plain(rig.pair.a, rig.topic, 20)
            await eventually(lambda: running.look()[partition].needs_translation)
        finally:
            stop.set()


async def test_an_outsider_who_fills_a_new_target_topic_does_not_end_the_copy_of_the_former_one(
    rig: PreservedRig,
) -> None:
    """The new log is longer than the former, so its length does not show that it is another topic's."""
    (partition,) = rig.every
    await write_plain(rig.pair.a, rig.topic, 30)
    await rig.copy_everything()
    await create_again(rig.pair.b, rig.topic)
    await intrude(rig.pair, rig.topic, count=35)
    async with rig.task() as running:
        await eventually(lambda: running.look()[partition].reason == "TARGET_RECREATED")
        assert not running.look()[partition].needs_translation
        assert running.position(partition) == 30
