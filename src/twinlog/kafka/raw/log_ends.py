"""The ends of logs, with the epoch of the leader that answered (KIP-320)."""

from collections.abc import Collection

from twinlog.errors import KafkaError
from twinlog.kafka.ports import LogEnd
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.protocol.list_offsets import LATEST_TIMESTAMP, LogOffset, list_offsets_request
from twinlog.kafka.protocol.requests import HandWrittenRequest
from twinlog.kafka.raw.leaders import LeaderAnswers, ask_leaders
from twinlog.model import TopicPartition


async def log_ends(
    session: DataClientPool, partitions: Collection[TopicPartition], *, timeout_seconds: float = 30.0
) -> dict[TopicPartition, LogEnd | KafkaError]:
    """The end of each partition, or the error; reads the metadata first. Needs Kafka 2.1. Raises KafkaError
    when no broker can be reached in time."""
    answers = await ask_leaders(
        session, partitions, _request, "ask for the end of logs", timeout_seconds=timeout_seconds
    )
    return {partition: _end(answer) for partition, answer in answers.items()}


def _end(answer: LogOffset | KafkaError) -> LogEnd | KafkaError:
    if isinstance(answer, KafkaError):
        return answer
    assert answer.leader_epoch is not None, "it was asked for"
    return LogEnd(answer.offset, answer.leader_epoch)


def _request(partitions: Collection[TopicPartition]) -> HandWrittenRequest[LeaderAnswers[LogOffset]]:
    return list_offsets_request(
        dict.fromkeys(partitions, LATEST_TIMESTAMP), read_committed=False, with_leader_epoch=True
    )
