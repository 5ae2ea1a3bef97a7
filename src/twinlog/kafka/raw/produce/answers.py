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
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.REASSIGNMENT_IN_PROGRESS,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    )
)
"""Includes the answers of a broker that could not add the partition to the transaction: the markers of the
last one are still being written, or another partition of the request was refused."""
ABOUT_THE_PRODUCER = frozenset(
    (
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTION_ABORTABLE,
    )
)
"""Refusals that do not concern the partition with which they came."""
_ABOUT_THE_RECORDS = frozenset(
    (
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.INVALID_RECORD,
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
    if code == ErrorCode.CORRUPT_MESSAGE:
        return pending.attempts < _CORRUPT_ATTEMPTS
    if code == ErrorCode.UNKNOWN_TOPIC_ID:
        return pending.attempts < _UNKNOWN_ID_ATTEMPTS
    if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
        return queue.has_earlier(pending)
    return code in _TRY_AGAIN
