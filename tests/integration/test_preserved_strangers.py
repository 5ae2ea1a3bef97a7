"""What somebody else does to a preserved copy, and what only looks like it, on two real brokers."""

from pathlib import Path

from aiokafka import AIOKafkaProducer

from integration.preserved_rig import PreservedRig, preserved_rig, read, write_mixture, write_plain
from twinlog.errors import KafkaError
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import NewTopic
from twinlog.model import TopicPartition
from twinlog.testing.brokers import KafkaPair, eventually, make_topics, retry_admin


async def intrude(pair: KafkaPair, topic: str, *, transactional_id: str | None = None) -> None:
    async with AIOKafkaProducer(
        bootstrap_servers=pair.b.bootstrap_servers, transactional_id=transactional_id
    ) as intruder:
        if transactional_id is None:
            await intruder.send_and_wait(topic, b"intruder", partition=0)
            return
        async with intruder.transaction():
            await intruder.send_and_wait(topic, b"intruder", partition=0)


async def nothing_is_lost(rig: PreservedRig, partition: TopicPartition, *, at: int, behind: int) -> None:
    """Others wrote to the copy at an offset: it ends, and holds all before its position, behind that."""
    async with rig.task() as running:
        await eventually(lambda: running.look()[partition].needs_translation)
        report = running.look()[partition]
    assert (report.reason, report.preserved_until) == ("FOREIGN_WRITE", at)
    assert report.position >= at
    copied = await read(rig.pair.b, partition, at + behind + report.position - at)
    original = await read(rig.pair.a, partition, (await rig.ends())[partition])
    ours = {offset: content for offset, content in copied.items() if offset < at}
    ours |= {offset - behind: content for offset, content in copied.items() if offset >= at + behind}
    assert ours.items() >= {o: content for o, content in original.items() if o < report.position}.items()


async def test_a_stranger_is_found_however_far_it_is_behind_the_stored_position(
    kafka_pair: KafkaPair, unique_topic: str, tmp_path: Path
) -> None:
    async with preserved_rig(kafka_pair, tmp_path, unique_topic) as rig:
        (partition,) = rig.every
        await write_plain(kafka_pair.a, unique_topic, 200, size_bytes=100_000)
        await rig.copy_everything()
        await intrude(kafka_pair, unique_topic)
        await write_plain(kafka_pair.a, unique_topic, 10)
        rig.positions.clear()  # its owner was killed before it stored one
        await nothing_is_lost(rig, partition, at=200, behind=1)


async def test_a_transaction_of_a_stranger_is_not_counted_as_ours(
    kafka_pair: KafkaPair, unique_topic: str, tmp_path: Path
) -> None:
    async with preserved_rig(kafka_pair, tmp_path, unique_topic) as rig:
        (partition,) = rig.every
        await write_plain(kafka_pair.a, unique_topic, 100)
        async with rig.task(kill=True) as running:
            await eventually(lambda: running.position(partition) == 100)
            await intrude(kafka_pair, unique_topic, transactional_id=unique_topic)
            await write_plain(kafka_pair.a, unique_topic, 50)
            await eventually(lambda: running.look()[partition].needs_translation)
            report = running.look()[partition]
        assert (report.reason, report.preserved_until) == ("FOREIGN_WRITE", 100)
        copied = await read(kafka_pair.b, partition, report.position + 2)
        original = await read(kafka_pair.a, partition, 150)
        behind = {offset - 2: content for offset, content in copied.items() if offset >= 102}
        assert behind.items() >= {o: original[o] for o in range(100, report.position)}.items()


async def test_filled_offsets_on_a_target_that_stamps_times_are_ours(
    kafka_pair: KafkaPair, unique_topic: str, tmp_path: Path
) -> None:
    async with preserved_rig(
        kafka_pair, tmp_path, unique_topic, target={"message.timestamp.type": "LogAppendTime"}
    ) as rig:
        (partition,) = rig.every
        await write_mixture(kafka_pair.a, unique_topic, 1, rounds=3)
        await rig.copy_everything()
        rig.positions.clear()  # its owner was killed: all of it is looked at
        await write_mixture(kafka_pair.a, unique_topic, 1, rounds=3)
        await rig.copy_everything()
        original = await read(kafka_pair.a, partition, (await rig.ends())[partition])
        assert await rig.copied_offsets(partition) == sorted(original)


async def test_what_lands_in_a_topic_that_was_created_again_is_not_the_copy_of_its_offsets(
    kafka_pair: KafkaPair, unique_topic: str, tmp_path: Path
) -> None:
    """Its leader does not know the writer, and takes any batch of it."""
    async with preserved_rig(kafka_pair, tmp_path, unique_topic) as rig:
        (partition,) = rig.every
        await write_plain(kafka_pair.a, unique_topic, 30)
        async with rig.task() as running:
            await eventually(lambda: running.position(partition) == 30)
            async with open_cluster("B", kafka_pair.b.client_properties()) as admin:
                await retry_admin(lambda: admin.delete_topics([unique_topic]))

                async def gone() -> bool:
                    found = (await admin.describe_topics([unique_topic]))[unique_topic]
                    return isinstance(found, KafkaError) and found.reason == "TOPIC_UNKNOWN"

                await eventually(gone)
                new = NewTopic(name=unique_topic, partition_count=1, replication_factor=1, configs={})
                await make_topics(admin, new)
            await write_plain(kafka_pair.a, unique_topic, 20)
            await eventually(lambda: running.look()[partition].needs_translation)
            assert running.position(partition) == 0
        # Also whoever begins the copy of the new topic does not take it for the records from 0 on.
        rig.positions.clear()
        async with rig.task() as running:
            await eventually(lambda: running.look()[partition].needs_translation)
            assert running.position(partition) == 0
            assert "created again" in running.look()[partition].message
