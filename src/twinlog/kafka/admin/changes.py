"""Requests that change a cluster. They go to its controller.

With KRaft every broker takes them and passes them on; with ZooKeeper the controller alone takes those about
topics. So the broker that the metadata names is asked first. One that is silent, as a stopped process or a
host behind a lost network is, costs a third of the time-out; then another one is asked.
"""

from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Any, Final, TypeVar

from twinlog.errors import KafkaError, TransientKafkaError
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.deadline import deadline
from twinlog.kafka.errors import KAFKA_CLIENT_ERRORS, TIMEOUT, UNSUPPORTED, from_code, translate
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.protocol.requests import HandWrittenRequest

K = TypeVar("K", bound=Hashable)

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
        keys, from_code(ErrorCode.UNKNOWN_SERVER_ERROR, doing, alias=session.alias, detail="not answered")
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
                    moved = any(code == ErrorCode.NOT_CONTROLLER for _, code, _ in outcomes(answer))
                    if not moved:
                        return answer
                    last = from_code(ErrorCode.NOT_CONTROLLER, doing, alias=session.alias)
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
    async with deadline(session.timeout_seconds * _SHARE, doing, alias=session.alias):
        client = await session.client(doing)
        try:
            return await client.ask_controller(
                lambda node_id: session.send(node_id, request, doing), no_other=no_other
            )
        except KAFKA_CLIENT_ERRORS as error:
            session.suspect()
            raise translate(error, doing, alias=session.alias) from error
