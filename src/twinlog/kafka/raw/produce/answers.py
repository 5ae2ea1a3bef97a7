"""The meaning of a broker's answer to a batch: accepted, to be sent again, or refused. Pure."""

from collections.abc import Sequence

from twinlog.batches.outgoing import LaneReason, OffsetRun, OutgoingBatch
from twinlog.errors import KafkaError
from twinlog.kafka.codes import LEADER_MOVED, ErrorCode
from twinlog.kafka.errors import OFFSET_UNKNOWN, from_reason
from twinlog.kafka.raw.leaders import about, partition_error
from twinlog.kafka.raw.produce.partition_queue import PartitionQueue, PendingBatch
from twinlog.kafka.raw.produce.wire import ProduceAnswer

_TRY_AGAIN = LEADER_MOVED | frozenset(
    (
        ErrorCode.request_timed_out,
        ErrorCode.broker_not_available,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_enough_replicas,
        ErrorCode.not_enough_replicas_after_append,
        ErrorCode.concurrent_transactions,
        ErrorCode.operation_not_attempted,
        ErrorCode.reassignment_in_progress,
        ErrorCode.preferred_leader_not_available,
        ErrorCode.throttling_quota_exceeded,
    )
)
"""Includes the answers of a broker that could not add the partition to the transaction: the markers of the
last one are still being written, or another partition of the request was refused."""
ABOUT_THE_PRODUCER = frozenset(
    (
        ErrorCode.unknown_server_error,
        ErrorCode.cluster_authorization_failed,
        ErrorCode.unsupported_version,
        ErrorCode.out_of_order_sequence_number,
        ErrorCode.duplicate_sequence_number,
        ErrorCode.invalid_producer_epoch,
        ErrorCode.invalid_txn_state,
        ErrorCode.invalid_producer_id_mapping,
        ErrorCode.transactional_id_authorization_failed,
        ErrorCode.unknown_producer_id,
        ErrorCode.producer_fenced,
        ErrorCode.transaction_abortable,
    )
)
"""Refusals that do not concern the partition with which they came."""
_ABOUT_THE_RECORDS = frozenset(
    (
        ErrorCode.corrupt_message,
        ErrorCode.message_too_large,
        ErrorCode.record_list_too_large,
        ErrorCode.invalid_timestamp,
        ErrorCode.invalid_record,
    )
)
"""The same records are refused each time: the message has to say which."""
_CORRUPT_ATTEMPTS = 3
"""Damage in transit is healed by sending again; damage of the batch itself is not."""

_UNKNOWN_ID_ATTEMPTS = 5
"""Within a second: a leader may learn of a new topic later than of its leadership. Another topic of the name
stays another one."""


def refusal_of(answer: ProduceAnswer, batch: OutgoingBatch, *, alias: str) -> KafkaError | None:
    """Why the broker did not accept the batch; None when it did."""
    doing = "send a batch"
    if answer.error_code:
        detail = answer.message if batch.reason is LaneReason.OWN_RECORDS else told_of(answer, batch.runs)
        return partition_error(answer.error_code, answer.partition, doing, alias=alias, detail=detail)
    if answer.base_offset < 0:
        return about(answer.partition, from_reason(OFFSET_UNKNOWN, doing, alias=alias))
    return None


def told_of(answer: ProduceAnswer, runs: Sequence[OffsetRun]) -> str:
    """The broker's message, and which record of the source it is about; `runs` are those of the batch."""
    if answer.error_code not in _ABOUT_THE_RECORDS:
        return answer.message
    before = 0
    for first, count in runs:
        if answer.record is not None and before <= answer.record < before + count:
            offset = first + answer.record - before
            return f"the record at the source's offset {offset}: {answer.message}"
        before += count
    return f"the batch at the source's offset {runs[0].first_source_offset}: {answer.message}"


def may_retry(pending: PendingBatch, queue: PartitionQueue, code: int) -> bool:
    """Whether a batch that was refused with this code has to be sent again."""
    if code == ErrorCode.corrupt_message:
        return pending.attempts < _CORRUPT_ATTEMPTS
    if code == ErrorCode.unknown_topic_id:
        return pending.attempts < _UNKNOWN_ID_ATTEMPTS
    if code == ErrorCode.out_of_order_sequence_number:
        return queue.has_earlier(pending)
    return code in _TRY_AGAIN
