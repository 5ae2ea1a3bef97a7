"""Splits changes into requests that a controller accepts.

KRaft refuses a whole request that creates more than 10,000 metadata records
(QuorumController.MAX_RECORDS_PER_USER_OP): one for each topic, partition, property, ACL and quota.
"""

from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping
from typing import Final, TypeVar

from twinlog.errors import KafkaError
from twinlog.kafka.errors import TIMEOUT, UNAVAILABLE

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

MOST_RECORDS: Final = 5_000
"""Half of the limit, which also bounds the time that a broker takes."""

_NO_ANSWER: Final = frozenset({TIMEOUT.name, UNAVAILABLE.name})


def one_record(_change: object) -> int:
    return 1


def batches(
    changes: Iterable[T], records: Callable[[T], int] = one_record, *, most: int = MOST_RECORDS
) -> Iterator[list[T]]:
    """The changes in order, in lists that create at most `most` records. A single change that creates more is
    a list of its own, so that Kafka's answer is about it."""
    batch: list[T] = []
    size = 0
    for change in changes:
        weight = records(change)
        if batch and size + weight > most:
            yield batch
            batch, size = [], 0
        batch.append(change)
        size += weight
    if batch:
        yield batch


async def in_batches(
    changes: Iterable[T],
    send: Callable[[list[T]], Awaitable[Mapping[K, KafkaError | None]]],
    *,
    key: Callable[[T], K],
    records: Callable[[T], int] = one_record,
) -> dict[K, KafkaError | None]:
    """Send batch after batch; return the answer of each change by its key.

    After a batch without any answer nothing more is sent, and its error is that of the others, so that a
    cluster that is down is waited for only once. Raises what `send` raises.
    """
    answers: dict[K, KafkaError | None] = {}
    silence: KafkaError | None = None
    for batch in batches(changes, records):
        if silence is not None:
            answers |= dict.fromkeys(map(key, batch), silence)
            continue
        answered = await send(batch)
        answers |= answered
        silence = no_answer_at_all(answered)
    return answers


def no_answer_at_all(answered: Mapping[K, object]) -> KafkaError | None:
    """The error of a batch without any answer; None when a part of it was answered."""
    unanswered = [
        error for error in answered.values() if isinstance(error, KafkaError) and error.reason in _NO_ANSWER
    ]
    return unanswered[0] if unanswered and len(unanswered) == len(answered) else None
