"""Many requests of one kind, some of them under way at a time."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from twinlog.errors import KafkaError


async def in_parallel(
    steps: Iterable[Callable[[], Coroutine[Any, Any, None]]], *, at_once: int, name: str
) -> None:
    """Await all steps, at most `at_once` at a time; the first that fails cancels the others.

    Raises the KafkaError of that one; anything else as a TaskGroup does.
    """
    turns = asyncio.Semaphore(at_once)

    async def one(step: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async with turns:
            await step()

    failed: KafkaError | None = None
    try:
        async with asyncio.TaskGroup() as tasks:
            for step in steps:
                tasks.create_task(one(step), name=name)
    except* KafkaError as errors:
        failed = _first(errors)
    if failed is not None:
        raise failed


def _first(errors: BaseExceptionGroup[KafkaError]) -> KafkaError:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, KafkaError)
    return error
