"""Real brokers for tests, and waiting for what they do.

    kafka_pair = start_clusters(ClusterSpec(name="A"), ClusterSpec(name="B"))

The clusters are plain subprocesses and belong to no event loop: start them once for a whole run.
"""

import asyncio
import inspect
import re
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar, overload

from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.cluster_group import start_clusters, stop_clusters
from twinlog.service.waiting import wait_or_stop

__all__ = ["KafkaPair", "eventually", "start_clusters", "stop_clusters", "unique_name"]

_POLL_SECONDS = 0.05
_LONGEST_TOPIC_NAME = 249

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaPair:
    """Two one-broker clusters that run as long as the test run."""

    a: BlockingCluster
    b: BlockingCluster


def unique_name(hint: str) -> str:
    """`hint` made fit for a topic or group name, and unlike every other: tests share brokers."""
    fit = re.sub(r"[^A-Za-z0-9_-]+", "-", hint).strip("-")
    suffix = uuid.uuid4().hex[:8]
    return f"{fit[: _LONGEST_TOPIC_NAME - 60]}-{suffix}"


@overload
async def eventually(
    predicate: Callable[[], Awaitable[Value | None]], timeout_seconds: float = 60.0
) -> Value: ...


@overload
async def eventually(predicate: Callable[[], Value | None], timeout_seconds: float = 60.0) -> Value: ...


async def eventually(
    predicate: Callable[[], Value | Awaitable[Value | None] | None], timeout_seconds: float = 60.0
) -> Value:
    """Ask `predicate` until its answer is true, and return that answer.

    An AssertionError counts as not yet: a predicate may be a function of asserts that returns True. Raises
    AssertionError with the last answer or failed assert after `timeout_seconds`; other errors at once.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_seconds
    never = asyncio.Event()
    while True:
        failure: AssertionError | None = None
        answer: Value | None = None
        try:
            async with asyncio.timeout_at(deadline + timeout_seconds):
                asked = predicate()
                answer = await asked if inspect.isawaitable(asked) else asked
        except AssertionError as error:
            failure = error
        if answer:
            return answer
        if loop.time() > deadline:
            told = str(failure) or "an assert without words" if failure is not None else f"it gave {answer!r}"
            raise AssertionError(f"not so within {timeout_seconds} s: {told}") from failure
        await wait_or_stop(never, _POLL_SECONDS)
