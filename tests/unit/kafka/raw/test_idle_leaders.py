"""A leader that is asked whether a transaction has ended, and is away."""

import pytest

from twinlog.kafka.deadline import pause
from twinlog.kafka.raw import ProducerState, RawProducer
from twinlog.model import TopicPartition
from twinlog.testing.broker import FakeKafka
from twinlog.testing.raw_copying import QUICK
from unit.kafka.raw.test_producer import a_batch, committed
from unit.testing.broker.broker_rig import pool

BUSY, IDLE = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.parametrize("is_told", [True, False], ids=["without leader", "out of reach"])
async def test_a_partition_that_nothing_is_sent_to_fails_no_producer_while_its_leader_is_away(
    is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only whether its last transaction has ended is not known yet."""
    async with FakeKafka(node_count=3) as kafka, pool(kafka) as session:
        topic = kafka.cluster.create_topic("t", partition_count=2, replication_factor=1)
        if not is_told:
            monkeypatch.setattr(kafka.cluster, "node_down", lambda _node_id: None)
        async with RawProducer(session, QUICK, transactional_id="t") as producer:
            producer.begin()
            producer.send(BUSY, a_batch(b"1"))
            producer.send(IDLE, a_batch(b"1"))
            await producer.commit()
            await pause(0.5)
            await kafka.stop_node(topic.partitions[IDLE.partition].leader)
            await pause(4 * QUICK.end_look_seconds)
            assert producer.state is ProducerState.READY
            producer.begin()
            producer.send(BUSY, a_batch(b"2"))
            await producer.commit()
            assert committed(kafka, BUSY) == [b"1", b"2"]
