"""ListOffsets and OffsetForLeaderEpoch."""

from collections.abc import Callable
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from twinlog.batches import open_records
from twinlog.testing.broker.calls import Call, Handlers
from twinlog.testing.broker.codec import Fields
from twinlog.testing.broker.log import PartitionLog

HANDLERS = Handlers()
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
_MAX_TIMESTAMP_VERSION, _LOCAL_VERSION, _TIERED_VERSION = 7, 8, 9
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
    lowest_version = {
        MAX_TIMESTAMP: _MAX_TIMESTAMP_VERSION,
        EARLIEST_LOCAL: _LOCAL_VERSION,
        LATEST_TIERED: _TIERED_VERSION,
    }.get(asked.timestamp, 0)
    if asked.timestamp < LATEST_TIERED or call.version < lowest_version:
        return {**answer, "error_code": ErrorCode.unsupported_version}
    log = partition.log
    committed = call.get("isolation_level", 0) == _READ_COMMITTED
    end = log.last_stable_offset if committed else log.high_watermark
    found = _found(log, asked.timestamp, end)
    return {
        **answer,
        "timestamp": found.timestamp_ms,
        "offset": found.offset,
        "leader_epoch": log.epoch_at(found.offset) if found.offset >= 0 else -1,
    }


def _found(log: PartitionLog, timestamp_ms: int, end: int) -> FoundOffset:
    if timestamp_ms == LATEST:
        return FoundOffset(end)
    if timestamp_ms in (EARLIEST, EARLIEST_LOCAL):
        return FoundOffset(log.start_offset)
    if timestamp_ms == LATEST_TIERED:
        return _NOTHING
    if timestamp_ms == MAX_TIMESTAMP:
        largest = max((each.header.max_timestamp_ms for each in log.batches), default=-1)
        return _first(log, lambda at_ms: at_ms == largest, largest, end)
    return _first(log, lambda at_ms: at_ms >= timestamp_ms, timestamp_ms, end)


def _first(log: PartitionLog, wanted: Callable[[int], bool], at_least_ms: int, end: int) -> FoundOffset:
    """The first record with such a time, if readers may see it."""
    for batch in log.batches:
        if batch.header.max_timestamp_ms < at_least_ms:
            continue
        for offset, record_ms, _ in open_records(batch.batch):
            time_ms = batch.header.max_timestamp_ms if batch.header.is_log_append_time else record_ms
            if offset >= log.start_offset and wanted(time_ms):
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
