"""The ids of topics, according to the leaders of their partitions (KIP-516)."""

from collections.abc import Collection

from twinlog.errors import KafkaError
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.protocol.metadata import topic_ids_request
from twinlog.kafka.raw.leaders import ask_leaders
from twinlog.model import TopicPartition


async def leader_topic_ids(
    session: DataClientPool, partitions: Collection[TopicPartition], *, timeout_seconds: float = 30.0
) -> dict[TopicPartition, str | KafkaError]:
    """The id of each partition's topic ("" before Kafka 2.8), or the error.

    A leader learns of a topic before it has its log, so its answer is never older than that of the log.
    Raises KafkaError when no broker can be reached in time.
    """
    return await ask_leaders(
        session, partitions, topic_ids_request, "ask for the ids of topics", timeout_seconds=timeout_seconds
    )
