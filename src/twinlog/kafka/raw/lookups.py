"""What leaders tell of their partitions: producers and open transactions, offsets, ends of leader epochs.

Producers (DescribeProducers, KIP-664) need Kafka 2.8, and READ on the topics.
"""

import struct
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeVar

from twinlog.errors import KafkaError, required
from twinlog.kafka.ports import EpochEnd, LogEnd, OffsetSpec
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.protocol.frames import INT32, Frame, string, take_int32, take_string
from twinlog.kafka.protocol.requests import HandWrittenRequest, Pieces, SchemaRequest
from twinlog.kafka.raw.leaders import LeaderAnswers, ask_leaders, by_topic
from twinlog.model import TopicPartition

T = TypeVar("T")


def by_partition(
    told: Callable[[Any], T], topic_name: str = "name", number: str = "partition_index"
) -> Callable[[Any], LeaderAnswers[T]]:
    """Reads an answer with partitions by topic; `told` reads one of them. `topic_name`, `number`: names of
    its fields."""

    def read(answer: Any) -> LeaderAnswers[T]:
        return [
            (
                TopicPartition(getattr(topic, topic_name), getattr(each, number)),
                int(each.error_code),
                told(each),
            )
            for topic in answer.topics
            for each in topic.partitions
        ]

    return read


class ProducerEntry(NamedTuple):
    """One producer that a leader remembers."""

    producer_id: int
    producer_epoch: int
    """The producer epoch of its last batch there."""
    last_sequence: int
    """-1: none of its batches is remembered, only a marker."""
    coordinator_epoch: int
    """The epoch of the coordinator that wrote its last marker there; -1 = there is none."""
    open_from: int
    """The first offset of its open transaction; -1 = none is open."""
    last_timestamp_ms: int = -1
    """The timestamp of its last batch there; -1 = unknown."""


ProducerStates = dict[int, ProducerEntry]
"""By producer id."""


async def producer_states(
    session: DataClientPool, partitions: Collection[TopicPartition], *, timeout_seconds: float = 30.0
) -> dict[TopicPartition, ProducerStates | KafkaError]:
    """The producers that each partition's leader remembers, or the error. Raises KafkaError when no broker
    can be reached in time."""

    def request(led: Collection[TopicPartition]) -> HandWrittenRequest[LeaderAnswers[ProducerStates]]:
        return describe_producers(led, lambda entries: {entry.producer_id: entry for entry in entries})

    return await ask_leaders(
        session, partitions, request, "ask for producers", timeout_seconds=timeout_seconds
    )


def describe_producers(
    partitions: Collection[TopicPartition], answer: Callable[[list[ProducerEntry]], T]
) -> HandWrittenRequest[LeaderAnswers[T]]:
    """DescribeProducers, version 0 (Kafka 2.8); `answer` converts each partition's producers."""

    topics = by_topic(partitions, lambda one: one.partition)
    asked = [{"name": topic, "partition_indexes": numbers} for topic, numbers in topics.items()]

    def told(partition: Any) -> T:
        return answer([_entry(producer) for producer in partition.active_producers])

    return SchemaRequest("describe_producers", range(1), {"topics": asked}, by_partition(told))


def _entry(producer: Any) -> ProducerEntry:
    return ProducerEntry(
        producer.producer_id,
        producer.producer_epoch,
        producer.last_sequence,
        producer.coordinator_epoch,
        producer.current_txn_start_offset,
        producer.last_timestamp,
    )


# The open transactions of a partition, according to its leader (DescribeProducers, KIP-664).


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


# Looks up offsets at the partitions' leaders; the only use of ListOffsets. A failed broker or topic only
# affects its own partitions.

# Deletes records before an offset (DeleteRecords, KIP-107) at the leaders. Needs DELETE on the topics.


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
        lambda led: _delete_records_request({partition: before[partition] for partition in led}, timeout_ms),
        "delete records",
        timeout_seconds=timeout_seconds,
    )


def _delete_records_request(
    before: Mapping[TopicPartition, int], timeout_ms: int
) -> HandWrittenRequest[LeaderAnswers[int]]:
    """The partition, and the first offset that stays."""
    topics = by_topic(before, lambda one: {"partition_index": one.partition, "offset": before[one]})
    asked = [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()]
    fields = {"topics": asked, "timeout": timeout_ms}
    return SchemaRequest("delete_records", range(2), fields, by_partition(lambda each: each.low_watermark))


# ListOffsets, versions 4 (Kafka 2.1) and 5: the offset of a time in each partition's log.

EARLIEST_TIMESTAMP: Final = -2
LATEST_TIMESTAMP: Final = -1
_LIST_OFFSETS = 2
_CONSUMER = -1
_ANY_LEADER_EPOCH = -1
_ASKED = struct.Struct(">iiq")
"""Partition, leader epoch, timestamp."""
_ANSWERED = struct.Struct(">ihqqi")
"""Partition, error code, timestamp, offset, leader epoch."""


def list_offsets_request(
    timestamps_ms: Mapping[TopicPartition, int], *, read_committed: bool
) -> HandWrittenRequest[list[tuple[TopicPartition, int, LogEnd]]]:
    """For each partition the first offset at or after a time in ms, or EARLIEST_TIMESTAMP, LATEST_TIMESTAMP.

    The answer has an error code for each partition.
    """

    def encode(_version: int) -> Pieces:
        topics = by_topic(timestamps_ms, lambda one: (one.partition, timestamps_ms[one]))
        pieces = [INT32.pack(_CONSUMER), bytes((read_committed,)), INT32.pack(len(topics))]
        for topic, asked in topics.items():
            pieces += (string(topic), INT32.pack(len(asked)))
            pieces += [_ASKED.pack(number, _ANY_LEADER_EPOCH, when) for number, when in asked]
        return pieces

    return HandWrittenRequest(_LIST_OFFSETS, range(4, 6), encode, _read)


def _read(data: Frame, position: int, _version: int) -> list[tuple[TopicPartition, int, LogEnd]]:
    answers = []
    topic_count, position = take_int32(data, position + 4)  # After the throttle time.
    for _ in range(topic_count):
        topic, position = take_string(data, position)
        count, position = take_int32(data, position)
        for _ in range(count):
            number, code, _, offset, epoch = _ANSWERED.unpack_from(data, position)
            position += _ANSWERED.size
            answers.append((TopicPartition(topic, number), code, LogEnd(offset, epoch)))
    return answers


# Where the records of a leader epoch end, to recognise a log that was truncated and continued (KIP-320).
#
# An offset alone does not identify a record: after an unclean election, or after an old disk returned, the
# log may have other records at offsets that were read before. Together with the leader's epoch it does.


async def epoch_ends(
    session: DataClientPool, epochs: Mapping[TopicPartition, int], *, timeout_seconds: float = 30.0
) -> dict[TopicPartition, EpochEnd | KafkaError]:
    """For each partition the end of a leader epoch, or the error. Raises KafkaError when no broker can be
    reached in time."""
    return await ask_leaders(
        session,
        epochs,
        lambda led: _leader_epochs_request({partition: epochs[partition] for partition in led}),
        "ask for the end of a leader epoch",
        timeout_seconds=timeout_seconds,
    )


def _leader_epochs_request(
    epochs: Mapping[TopicPartition, int],
) -> HandWrittenRequest[LeaderAnswers[EpochEnd]]:
    """OffsetForLeaderEpoch as consumers ask it, of leaders of any epoch. Versions 2 (Kafka 2.1) and 3."""
    topics = by_topic(epochs, lambda one: {"partition": one.partition, "leader_epoch": epochs[one]})
    asked = [{"topic": topic, "partitions": partitions} for topic, partitions in topics.items()]
    return SchemaRequest(
        "offset_for_leader_epoch",
        range(2, 4),
        {"replica_id": _CONSUMER, "topics": asked},
        by_partition(lambda each: EpochEnd(each.leader_epoch, each.end_offset), "topic", "partition"),
    )


# The ends of logs, with the epoch of the leader that answered (KIP-320).


async def log_ends(
    session: DataClientPool, partitions: Collection[TopicPartition], *, timeout_seconds: float = 30.0
) -> dict[TopicPartition, LogEnd | KafkaError]:
    """The end of each partition, or the error; reads the metadata first. Raises KafkaError when no broker
    can be reached in time."""
    return await ask_leaders(
        session, partitions, _request, "ask for the end of logs", timeout_seconds=timeout_seconds
    )


def _request(partitions: Collection[TopicPartition]) -> HandWrittenRequest[LeaderAnswers[LogEnd]]:
    return list_offsets_request(dict.fromkeys(partitions, LATEST_TIMESTAMP), read_committed=False)


_TIMESTAMPS = {
    OffsetSpec.EARLIEST: EARLIEST_TIMESTAMP,
    OffsetSpec.LATEST: LATEST_TIMESTAMP,
    OffsetSpec.LAST_STABLE: LATEST_TIMESTAMP,
}

Answers = dict[TopicPartition, int | KafkaError]


async def list_offsets(
    session: DataClientPool,
    spec: OffsetSpec,
    partitions: Collection[TopicPartition],
    *,
    timeout_seconds: float | None = None,
) -> Answers:
    """The offset that `spec` names for each partition, or the error. As `look_up_offsets`."""
    return await look_up_offsets(
        session,
        dict.fromkeys(partitions, _TIMESTAMPS[spec]),
        read_committed=spec is OffsetSpec.LAST_STABLE,
        doing=f"list {spec} offsets",
        timeout_seconds=timeout_seconds,
    )


async def list_offset(session: DataClientPool, spec: OffsetSpec, partition: TopicPartition) -> int:
    """As `list_offsets`, of one partition. Raises KafkaError."""
    return required((await list_offsets(session, spec, [partition]))[partition])


async def look_up_offsets(
    session: DataClientPool,
    timestamps_ms: Mapping[TopicPartition, int],
    *,
    read_committed: bool,
    doing: str,
    timeout_seconds: float | None = None,
) -> Answers:
    """For each partition the offset of a time in ms (or EARLIEST_TIMESTAMP, LATEST_TIMESTAMP), -1 for none.

    Raises KafkaError only when the whole cluster cannot be reached. Bounded by `timeout_seconds`; None = the
    session's time-out. Leaders that moved: see `ask_leaders`.
    """

    def request(led: Collection[TopicPartition]) -> HandWrittenRequest[LeaderAnswers[LogEnd]]:
        wanted = {partition: timestamps_ms[partition] for partition in led}
        return list_offsets_request(wanted, read_committed=read_committed)

    answers = await ask_leaders(
        session,
        timestamps_ms,
        request,
        doing,
        timeout_seconds=session.timeout_seconds if timeout_seconds is None else timeout_seconds,
        fresh=False,
    )
    return {
        partition: answer if isinstance(answer, KafkaError) else answer.offset
        for partition, answer in answers.items()
    }
