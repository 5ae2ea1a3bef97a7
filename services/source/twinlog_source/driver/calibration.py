"""Measures from this process how long a flow's clusters take to answer, and how fast the target takes
records: by one slot, by two, and so on, until more of them make it no faster.

Invariant: it writes to a topic of its own only, no more than it may, and deletes it.
"""

import asyncio
import os
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Final

import structlog

from twinlog.batches import NewRecord, build_batch
from twinlog.clock import Clock
from twinlog.errors import StateError, TwinlogError, first_of, required
from twinlog.kafka.clients import aiokafka_client_options
from twinlog.kafka.deadline import deadline, pause
from twinlog.kafka.ports import KafkaCluster, NewTopic, TopicAdmin
from twinlog.kafka.raw import DataClientPool
from twinlog.model import TopicPartition
from twinlog.policy.internal_topics import transactional_id_prefix
from twinlog.policy.transformed import TopicTransforms
from twinlog.transforms.expressions import Expressions
from twinlog_source.config import SourceFlow
from twinlog_source.reasons import STARTING, PartitionReason
from twinlog_source.task.writing.transport import Rounds, producer_settings

SLOTS: Final = (1, 2, 4, 8)
USUAL_SECONDS, LONGEST_SECONDS = 60, 300
MOST_BYTES: Final = 1_000_000_000
_PARTITIONS_PER_SLOT: Final = 4
_RECORDS, _RECORD_BYTES, _BATCHES = 100, 1000, 5
"""Of a batch; in a round, for each partition."""
ROUND_BYTES: Final = _RECORDS * _RECORD_BYTES * _BATCHES * _PARTITIONS_PER_SLOT
LEAST_BYTES: Final = sum(SLOTS) * ROUND_BYTES
_ASKED: Final = 9
_CALL_SECONDS: Final = 20.0
_GAIN: Final = 1.1
"""Twice the slots are worth it when the target takes so many times as much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    source_seconds: float
    """A round trip."""
    target_seconds: float
    bytes_per_second: Sequence[tuple[int, float]]
    """By so many slots, in the order in which it was measured."""

    @property
    def best(self) -> tuple[int, float]:
        """The fewest slots that are about as fast as any.

        >>> def best(*speeds: float) -> tuple[int, float]:
        ...     measured = tuple(zip(SLOTS, speeds))
        ...     return Calibration(source_seconds=0, target_seconds=0, bytes_per_second=measured).best
        >>> best(9.0), best(9.0, 17.0, 18.0), best(9.0, 8.0)
        ((1, 9.0), (2, 17.0), (1, 9.0))
        """
        fastest = max(speed for _, speed in self.bytes_per_second)
        return next(each for each in self.bytes_per_second if each[1] * _GAIN >= fastest)


def name_of_topic(flow: SourceFlow) -> str:
    """A new one each time; nobody replicates an internal topic."""
    return f"mm2-calibration.{flow.flow.source}.{secrets.token_hex(4)}.internal"


async def calibrate(
    flow: SourceFlow,
    topic: str,
    *,
    source: KafkaCluster,
    target: KafkaCluster,
    clock: Clock,
    seconds: float,
    most_bytes: int,
) -> Calibration:
    """Takes at most `seconds` for each part of the work. Raises KafkaError."""
    source_seconds = await _round_trip(source, topic, clock)
    new = NewTopic(
        name=topic,
        partition_count=_PARTITIONS_PER_SLOT * SLOTS[-1],
        replication_factor=flow.settings.offset_storage.replication_factor,
        configs={"retention.ms": "3600000", "cleanup.policy": "delete"},
    )
    speeds: list[tuple[int, float]] = []
    try:
        # Also what is not answered in time may have created it.
        required((await target.create_topics([new]))[topic])
        target_seconds = await _round_trip(target, topic, clock)
        for slots in SLOTS:
            rounds = max(1, most_bytes // len(SLOTS) // slots // ROUND_BYTES)
            speed = await _speed(flow, topic, slots, rounds, clock, seconds / len(SLOTS))
            speeds.append((slots, speed))
            if slots > 1 and speed < speeds[-2][1] * _GAIN:
                break
    except ExceptionGroup as failures:
        raise first_of(failures) from None
    finally:
        async with deadline(_CALL_SECONDS, f"delete {topic}"):
            refused = (await target.delete_topics([topic]))[topic]
    required(refused)
    return Calibration(source_seconds=source_seconds, target_seconds=target_seconds, bytes_per_second=speeds)


async def _round_trip(cluster: TopicAdmin, topic: str, clock: Clock) -> float:
    waits = []
    for _ in range(_ASKED):
        asked_at = clock.monotonic()
        await cluster.describe_topics([topic])
        waits.append(clock.monotonic() - asked_at)
    return median(waits)


async def _speed(
    flow: SourceFlow, topic: str, slots: int, rounds: int, clock: Clock, seconds: float
) -> float:
    """Bytes per second that the target takes from so many slots."""
    async with AsyncExitStack() as stack:
        transports = [await stack.enter_async_context(_transport(flow, slot, stack)) for slot in range(slots)]
        began = clock.monotonic()
        async with asyncio.TaskGroup() as group:
            written = [
                group.create_task(
                    _write(transport, topic, slot, rounds, clock, began + seconds), name="calibration"
                )
                for slot, transport in enumerate(transports)
            ]
        return ROUND_BYTES * sum(each.result() for each in written) / max(clock.monotonic() - began, 0.001)


def _transport(flow: SourceFlow, slot: int, stack: AsyncExitStack) -> Rounds:
    properties, alias = flow.task_clients(slot)["data_producer"], flow.flow.target
    session = DataClientPool(
        alias, aiokafka_client_options(properties, alias=alias), timeout_seconds=_CALL_SECONDS
    )
    stack.push_async_callback(session.close)
    prefix = f"{transactional_id_prefix(flow.flow)}calibration-{slot}"
    ids = (f"{prefix}-0", f"{prefix}-1") if flow.settings.exactly_once else ()
    # No configsync has seen this topic before.
    settings = replace(producer_settings(properties, alias=alias), unknown_topic_seconds=_CALL_SECONDS)
    return Rounds(session, ids, settings)


async def _write(transport: Rounds, topic: str, slot: int, most: int, clock: Clock, until: float) -> int:
    """Rounds as a task writes them, one after the other, until that moment; returns how many."""
    partitions = [
        TopicPartition(topic, slot * _PARTITIONS_PER_SLOT + each) for each in range(_PARTITIONS_PER_SLOT)
    ]
    batch = build_batch([NewRecord(None, os.urandom(_RECORD_BYTES), clock.now_ms()) for _ in range(_RECORDS)])
    written = 0
    async with asyncio.TaskGroup() as group:
        commit: asyncio.Task[None] | None = None
        while clock.monotonic() < until and written < most:
            round_ = transport.begin()
            for _ in range(_BATCHES):
                for partition in partitions:
                    round_.send(partition, batch)
            await round_.store({})
            if commit is not None:
                await commit
            commit = group.create_task(round_.commit(), name="commit of a calibration")
            await pause(0.0)  # It has to begin before the next round.
            written += 1
    return written


# Lets Spark look at the expressions of a flow before a record of their topics is fetched.

RETRY_SECONDS = 5.0
CHECK_SECONDS = 300.0
"""A function of the user may not return."""
Check = Callable[[Expressions], Awaitable[None]]
"""Raises TwinlogError (TRANSFORM_REFUSED: for good)."""

log = structlog.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class TransformCheck:
    flow: SourceFlow
    decided: asyncio.Event
    """Set when there is news."""
    _problem: TwinlogError | None = field(init=False, default=None)
    _transforms: TopicTransforms | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if self.flow.expressions is not None:
            self._transforms = TopicTransforms(self.flow.transforms, self.flow.flow.source)
            self._problem = StateError("Spark looks at the flow's twinlog.transform.*", reason=STARTING)

    def problem_of(self, topic: str) -> TwinlogError | None:
        """Why the records of a topic of the source may not be copied (yet)."""
        return self._problem if self.concerns(topic) else None

    def concerns(self, topic: str) -> bool:
        """Whether Spark changes the records of a topic of the source."""
        return self._transforms is not None and self._transforms.expressions(topic) is not None

    async def run(self, check: Check, *, after: asyncio.Event) -> None:
        """Return when Spark has decided; it is not asked before `after` is set."""
        await after.wait()
        expressions = self.flow.expressions
        while expressions is not None and self._problem is not None:
            try:
                async with asyncio.timeout(CHECK_SECONDS):
                    await check(expressions)
                self._problem = None
            except TimeoutError:
                told = f"Spark has not understood the flow's twinlog.transform.* within {CHECK_SECONDS:g} s"
                self._problem = StateError(told, reason=PartitionReason.TRANSFORM_REFUSED)
            except TwinlogError as error:
                log.warning("transform_not_checked", flow=str(self.flow.flow), error=str(error))
                self._problem = error
            self.decided.set()
            if self._problem is None or self._problem.reason == PartitionReason.TRANSFORM_REFUSED:
                return
            await pause(RETRY_SECONDS)
