"""The open transactions of a partition, according to its leader (DescribeProducers, KIP-664)."""

from collections.abc import Collection
from datetime import UTC, datetime
from typing import NamedTuple

from twinlog.errors import KafkaError
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.protocol.requests import HandWrittenRequest
from twinlog.kafka.raw.leaders import LeaderAnswers, ask_leaders
from twinlog.kafka.raw.producer_states import ProducerEntry, describe_producers
from twinlog.model import TopicPartition


class OpenTransaction(NamedTuple):
    """A transaction with records on a partition and without a marker there."""

    producer_id: int
    producer_epoch: int
    """The producer epoch of its last batch there."""
    first_offset: int
    last_timestamp_ms: int = -1
    """The timestamp of its last batch there: it is open at least since then. -1 = unknown."""

    def __str__(self) -> str:
        """
        >>> str(OpenTransaction(7, 0, 5, 1_795_870_164_688))
        'producer id 7 has a transaction open from offset 5, at least since 2026-11-28T12:49:24Z'
        """
        told = f"producer id {self.producer_id} has a transaction open from offset {self.first_offset}"
        if self.last_timestamp_ms < 0:
            return told
        since = datetime.fromtimestamp(self.last_timestamp_ms / 1000, UTC)
        return f"{told}, at least since {since:%Y-%m-%dT%H:%M:%SZ}"


async def open_transactions(
    session: DataClientPool, partitions: Collection[TopicPartition], *, timeout_seconds: float = 30.0
) -> dict[TopicPartition, list[OpenTransaction] | KafkaError]:
    """The open transactions of each partition, or the error. Needs Kafka 2.8, and READ on the topics. Raises
    KafkaError when no broker can be reached in time."""
    return await ask_leaders(
        session,
        partitions,
        describe_producers_request,
        "ask for open transactions",
        timeout_seconds=timeout_seconds,
    )


def describe_producers_request(
    partitions: Collection[TopicPartition],
) -> HandWrittenRequest[LeaderAnswers[list[OpenTransaction]]]:
    """DescribeProducers, version 0 (Kafka 2.8)."""
    return describe_producers(partitions, _open)


def _open(entries: list[ProducerEntry]) -> list[OpenTransaction]:
    return [
        OpenTransaction(entry.producer_id, entry.producer_epoch, entry.open_from, entry.last_timestamp_ms)
        for entry in entries
        if entry.open_from >= 0
    ]
