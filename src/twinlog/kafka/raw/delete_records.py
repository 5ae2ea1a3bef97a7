"""Deletes records before an offset (DeleteRecords, KIP-107) at the leaders. Needs DELETE on the topics."""

from collections.abc import Mapping
from typing import Any

from twinlog.errors import KafkaError
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.protocol.requests import HandWrittenRequest
from twinlog.kafka.protocol.schemas import SchemaRequest
from twinlog.kafka.raw.leaders import LeaderAnswers, ask_leaders, by_topic
from twinlog.model import TopicPartition


async def delete_records(
    session: DataClientPool, before: Mapping[TopicPartition, int], *, timeout_seconds: float = 30.0
) -> dict[TopicPartition, int | KafkaError]:
    """Let each log start at an offset; return its new start, or the error. Deleting what is already deleted
    is not an error.

    Raises KafkaError when no broker can be reached in time.
    """
    timeout_ms = int(timeout_seconds * 1000)
    return await ask_leaders(
        session,
        before,
        lambda led: _request({partition: before[partition] for partition in led}, timeout_ms),
        "delete records",
        timeout_seconds=timeout_seconds,
    )


def _request(before: Mapping[TopicPartition, int], timeout_ms: int) -> HandWrittenRequest[LeaderAnswers[int]]:
    """The partition, and the first offset that stays."""
    topics = by_topic(before, lambda one: {"partition_index": one.partition, "offset": before[one]})
    asked = [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()]
    return SchemaRequest("delete_records", range(2), {"topics": asked, "timeout": timeout_ms}, _told)


def _told(answer: Any) -> LeaderAnswers[int]:
    return [
        (TopicPartition(topic.name, each.partition_index), int(each.error_code), each.low_watermark)
        for topic in answer.topics
        for each in topic.partitions
    ]
