"""What a writer finds at the end of a copy with the source's offsets, on fake clusters."""

from integration.fake_pair import kafka_pair as kafka_pair
from integration.preserved.preserved_rig import write_plain
from twinlog.errors import KafkaError
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import NewTopic
from twinlog.kafka.raw import (
    ProducerIdentity,
    TransactionCoordinator,
)
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.model import TopicPartition
from twinlog.testing.brokers import KafkaPair, make_topics
from twinlog.testing.raw_copying import QUICK, open_session
from twinlog_source.preserved.append_steps import ReadEnd, Tail
from twinlog_source.preserved.filler import Filler
from twinlog_source.preserved.tails import CopyTails


async def _make(cluster: BlockingCluster, topic: str) -> None:
    async with open_cluster("X", cluster.client_properties()) as admin:
        await make_topics(admin, NewTopic(name=topic, partition_count=1, replication_factor=1))


async def _new_identity(cluster: BlockingCluster) -> ProducerIdentity:
    async with open_session("B", cluster.client_properties()) as session:
        coordinator = TransactionCoordinator(session, None, transaction_timeout_seconds=60)
        return await coordinator.new_identity(timeout_seconds=20)


async def test_records_written_before_the_copy_resumed_are_not_reported_as_foreign(
    kafka_pair: KafkaPair, unique_topic: str
) -> None:
    """What the copy wrote itself is lost; a stranger's batches lie behind the hole that it filled first."""
    await _make(kafka_pair.b, unique_topic)
    partition = TopicPartition(unique_topic, 0)
    await write_plain(kafka_pair.b, unique_topic, 10)
    identity = await _new_identity(kafka_pair.b)
    async with open_session("B", kafka_pair.b.client_properties()) as target:
        filler = Filler(target, f"fill-{unique_topic}", QUICK)
        await filler.open()
        filled: list[TopicPartition] = []
        await filler.fill({partition: (10, 5)}, lambda each, _: filled.append(each), lambda *_: None)
        assert filled == [partition]
        for _ in range(3):
            await write_plain(kafka_pair.b, unique_topic, 1)
        found: dict[TopicPartition, Tail | KafkaError] = {}
        tails = CopyTails(target, writer_id=identity.producer_id, timeout_seconds=10)
        await tails.read({partition: ReadEnd(40, common_until=10)}, found.__setitem__)
    tail = found[partition]
    assert isinstance(tail, Tail)
    assert (tail.end, tail.foreign_from) == (18, 15)


async def test_a_position_before_what_others_wrote_makes_that_foreign_no_more_than_one_behind_it(
    kafka_pair: KafkaPair, unique_topic: str
) -> None:
    """An owner was killed between what it put down of the copy and its position."""
    await _make(kafka_pair.b, unique_topic)
    partition = TopicPartition(unique_topic, 0)
    await write_plain(kafka_pair.b, unique_topic, 10)
    identity = await _new_identity(kafka_pair.b)
    found: dict[TopicPartition, Tail | KafkaError] = {}
    async with open_session("B", kafka_pair.b.client_properties()) as target:
        tails = CopyTails(target, writer_id=identity.producer_id, timeout_seconds=10)
        for common_until, foreign_from in ((10, None), (0, 0)):
            await tails.read({partition: ReadEnd(3, common_until=common_until)}, found.__setitem__)
            tail = found[partition]
            assert isinstance(tail, Tail)
            assert (tail.end, tail.foreign_from, tail.filled) == (10, foreign_from, ())
