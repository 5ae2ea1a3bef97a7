"""Fetch."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from twinlog.batches import open_records
from twinlog.testing.broker.calls import Call, Handlers, epoch_error, wait_until
from twinlog.testing.broker.codec import Fields
from twinlog.testing.broker.log import PartitionLog
from twinlog.testing.broker.partitions import Partition, Topic

# ListOffsets and OffsetForLeaderEpoch.

HANDLERS = Handlers()
LATEST, EARLIEST = -1, -2
_READ_COMMITTED = 1


class FoundOffset(NamedTuple):
    offset: int
    timestamp_ms: int = -1


_NOTHING = FoundOffset(-1)


@HANDLERS.serves("list_offsets")
async def list_offsets(call: Call) -> Fields:
    return {
        "topics": [
            {"name": asked.name, "partitions": [_lookup(call, asked.name, each) for each in asked.partitions]}
            for asked in call.body.topics
        ]
    }


def _lookup(call: Call, topic: str, asked: Any) -> Fields:
    known_epoch = getattr(asked, "current_leader_epoch", -1)
    partition, error = call.leader_partition(topic, asked.partition_index, known_epoch)
    answer: Fields = {"partition_index": asked.partition_index, "error_code": error}
    if partition is None or error:
        return answer
    log = partition.log
    committed = call.get("isolation_level", 0) == _READ_COMMITTED
    end = log.last_stable_offset if committed else log.high_watermark
    found = find_offset(log, asked.timestamp, end)
    return {
        **answer,
        "timestamp": found.timestamp_ms,
        "offset": found.offset,
        "leader_epoch": log.epoch_at(found.offset) if found.offset >= 0 else -1,
    }


def find_offset(log: PartitionLog, timestamp_ms: int, end: int) -> FoundOffset:
    """The first one at or after the time, before `end`; -1 if there is none."""
    if timestamp_ms == LATEST:
        return FoundOffset(end)
    if timestamp_ms == EARLIEST:
        return FoundOffset(log.start_offset)
    for batch in log.batches:
        if batch.header.max_timestamp_ms < timestamp_ms:
            continue
        for offset, record_ms, _ in open_records(batch.batch):
            time_ms = batch.header.max_timestamp_ms if batch.header.is_log_append_time else record_ms
            if offset >= log.start_offset and time_ms >= timestamp_ms:
                return FoundOffset(offset, time_ms) if offset < end else _NOTHING
    return _NOTHING


@HANDLERS.serves("offset_for_leader_epoch")
async def offset_for_leader_epoch(call: Call) -> Fields:
    """Where a leader epoch ended, by the log of the current leader (KIP-320)."""
    return {
        "topics": [
            {"topic": asked.topic, "partitions": [_end(call, asked.topic, each) for each in asked.partitions]}
            for asked in call.body.topics
        ]
    }


def _end(call: Call, topic: str, asked: Any) -> Fields:
    known_epoch = getattr(asked, "current_leader_epoch", -1)
    partition, error = call.leader_partition(topic, asked.partition, known_epoch)
    answer: Fields = {"partition": asked.partition, "error_code": error}
    if partition is None or error:
        return answer
    epoch, end_offset = partition.log.epoch_end(asked.leader_epoch)
    return {**answer, "leader_epoch": epoch, "end_offset": end_offset}


_NO_SESSION = 0
_TOPIC_ID_VERSION = 13


@HANDLERS.serves("fetch")
async def fetch(call: Call) -> Fields:
    """Wait for the least number of bytes, at most as long as the client said. As a broker without room for
    sessions (KIP-227), which no client of ours wants, it tells everything each time."""
    read = _Read(call)
    partitions = [each for each in read.partitions() if each is not None]
    await wait_until(partitions, lambda: read.is_enough(), call.body.max_wait.total_seconds())
    return {
        "error_code": ErrorCode.none,
        "session_id": _NO_SESSION,
        "responses": read.responses,
    }


class _Read:
    """One look at all partitions of a request; a later look replaces it."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._topics: Sequence[Any] = call.body.topics
        self._left_bytes = 0
        self._has_error = False
        self.responses: list[Fields] = []

    def partitions(self) -> list[Partition | None]:
        return [
            self._call.cluster.partition(topic.name, each.partition)
            for asked in self._topics
            if (topic := self._topic(asked)) is not None
            for each in asked.partitions
        ]

    def is_enough(self) -> bool:
        body = self._call.body
        self._left_bytes = body.max_bytes
        self._has_error = False
        before = self._left_bytes
        self.responses = [self._read_topic(asked) for asked in self._topics]
        return self._has_error or not self._topics or before - self._left_bytes >= body.min_bytes

    @property
    def _is_by_id(self) -> bool:
        return self._call.version >= _TOPIC_ID_VERSION

    def _topic(self, asked: Any) -> Topic | None:
        if self._is_by_id:
            return self._call.cluster.topic_by_id(asked.topic_id)
        return self._call.cluster.topics.get(asked.topic)

    def _read_topic(self, asked: Any) -> Fields:
        topic = self._topic(asked)
        parts = [self._read_partition(topic, each) for each in asked.partitions]
        named = {"topic_id": asked.topic_id} if self._is_by_id else {"topic": asked.topic}
        return {**named, "partitions": parts}

    def _read_partition(self, topic: Topic | None, asked: Any) -> Fields:
        if topic is None:
            error = ErrorCode.unknown_topic_id if self._is_by_id else ErrorCode.unknown_topic_or_partition
            return self._failed(asked, error)
        partition, error = self._readable(topic.name, asked)
        if partition is None or error:
            return self._failed(asked, error, partition)
        node = self._call.node
        log = partition.logs[node.node_id]
        if not log.start_offset <= asked.fetch_offset <= log.end_offset:
            return self._failed(asked, ErrorCode.offset_out_of_range, partition)
        preferred = self._preferred(partition)
        committed = self._call.body.isolation_level == _READ_COMMITTED
        before = log.last_stable_offset if committed else log.high_watermark
        limit = min(asked.partition_max_bytes, self._left_bytes)
        records = b""
        if preferred < 0:
            nothing_yet = self._left_bytes == self._call.body.max_bytes
            records = log.read(asked.fetch_offset, max_bytes=limit, before=before, whole_first=nothing_yet)
        self._left_bytes -= len(records)
        return {
            "partition_index": asked.partition,
            "error_code": ErrorCode.none,
            "high_watermark": log.high_watermark,
            "last_stable_offset": log.last_stable_offset,
            "log_start_offset": log.start_offset,
            "aborted_transactions": [
                {"producer_id": each.producer_id, "first_offset": each.first_offset}
                for each in log.aborted_from(asked.fetch_offset)
            ]
            if committed
            else None,
            "preferred_read_replica": preferred,
            "records": records,
        }

    def _readable(self, name: str, asked: Any) -> tuple[Partition | None, ErrorCode]:
        known_epoch = getattr(asked, "current_leader_epoch", -1)
        partition, error = self._call.leader_partition(name, asked.partition, known_epoch)
        if (
            partition is not None
            and error is ErrorCode.not_leader_or_follower
            and not self._call.injected
            and self._call.node.node_id in partition.replicas
        ):
            return partition, epoch_error(partition, known_epoch)
        return partition, error

    def _preferred(self, partition: Partition) -> int:
        """The replica in the client's rack, asked at the leader (RackAwareReplicaSelector)."""
        rack = self._call.get("rack_id", "")
        cluster = self._call.cluster
        if not rack or not cluster.is_rack_aware or partition.leader != self._call.node.node_id:
            return -1
        near = [each for each in partition.isr if cluster.nodes[each].rack == rack]
        return -1 if not near or partition.leader in near else near[0]

    def _failed(self, asked: Any, error: ErrorCode, partition: Partition | None = None) -> Fields:
        self._has_error = True
        answer: dict[str, Any] = {
            "partition_index": asked.partition,
            "error_code": error,
            "high_watermark": -1,
            "last_stable_offset": -1,
            "log_start_offset": -1,
            "aborted_transactions": None,
            "records": b"",
        }
        if partition is not None and error in (
            ErrorCode.not_leader_or_follower,
            ErrorCode.fenced_leader_epoch,
        ):
            leader = {"leader_id": partition.leader, "leader_epoch": partition.leader_epoch}
            answer["current_leader"] = leader
        return answer
