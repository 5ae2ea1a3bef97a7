"""What a broker's answer to a batch means: taken, to be sent again, or refused. Pure."""

from twinlog.errors import KafkaError
from twinlog.kafka.errors import OFFSET_UNKNOWN, from_reason
from twinlog.kafka.raw.errors import about, partition_error
from twinlog.kafka.raw.produce.partition_queue import PartitionQueue, PendingBatch
from twinlog.kafka.raw.wire import ProduceAnswer

LEADER_MOVED = frozenset((3, 5, 6, 9, 13, 56, 72, 74, 75, 100, 103))
NOT_ATTEMPTED = 55
_BUSY = 51
_TRY_AGAIN = LEADER_MOVED | frozenset((7, 8, 14, 15, 19, 20, _BUSY, NOT_ATTEMPTED, 60, 80, 89))
"""Also what a broker says that could not add the partition to the transaction: the last one's markers are
still being written, or another partition of the request was refused."""
ABOUT_THE_PRODUCER = frozenset((-1, 31, 35, 45, 46, 47, 48, 49, 53, 59, 90, 120))
"""Refusals that say nothing about the partition they came with."""
_CORRUPT = 2
_OUT_OF_ORDER = 45
_CORRUPT_ATTEMPTS = 3
"""Damage on the way is cured by sending again; damage of the batch itself is not."""


def refusal_of(answer: ProduceAnswer, *, alias: str) -> KafkaError | None:
    """Why the broker did not take the batch; None when it did."""
    doing = "send a batch"
    if answer.error_code:
        return partition_error(answer.error_code, answer.partition, doing, alias=alias, detail=answer.message)
    if answer.base_offset < 0:
        return about(answer.partition, from_reason(OFFSET_UNKNOWN, doing, alias=alias))
    return None


def may_retry(pending: PendingBatch, queue: PartitionQueue, code: int) -> bool:
    """Whether a batch that was refused with this code is to be sent again."""
    if code == _CORRUPT:
        return pending.attempts < _CORRUPT_ATTEMPTS
    if code == _OUT_OF_ORDER:
        return queue.has_earlier(pending)
    return code in _TRY_AGAIN
