"""Real brokers for tests, and waiting for what they do.

    kafka_pair = start_clusters(ClusterSpec(name="A"), ClusterSpec(name="B"))

The clusters are plain subprocesses and belong to no event loop: start them once for a whole run.
"""

import asyncio
import inspect
import os
import re
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar, overload

import grpc

from twinlog.batches import Codec, NewRecord, build_batch
from twinlog.errors import KafkaError, TwinlogError
from twinlog.kafka.clients import aiokafka_client_options
from twinlog.kafka.ports import KafkaCluster, NewTopic, OffsetSpec
from twinlog.kafka.raw import DataClientPool, ProducerSettings, RawProducer, fence
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.blocking_cluster import start_clusters as start_clusters
from twinlog.local.blocking_cluster import stop_clusters as stop_clusters
from twinlog.local.spec import KafkaVersion
from twinlog.model import TopicPartition
from twinlog.service.waiting import wait_or_stop

TESTED_KAFKA: Final = next(
    each for each in KafkaVersion if each.startswith(os.environ.get("TWINLOG_TEST_KAFKA", KafkaVersion.V4_3))
)
"""The release of the brokers that most tests share; `make versions` runs the contract on each."""
PATIENCE_SECONDS: Final = 120.0
"""Far longer than anything takes: a machine may be busy, and only a missing event shall fail."""
_POLL_SECONDS = 0.05
_LONGEST_POLL_SECONDS = 1.0
_LONGEST_TOPIC_NAME = 249
_TRANSIENT_CODES = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaPair:
    """Two one-broker clusters that run as long as the test run."""

    a: BlockingCluster
    b: BlockingCluster


def unique_name(hint: str) -> str:
    """`hint` made valid as a topic or group name, and unique: tests share brokers."""
    fit = re.sub(r"[^A-Za-z0-9_-]+", "-", hint).strip("-")
    suffix = uuid.uuid4().hex[:8]
    return f"{fit[: _LONGEST_TOPIC_NAME - 60]}-{suffix}"


@overload
async def eventually(
    predicate: Callable[[], Awaitable[Value | None]], timeout_seconds: float = PATIENCE_SECONDS
) -> Value: ...


@overload
async def eventually(
    predicate: Callable[[], Value | None], timeout_seconds: float = PATIENCE_SECONDS
) -> Value: ...


async def eventually(
    predicate: Callable[[], Value | Awaitable[Value | None] | None], timeout_seconds: float = PATIENCE_SECONDS
) -> Value:
    """Call `predicate` until it returns a true value, and return that value.

    An AssertionError counts as false: a predicate may be a function of asserts that returns True. So do
    retriable errors, as of leaders that move and services that start. Raises AssertionError with the last
    value or error after `timeout_seconds`; other errors at once.

    Calls become less frequent the longer they last and the longer the wait: the awaited work needs the
    processor too.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    deadline = began + timeout_seconds
    never = asyncio.Event()
    while True:
        failure: Exception | None = None
        answer: Value | None = None
        asked_at = loop.time()
        try:
            async with asyncio.timeout_at(deadline + timeout_seconds):
                asked = predicate()
                answer = await asked if inspect.isawaitable(asked) else asked
        except (AssertionError, TwinlogError, grpc.aio.AioRpcError) as error:
            if not _may_heal(error):
                raise
            failure = error
        if answer:
            return answer
        now = loop.time()
        if now > deadline:
            told = str(failure) or "an assert without words" if failure is not None else f"it gave {answer!r}"
            raise AssertionError(f"not so within {timeout_seconds} s: {told}") from failure
        pause_seconds = max(_POLL_SECONDS, (now - began) / 10, now - asked_at)
        await wait_or_stop(never, min(pause_seconds, _LONGEST_POLL_SECONDS))


async def retry_admin(change: Callable[[], Awaitable[Mapping[Any, KafkaError | None]]]) -> None:
    """Make a change by an admin call, and repeat it while brokers refuse a part for now (a leader that moves,
    one that does not know a new topic yet). Raises the KafkaError of any other refusal.

        await retry_admin(lambda: cluster.delete_records({partition: 40}))
    """
    done_before: frozenset[str] = frozenset()

    async def done() -> bool:
        nonlocal done_before
        # A first call without an answer may have taken effect all the same.
        known, done_before = done_before, frozenset({"TOPIC_EXISTS"})
        refusals = [error for error in (await change()).values() if error is not None]
        refusals = [error for error in refusals if error.reason not in known]
        for refusal in refusals:
            if not refusal.retriable:
                raise refusal
        assert not refusals, refusals
        return True

    await eventually(done)


async def make_topics(cluster: KafkaCluster, *new: NewTopic) -> None:
    """Create topics, and return once every partition has a leader that answers."""

    async def create() -> Mapping[str, KafkaError | None]:
        made = await cluster.create_topics(new)
        # A request without an answer, which the client repeats at another broker, may have created a topic.
        return {
            name: error for name, error in made.items() if error is None or error.reason != "TOPIC_EXISTS"
        }

    await retry_admin(create)
    partitions = [
        TopicPartition(topic.name, number) for topic in new for number in range(topic.partition_count)
    ]

    async def are_led() -> bool:
        ends = await cluster.list_offsets(OffsetSpec.LATEST, partitions)
        assert all(isinstance(end, int) for end in ends.values()), ends
        return True

    await eventually(are_led)


def _may_heal(error: Exception) -> bool:
    if isinstance(error, grpc.aio.AioRpcError):
        return error.code() in _TRANSIENT_CODES
    return isinstance(error, AssertionError) or (isinstance(error, TwinlogError) and error.retriable)


# Records with every awkward content, written to real topics batch by batch with a chosen codec.

PAST_MS = 1_000_000_000_000
"""September 2001: long before any broker's segment rolled."""


def awkward_records(now_ms: int, *, count: int = 40) -> list[NewRecord]:
    """Null and empty keys and values, tombstones, all sorts of headers, bytes that are no text, old times."""
    records = [
        NewRecord(None, b"no key", now_ms),
        NewRecord(b"", b"empty key", now_ms),
        NewRecord(b"tombstone", None, now_ms),
        NewRecord(b"empty value", b"", now_ms),
        NewRecord(None, None, now_ms),
        NewRecord(b"\xff\x00\xfe", bytes(range(256)), now_ms),
        NewRecord(b"old", b"from 2001", PAST_MS),
        NewRecord(b"headers", b"v", now_ms, ((b"a", b"1"), (b"a", b"2"), (b"null", None), (b"empty", b""))),
        NewRecord(b"header names", b"v", now_ms, ((b"\xc3\x28", b"not utf-8"), (b"", b"no name"))),
        NewRecord(b"many headers", b"v", now_ms, tuple((b"h%d" % i, b"%d" % i) for i in range(1_000))),
        NewRecord(b"large", b"x" * 200_000, now_ms),
    ]
    return [*records, *(NewRecord(b"k%d" % (i % 7), b"value %d" % i, now_ms + i) for i in range(count))]


async def write_batches(
    cluster: BlockingCluster,
    topic: str,
    batches: Sequence[tuple[int, Codec, Sequence[NewRecord]]],
    *,
    transactional_id: str | None = None,
    abort: bool = False,
) -> None:
    """Write (partition, codec, records) in this order; in one transaction when an id is given."""
    session = DataClientPool("test", aiokafka_client_options(cluster.client_properties()), timeout_seconds=30)
    try:
        settings = ProducerSettings(delivery_timeout_seconds=30)
        async with RawProducer(session, settings, transactional_id=transactional_id) as producer:
            if transactional_id is not None:
                producer.begin()
            for partition, codec, records in batches:
                producer.send(TopicPartition(topic, partition), build_batch(records, codec=codec))
            if transactional_id is None or abort:
                await producer.flush()
            else:
                await producer.commit()
        if abort:
            assert transactional_id is not None
            outcomes = await fence(
                session,
                [transactional_id],
                timeout_seconds=30,
                transaction_timeout_seconds=settings.transaction_timeout_seconds,
            )
            assert not isinstance(outcomes[transactional_id], KafkaError)
    finally:
        await session.close()
