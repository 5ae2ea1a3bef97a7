"""A writer keeps its producer id after failures: each id is stored for ever."""

import pytest
from kio.schema.errors import ErrorCode

from twinlog.errors import KafkaError
from twinlog.kafka.cluster import open_cluster
from twinlog.model import TopicPartition
from twinlog.testing.broker import FakeKafka
from twinlog.testing.broker.cluster import NO_LEADER
from twinlog.testing.broker.codec import Request

ORDERS = TopicPartition("orders", 0)
TIMEOUT_SECONDS = 5.0


@pytest.mark.parametrize(
    ("fault", "id_count"),
    [
        ({"swallows_unseen": True}, 1),
        ({"swallows": True}, 1),
        ({"error": ErrorCode.message_too_large}, 1),
        ({"error": ErrorCode.unknown_producer_id}, 5),
    ],
)
async def test_failed_appends_bring_no_producer_id_but_where_brokers_refuse_it(
    fault: dict[str, object], id_count: int
) -> None:
    introduced: list[int] = []

    def introduce(producer_id: int) -> tuple[TopicPartition, bytes, bytes]:
        introduced.append(producer_id)
        return ORDERS, b"producer", b"%d" % producer_id

    async with FakeKafka() as kafka:
        kafka.cluster.create_topic("orders")
        properties = {"bootstrap.servers": kafka.bootstrap}
        async with open_cluster("B", properties, timeout_seconds=TIMEOUT_SECONDS) as cluster:
            writer = cluster.writer(introduce=introduce)
            for number in range(5):
                await writer.append(ORDERS, key=b"k", value=b"%d" % number)
                with kafka.faults.during(api="produce", **fault), pytest.raises(KafkaError):
                    await writer.append(ORDERS, key=b"k", value=b"failed")
    assert len(introduced) == len(set(introduced)) == id_count
    headers = [each.header for each in kafka.cluster.topics["orders"].partitions[0].log.batches]
    assert {header.producer_id for header in headers} == set(introduced)
    if id_count == 1:
        assert len({header.producer_epoch for header in headers}) == 5


async def test_a_partition_without_a_leader_costs_few_requests() -> None:
    asked: list[Request] = []
    async with FakeKafka() as kafka:
        kafka.cluster.create_topic("orders")
        properties = {"bootstrap.servers": kafka.bootstrap}
        async with open_cluster("B", properties, timeout_seconds=TIMEOUT_SECONDS) as cluster:
            writer = cluster.writer()
            await writer.append(ORDERS, key=b"k", value=b"1")
            kafka.cluster.elect(kafka.cluster.topics["orders"].partitions[0], NO_LEADER)
            kafka.on_request = lambda _node, request: asked.append(request)
            with pytest.raises(KafkaError):
                await writer.append(ORDERS, key=b"k", value=b"2")
    assert len(asked) < 20 * TIMEOUT_SECONDS
