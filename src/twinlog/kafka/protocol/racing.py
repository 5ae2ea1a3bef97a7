"""Asks several peers for the same thing: the next one when one is slow, and the first answer counts."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, NamedTuple, TypeVar

import aiokafka.errors

from twinlog.errors import KafkaError
from twinlog.kafka.errors import KAFKA_CLIENT_ERRORS, translate

SLOW_SECONDS = 0.5
"""A peer that takes longer may never answer."""

T = TypeVar("T")


class Attempt(NamedTuple):
    name: str
    start: Callable[[], Coroutine[Any, Any, Any]]
    """Returns the answer, or raises one of KAFKA_CLIENT_ERRORS or KafkaError."""


async def first_answer(attempts: Iterable[Attempt], *, slow_seconds: float = SLOW_SECONDS) -> Any:
    """Start the attempts in this order: the next when one has failed, or has been slow. Cancels the others
    when one has an answer.

    Raises the most informative failure: refused credentials or certificates before unreachable peers. The
    caller's deadline applies.
    """
    waiting = list(reversed(list(attempts)))
    failures: list[BaseException] = []
    async with asyncio.TaskGroup() as group:
        pending: set[asyncio.Task[Any]] = set()
        while waiting or pending:
            if waiting:
                attempt = waiting.pop()
                pending.add(group.create_task(_outcome(attempt), name=attempt.name))
            done, pending = await asyncio.wait(
                pending,
                timeout=slow_seconds if waiting else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for task in done:
                answer = task.result()
                if not isinstance(answer, BaseException):
                    for slow in pending:
                        slow.cancel()
                    return answer
                failures.append(answer)
    if not failures:
        raise aiokafka.errors.BrokerNotAvailableError("no broker is known")
    raise min(failures, key=lambda error: translate(error, "ask").retriable)


async def _outcome(attempt: Attempt) -> Any:
    """An error is a value, so that the other attempts go on."""
    try:
        return await attempt.start()
    except (KafkaError, *KAFKA_CLIENT_ERRORS) as error:
        return error
