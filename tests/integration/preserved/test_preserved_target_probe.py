"""What the driver asks a target before it lets copies keep their source's offsets."""

from integration.fake_pair import kafka_pair as kafka_pair
from twinlog.batches import NewRecord, build_batch
from twinlog.clock import SystemClock
from twinlog.errors import KafkaError
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import NewTopic
from twinlog.kafka.raw import ProducerIdentity, RawProducer, fence, known_producers
from twinlog.model import TopicPartition
from twinlog.testing.brokers import KafkaPair, make_topics, unique_name
from twinlog.testing.raw_copying import QUICK, open_session
from twinlog_source.preserved.target_probe import LOOKS_BACK, KafkaTargetProbe


async def test_a_target_tells_who_wrote_a_copy(kafka_pair: KafkaPair) -> None:
    topic = unique_name("probe")
    copy, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with (
        open_cluster("B", kafka_pair.b.client_properties()) as admin,
        open_session("B", kafka_pair.b.client_properties()) as session,
    ):
        await make_topics(admin, NewTopic(name=topic, partition_count=2, replication_factor=1))
        probe = KafkaTargetProbe(session, timeout_seconds=30, transaction_timeout_seconds=60)
        first, second = await probe.new_writer(), await probe.new_writer()
        assert first != second, "an identity that nobody has"
        assert ProducerIdentity(first.producer_id, first.producer_epoch).producer_id >= 0
        # Deleting nothing of an empty log is granted to those who may delete.
        assert await admin.delete_records({copy: 0}) == {copy: None}
        async with admin.writer() as writer:
            for _ in range(3):
                await writer.append(copy, key=None, value=b"x")
        known = await probe.producers([copy, empty])
        written, unwritten = known[copy], known[empty]
        assert not isinstance(written, KafkaError)
        assert not isinstance(unwritten, KafkaError)
        assert len(written) == 1
        assert not unwritten
        end = len(range(3))
        (before,) = (await probe.last_producers({copy: end})).values()
        assert before in written
        for commits in (False, True):
            async with RawProducer(session, QUICK, transactional_id=topic) as producer:
                producer.begin()
                for _ in range(LOOKS_BACK + 1):
                    producer.send(copy, build_batch([NewRecord(None, b"v", SystemClock().now_ms())]))
                    await producer.flush()
                if commits:
                    await producer.commit()
            await fence(session, [topic], timeout_seconds=30, transaction_timeout_seconds=60)
            (own,) = await known_producers(session, [topic, "never"], timeout_seconds=30)
            end += LOOKS_BACK + 2
            (last,) = (await probe.last_producers({copy: end})).values()
            assert last == (own if commits else before), "what was aborted counts for nothing"
            assert await probe.may_have_committed({own}, {copy: end}) == {copy: commits}
            assert await probe.may_have_committed({own + 1000}, {copy: end}) == {copy: False}
        await admin.delete_records({copy: 1})
        assert await probe.may_have_committed({own + 1000}, {copy: end}) == {copy: True}, "they may be gone"
        absent = TopicPartition(unique_name("absent"), 0)
        missing = (await probe.producers([absent]))[absent]
        assert isinstance(missing, KafkaError)
        assert missing.reason == "TOPIC_UNKNOWN"
