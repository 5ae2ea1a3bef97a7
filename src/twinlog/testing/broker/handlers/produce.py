"""Produce."""

from typing import Any

from kio.schema.errors import ErrorCode

from twinlog.batches import EndMarker
from twinlog.testing.broker.acls import CLUSTER_NAME, Operation, Resource
from twinlog.testing.broker.appending import Appended, append_batch, append_marker, checked_batch
from twinlog.testing.broker.calls import Call, Handlers, wait_until
from twinlog.testing.broker.codec import Fields
from twinlog.testing.broker.partitions import Partition
from twinlog.testing.broker.producer_states import AppendError, ProducerEntry

# DeleteRecords, DescribeProducers, WriteTxnMarkers.

HANDLERS = Handlers()
_TO_HIGH_WATERMARK = -1


@HANDLERS.serves("delete_records")
async def delete_records(call: Call) -> Fields:
    """Up to an offset; -1 is the high watermark (KIP-107)."""
    return {
        "topics": [
            {"name": asked.name, "partitions": [_delete(call, asked.name, each) for each in asked.partitions]}
            for asked in call.body.topics
        ]
    }


def _delete(call: Call, topic: str, asked: Any) -> Fields:
    partition, error = call.leader_partition(topic, asked.partition_index)
    answer = {"partition_index": asked.partition_index, "low_watermark": -1}
    if partition is None or error:
        return {**answer, "error_code": error}
    log = partition.log
    offset = log.high_watermark if asked.offset == _TO_HIGH_WATERMARK else asked.offset
    if not log.settings.is_deleted:
        return {**answer, "error_code": ErrorCode.policy_violation}
    if not 0 <= offset <= log.high_watermark:
        return {**answer, "error_code": ErrorCode.offset_out_of_range}
    for each in partition.logs.values():
        each.delete_before(min(offset, each.end_offset))
    partition.wake()
    return {**answer, "low_watermark": log.start_offset, "error_code": ErrorCode.none}


@HANDLERS.serves("describe_producers")
async def describe_producers(call: Call) -> Fields:
    """KIP-664."""
    return {
        "topics": [
            {
                "name": asked.name,
                "partitions": [_producers(call, asked.name, each) for each in asked.partition_indexes],
            }
            for asked in call.body.topics
        ]
    }


def _producers(call: Call, topic: str, index: int) -> Fields:
    partition, error = call.leader_partition(topic, index)
    entries: list[ProducerEntry] = []
    if partition is not None and not error:
        partition.log.expire_producers(call.cluster.clock.now_ms())
        entries = list(partition.log.producers.entries.values())
    return {
        "partition_index": index,
        "error_code": error,
        "error_message": None,
        "active_producers": [
            {
                "producer_id": entry.producer_id,
                "producer_epoch": entry.epoch,
                "last_sequence": entry.last_sequence,
                "last_timestamp": entry.last_timestamp_ms,
                "coordinator_epoch": entry.coordinator_epoch,
                "current_txn_start_offset": -1
                if entry.first_open_offset is None
                else entry.first_open_offset,
            }
            for entry in entries
        ],
    }


@HANDLERS.serves("write_txn_markers")
async def write_txn_markers(call: Call) -> Fields:
    """From coordinators, and from administrators who end a hanging transaction (KIP-664)."""
    return {
        "markers": [
            {
                "producer_id": marker.producer_id,
                "topics": [
                    {
                        "name": topic.name,
                        "partitions": [
                            _mark(call, marker, topic.name, each) for each in topic.partition_indexes
                        ],
                    }
                    for topic in marker.topics
                ],
            }
            for marker in call.body.markers
        ]
    }


def _mark(call: Call, marker: Any, topic: str, index: int) -> Fields:
    partition, error = call.leader_partition(topic, index)
    # Brokers before 3.8 ask for CLUSTER_ACTION alone.
    rights = (Operation.CLUSTER_ACTION, Operation.ALTER)
    if not any(call.allows(each, Resource.CLUSTER, CLUSTER_NAME) for each in rights):
        error = ErrorCode.cluster_authorization_failed
    if partition is not None and not error:
        ending = EndMarker.COMMIT if marker.transaction_result else EndMarker.ABORT
        now_ms = call.cluster.clock.now_ms()
        try:
            append_marker(
                partition, ending, marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, now_ms
            )
        except AppendError as refusal:
            error = refusal.code
    return {"partition_index": index, "error_code": error}


_TOPIC_ID_VERSION = 13
_IMPLICIT_ADD_VERSION = 12
"""From here on a batch adds its partition to the transaction (KIP-890)."""
_TRANSACTION_ABORTABLE_VERSION = 11
_ALL = -1
_KNOWN_ACKS = (_ALL, 0, 1)


@HANDLERS.serves("produce")
async def produce(call: Call) -> Fields | None:
    """Append each partition's batch, then wait for the followers if all of them shall have it."""
    body = call.body
    waits: list[tuple[Partition, Appended, dict[str, Any]]] = []
    responses: list[dict[str, Any]] = []
    for asked in body.topic_data:
        name = _topic_name(call, asked)
        parts = [_append(call, name, each, waits) for each in asked.partition_data]
        by = {"topic_id": asked.topic_id} if call.version >= _TOPIC_ID_VERSION else {"name": asked.name}
        responses.append({**by, "partition_responses": parts})
    if body.acks == _ALL:
        await _until_replicated(waits, body.timeout.total_seconds())
    return {"responses": responses} if body.acks else None


def _topic_name(call: Call, asked: Any) -> str | None:
    if call.version < _TOPIC_ID_VERSION:
        return str(asked.name)
    topic = call.cluster.topic_by_id(asked.topic_id)
    return topic.name if topic else None


def _append(
    call: Call, name: str | None, asked: Any, waits: list[tuple[Partition, Appended, dict[str, Any]]]
) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "index": asked.index,
        "error_code": ErrorCode.none,
        "base_offset": -1,
        "log_append_time": -1,
        "log_start_offset": -1,
        "record_errors": [],
        "error_message": None,
    }
    if name is None:
        return {**answer, "error_code": ErrorCode.unknown_topic_id}
    partition, error = call.leader_partition(name, asked.index)
    if call.body.acks not in _KNOWN_ACKS:
        error = ErrorCode.invalid_required_acks
    if partition is None or error:
        return {**answer, "error_code": error, **(_leader(partition) if partition else {})}
    try:
        if call.body.acks == _ALL and len(partition.isr) < _needed_in_sync(call, partition):
            raise AppendError(ErrorCode.not_enough_replicas)
        data = bytes(asked.records or b"")
        _check_transaction(call, partition, data)
        now_ms = call.cluster.clock.now_ms()
        appended = append_batch(
            partition, data, now_ms, transactions_v2=call.version >= _IMPLICIT_ADD_VERSION
        )
    except AppendError as refusal:
        return {**answer, "error_code": refusal.code, "error_message": str(refusal)}
    answer["base_offset"] = appended.base_offset
    answer["log_append_time"] = appended.append_time_ms
    answer["log_start_offset"] = partition.log.start_offset
    waits.append((partition, appended, answer))
    return answer


def _leader(partition: Partition) -> Fields:
    """KIP-951: who leads instead."""
    return {"current_leader": {"leader_id": partition.leader, "leader_epoch": partition.leader_epoch}}


def _needed_in_sync(call: Call, partition: Partition) -> int:
    """Since 3.7 no more than the partition has replicas."""
    asked = partition.log.settings.min_insync_replicas
    return min(asked, len(partition.replicas)) if call.release.name >= "3.7" else asked


def _check_transaction(call: Call, partition: Partition, data: bytes) -> None:
    """The coordinator has to know that the partition is in the transaction; from KIP-890 on, leaders ask.

    Raises AppendError.
    """
    header = checked_batch(data).header
    if not header.is_transactional or not call.release.verifies_transactions:
        return
    if partition.log.producers.duplicate(header):
        return
    if partition.log.producers.has_open_transaction(header.producer_id, header.producer_epoch):
        return
    error = call.cluster.transactions.verify(
        call.body.transactional_id or "",
        header.producer_id,
        header.producer_epoch,
        (partition.topic, partition.index),
        adds=call.version >= _IMPLICIT_ADD_VERSION,
    )
    if error is ErrorCode.transaction_abortable and call.version < _TRANSACTION_ABORTABLE_VERSION:
        error = ErrorCode.invalid_txn_state
    if error:
        raise AppendError(error)


async def _until_replicated(waits: list[tuple[Partition, Appended, dict[str, Any]]], seconds: float) -> None:
    def replicated() -> bool:
        return all(
            partition.high_watermark >= appended.end_offset or partition.leader < 0
            for partition, appended, _ in waits
        )

    if not waits or await wait_until([each[0] for each in waits], replicated, seconds):
        return
    for partition, appended, answer in waits:
        if partition.high_watermark < appended.end_offset:
            answer["error_code"] = ErrorCode.request_timed_out
