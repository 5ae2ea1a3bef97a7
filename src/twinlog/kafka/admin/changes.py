"""Requests that change a cluster. They go to its controller.

With KRaft every broker takes them and passes them on; with ZooKeeper the controller alone takes those about
topics. So the broker that the metadata names is asked first. One that is silent, as a stopped process or a
host behind a lost network is, costs a third of the time-out; then another one is asked.
"""

from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

from twinlog.errors import KafkaError, TransientKafkaError
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.deadline import deadline
from twinlog.kafka.errors import KAFKA_CLIENT_ERRORS, TIMEOUT, UNAVAILABLE, UNSUPPORTED, from_code, translate
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.protocol.requests import HandWrittenRequest

# Splits changes into requests that a controller accepts.
#
# KRaft refuses a whole request that creates more than 10,000 metadata records
# (QuorumController.MAX_RECORDS_PER_USER_OP): one for each topic, partition, property, ACL and quota.

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
Answer = TypeVar("Answer")

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
    send: Callable[[list[T]], Awaitable[Mapping[K, Answer | KafkaError]]],
    *,
    key: Callable[[T], K],
    records: Callable[[T], int] = one_record,
    most: int = MOST_RECORDS,
) -> dict[K, Answer | KafkaError]:
    """Send batch after batch; return the answer of each change by its key.

    After a batch without any answer nothing more is sent, and its error is that of the others, so that a
    cluster that is down is waited for only once. Raises what `send` raises.
    """
    answers: dict[K, Answer | KafkaError] = {}
    silence: KafkaError | None = None
    for batch in batches(changes, records, most=most):
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


Outcome = tuple[K, int, str | None]
"""What was asked for, its error code, and the broker's words about it."""

_SHARE: Final = 1 / 3
"""The share of the time-out for one broker."""


def share_ms(session: DataClientPool) -> int:
    """How long a broker may work on a change before it answers that it takes longer."""
    return int(session.timeout_seconds * _SHARE * 1000)


async def change(
    session: DataClientPool,
    request: HandWrittenRequest[Any],
    doing: str,
    keys: Collection[K],
    outcomes: Callable[[Any], Iterable[Outcome[K]]],
) -> dict[K, KafkaError | None]:
    """Send a request that changes something; return the error of each key, None for what is done.

    Raises KafkaError when credentials or certificates are refused. A cluster that does not answer in time, or
    does not know the request, is an error of each key. After such an error a change may have been made.
    """
    try:
        answer = await _asked(session, request, doing, outcomes)
    except KafkaError as error:
        if error.retriable or error.reason == UNSUPPORTED.name:
            return dict.fromkeys(keys, error)
        raise
    found: dict[K, KafkaError | None] = dict.fromkeys(
        keys, from_code(ErrorCode.unknown_server_error, doing, alias=session.alias, detail="not answered")
    )
    found |= {key: error_of(session, code, message, doing) for key, code, message in outcomes(answer)}
    return found


def error_of(session: DataClientPool, code: int, message: str | None, doing: str) -> KafkaError | None:
    """None for code 0."""
    return from_code(int(code), doing, alias=session.alias, detail=message or "") if code else None


async def _asked(
    session: DataClientPool,
    request: HandWrittenRequest[Any],
    doing: str,
    outcomes: Callable[[Any], Iterable[Outcome[K]]],
) -> Any:
    last: KafkaError | None = None
    moved = False
    try:
        async with deadline(session.timeout_seconds, doing, alias=session.alias):
            while True:
                try:
                    answer = await _asked_once(session, request, doing, no_other=moved)
                    moved = any(code == ErrorCode.not_controller for _, code, _ in outcomes(answer))
                    if not moved:
                        return answer
                    last = from_code(ErrorCode.not_controller, doing, alias=session.alias)
                except TransientKafkaError as error:
                    moved = False
                    if error.reason != TIMEOUT.name:
                        last = error
                await session.forget_leader(doing)
    except TransientKafkaError as error:
        raise last or error from error


async def _asked_once(
    session: DataClientPool, request: HandWrittenRequest[Any], doing: str, *, no_other: bool
) -> Any:
    async with deadline(session.timeout_seconds, doing, alias=session.alias, share=_SHARE):
        client = await session.client(doing)
        try:
            return await client.ask_controller(
                lambda node_id: session.send(node_id, request, doing), no_other=no_other
            )
        except KAFKA_CLIENT_ERRORS as error:
            session.suspect()
            raise translate(error, doing, alias=session.alias) from error
