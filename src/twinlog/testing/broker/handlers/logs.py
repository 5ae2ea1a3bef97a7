"""DeleteRecords, DescribeProducers, WriteTxnMarkers."""

from typing import Any

from kio.schema.errors import ErrorCode

from twinlog.batches import EndMarker
from twinlog.testing.broker.acls import CLUSTER_NAME, Operation, Resource
from twinlog.testing.broker.appending import append_marker
from twinlog.testing.broker.calls import Call, Handlers
from twinlog.testing.broker.codec import Fields
from twinlog.testing.broker.producer_states import AppendError, ProducerEntry

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
        partition.log.expire_producers(call.cluster.now_ms(call.node))
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
        now_ms = call.cluster.now_ms(call.node)
        try:
            append_marker(
                partition, ending, marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, now_ms
            )
        except AppendError as refusal:
            error = refusal.code
    return {"partition_index": index, "error_code": error}
