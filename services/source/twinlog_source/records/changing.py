"""What becomes of the records of one fetch: what Spark makes of them, and what is done about a record with
which it fails.

A record whose expression fails comes out of the pipe with the key that failed. What breaks the pipe instead
(a function that raises, returns nonsense or takes too long) is found by halving: chunk by chunk in a pipe of
its own, down to the record.

What a task has asked for is computed to the end, also when its epoch ends meanwhile, and as often as Spark
fails: the task of the next one asks for the same records, and finds why it still has to wait.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol

import structlog

from twinlog.backoff import Backoff, Jitter
from twinlog.batches import LaneReason
from twinlog.batches.bodies import OpenRecord, with_header
from twinlog.errors import StateError, TwinlogError, WireFormatError
from twinlog.kafka.deadline import pause
from twinlog.model import ClusterAlias, Flow, TopicPartition
from twinlog.policy.replication import is_topic_name
from twinlog.transforms.expressions import (
    PREFIX,
    PYTHON,
    TOPIC,
    WHERE,
    Expressions,
    OnError,
    origin_header,
    origin_prefix,
)
from twinlog_source.reasons import PartitionReason
from twinlog_source.records.frames import Back
from twinlog_source.records.pipe import PipeJob, RunJob, TransformFailedError, record_pipe

_LEFT_OUT = {OnError.SKIP: LaneReason.SKIPPED, OnError.DEAD_LETTER: LaneReason.DEAD_LETTERED}

IDLE_SECONDS = 600.0
APART_SECONDS = 20.0
"""The same of pipes beside that of the copy: on a cluster they share a core."""
LEFT_SECONDS = 30.0
"""Kept for so long, and until it is computed, or fails."""
AGAIN_SECONDS = 1.0
LONGEST_AGAIN_SECONDS = 10.0
"""Until Spark is asked again that failed."""
TRIES = 3
"""A record alone is to blame if it breaks the pipe so often: once, somebody may have killed a worker."""

log = structlog.get_logger(__name__)


class Pipe(Protocol):
    """As `RecordPipe`."""

    async def change(self, partition: TopicPartition, records: Sequence[OpenRecord]) -> Back: ...

    async def run(self) -> None: ...


RunPipe = Callable[[Flow, Expressions, PipeJob], Coroutine[Any, Any, None]]
"""Raises TwinlogError when the job failed."""
MakePipe = Callable[[RunJob, Expressions, bool, float], Pipe]
"""The last arguments: whether it breaks at a record whose expression fails, and after how many seconds
without one its job ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """The outcome for the records of one fetch. Offsets and order stay; what neither passed nor failed was
    dropped."""

    passed: dict[int, OpenRecord]
    """By source offset."""
    failed: dict[int, str] = field(default_factory=dict)
    """Why a record could not be changed, by source offset."""
    routes: Mapping[int, str] = field(default_factory=dict)
    """To which topics those that passed go, as in `Back`."""
    on_error: OnError = OnError.SKIP

    @property
    def stops(self) -> bool:
        """The partition stops at a record that failed; otherwise that is not copied."""
        return bool(self.failed) and self.on_error is OnError.STOP

    def left_out(self, below: int) -> Mapping[LaneReason, int]:
        """How many records below an offset failed and are not copied, and what is done with them."""
        failed = len(self.failed_below(below))
        return {_LEFT_OUT[self.on_error]: failed} if failed and self.on_error in _LEFT_OUT else {}

    def failed_below(self, offset: int) -> Mapping[int, str]:
        return {each: why for each, why in self.failed.items() if each < offset}

    def beside(self, other: "Changed", offsets: Collection[int]) -> "Changed":
        """Both, as far as they are about these offsets."""
        by_offset: dict[str, Any] = {
            name: {**mine, **{at: told for at, told in getattr(other, name).items() if at in offsets}}
            for each in fields(self)
            if isinstance(mine := getattr(self, (name := each.name)), Mapping)
        }
        return replace(self, **by_offset)

    def leave_out(self, partition: TopicPartition, offset: int, why: str) -> bool:
        """Treat a record that passed as one that failed; false if its partition has to stop anyway."""
        if self.on_error is OnError.STOP:
            return False
        del self.passed[offset]
        self.failed[offset] = why
        log.warning("record_not_changed", partition=str(partition), offset=offset, error=why)
        return True

    def take(self, records: Sequence[OpenRecord]) -> list[OpenRecord]:
        """As `ChangeRecords`. Raises WireFormatError (TRANSFORM_FAILED)."""
        for offset, _, _ in records if self.stops else ():
            if offset in self.failed:
                raise WireFormatError(
                    f"the record at offset {offset}: {self.failed[offset]}",
                    reason=PartitionReason.TRANSFORM_FAILED,
                    metadata={"offset": str(offset)},
                )
        return [self.passed[record[0]] for record in records if record[0] in self.passed]


@dataclass(slots=True, kw_only=True)
class AtSpark:
    """A partition of which Spark has records to change."""

    since: float
    """On the loop's clock."""
    parts: int = 0
    """In how many pieces it has them."""
    problem: TwinlogError | None = None
    """Why it has not changed them, as known last; it is asked again."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Records that are being changed, or were for somebody who waited no longer."""

    records: Sequence[OpenRecord]
    work: "asyncio.Task[Changed | TwinlogError]"


@dataclass(slots=True, kw_only=True)
class Changing:
    """Of one flow."""

    group: asyncio.TaskGroup
    expressions: Expressions
    source: ClusterAlias
    pipe: Pipe
    alone: Pipe
    """For what broke it: everything else goes on meanwhile."""
    strict: Pipe
    """Breaks at a record whose expression fails, with the reason."""
    tries_again: bool = False
    """Ask Spark until it answers; otherwise a failure is told to who waits."""
    at_spark: dict[TopicPartition, AtSpark] = field(default_factory=dict)
    _left: dict[TopicPartition, list[_Part]] = field(default_factory=dict)
    """What nobody waits for."""
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One chunk at a time is in `alone`, so that it is to blame."""
    _passes_nothing: bool = False
    """Whether `alone` has passed a chunk without a record: what breaks it since is a record."""
    _broke_at: dict[TopicPartition, OpenRecord] = field(default_factory=dict)
    """The last record that broke the pipe alone: it is tried again, but not among others. A topic that was
    created again has another one at its offset."""
    _explained: tuple[TopicPartition, OpenRecord, str] | None = None
    """The last answer of `strict`: a partition that stopped tries the same record again."""

    @property
    def left(self) -> Sequence["asyncio.Task[Any]"]:
        return [part.work for parts in self._left.values() for part in parts]

    @property
    def pipes(self) -> Sequence[Pipe]:
        """They run beside the copy; each costs nothing before it is used."""
        return self.pipe, self.alone, self.strict

    async def change(self, partition: TopicPartition, records: Sequence[OpenRecord]) -> Changed:
        """Raises StateError (TRANSFORM_REFUSED) when Spark refuses the expressions, or they break the pipe
        whatever the records are, and unless it `tries_again` KafkaError when Spark is away."""
        if not records:
            return Changed(passed={}, on_error=self.expressions.on_error)
        parts, rest = self._claim(partition, records), records
        if parts:
            known = {record for part in parts for record in part.records}
            rest = [record for record in records if record not in known]
        if rest:
            work = self.group.create_task(self._outcome(partition, rest), name=f"records of {partition}")
            parts.append(_Part(rest, work))
        try:
            found = [await asyncio.shield(part.work) for part in parts]
        except asyncio.CancelledError:
            self._left[partition] = parts
            self._forget_later(partition, parts)
            raise
        changed, offsets = (
            Changed(passed={}, on_error=self.expressions.on_error),
            {each[0] for each in records},
        )
        for each in found:
            if isinstance(each, TwinlogError):
                raise each
            if each.stops and min(each.failed) not in offsets:
                # It was for others: what lies behind the record that stopped them need not have been changed.
                return await self.change(partition, records)
            changed = each if rest is records else changed.beside(each, offsets)
        return changed

    def _claim(self, partition: TopicPartition, records: Sequence[OpenRecord]) -> list[_Part]:
        """What is known of these records, or soon. What is about others only is ended."""
        parts: list[_Part] = []
        for part in self._left.pop(partition, ()):
            if set(records).isdisjoint(part.records):
                part.work.cancel()
            else:
                parts.append(part)
        return parts

    def _forget_later(self, partition: TopicPartition, parts: list[_Part]) -> None:
        """Once it is done, or fails, and nobody asks: another worker may have the partition."""

        def forget() -> None:
            if self._left.get(partition) is not parts:
                return
            at_spark = self.at_spark.get(partition)
            if at_spark is not None and at_spark.problem is None:
                self._forget_later(partition, parts)
                return
            for part in self._left.pop(partition):
                part.work.cancel()

        asyncio.get_running_loop().call_later(LEFT_SECONDS, forget)

    async def _outcome(
        self, partition: TopicPartition, records: Sequence[OpenRecord]
    ) -> Changed | TwinlogError:
        backoff = Backoff(
            initial_seconds=AGAIN_SECONDS,
            max_seconds=LONGEST_AGAIN_SECONDS,
            random=random.random,
            jitter=Jitter.EQUAL,
        )
        since = asyncio.get_running_loop().time()
        at_spark = self.at_spark.setdefault(partition, AtSpark(since=since))
        at_spark.parts += 1
        try:
            while True:
                try:
                    return await self._changed(partition, records)
                except TwinlogError as error:
                    if not self.tries_again or error.reason == PartitionReason.TRANSFORM_REFUSED:
                        return error
                    at_spark.problem = error
                await pause(backoff.next())
        finally:
            at_spark.parts -= 1
            if not at_spark.parts:
                del self.at_spark[partition]

    async def _changed(self, partition: TopicPartition, records: Sequence[OpenRecord]) -> Changed:
        failed: dict[int, str] = {}
        back = Back([], {}, {})
        await self._through(partition, records, back, failed)
        passed = {record[0]: record for record in back.passed}
        if self.expressions.names_origins:
            self._name_origins(partition, records, passed)
        steps = tuple(self.expressions.written)
        failed |= {offset: f"{steps[step]} fails for it" for offset, step in back.failed.items()}
        for offset, route in back.routes.items():
            if not is_topic_name(route):
                failed[offset] = f"{PREFIX}{TOPIC} gives {route!r}, which is no name of a topic"
                del passed[offset]
        on_error = self.expressions.on_error
        if failed and on_error is OnError.STOP:
            record = next(each for each in records if each[0] in failed)
            failed[record[0]] = await self.why(partition, record, failed[record[0]])
        for offset, error in failed.items():
            log.warning("record_not_changed", partition=str(partition), offset=offset, error=error)
        return Changed(passed=passed, failed=failed, on_error=on_error, routes=back.routes)

    async def _through(
        self,
        partition: TopicPartition,
        records: Sequence[OpenRecord],
        back: Back,
        failed: dict[int, str],
    ) -> None:
        """Fill `back`; `failed` gets the records that break the pipe."""
        suspects = [records]
        broke_at = self._broke_at.get(partition)
        known = next((place for place, record in enumerate(records) if record == broke_at), None)
        if known is None:
            try:
                _add(back, await self.pipe.change(partition, records))
                return
            except TransformFailedError as error:
                log.info("pipe_broke", partition=str(partition), records=len(records), error=str(error))
            await self._pass_nothing(partition)
        else:
            suspects = [records[known + 1 :], records[known : known + 1], records[:known]]
        while suspects:
            some = suspects.pop()
            if not some:
                continue
            tries = 1 if len(some) > 1 or some[0] == broke_at else TRIES
            try:
                _add(back, await self._alone(partition, some, tries))
            except TransformFailedError as error:
                if len(some) > 1:
                    middle = len(some) // 2
                    suspects += [some[middle:], some[:middle]]
                    continue
                self._broke_at[partition] = some[0]
                failed[some[0][0]] = f"{self._breaking_key}: {error}"
                if self.expressions.on_error is OnError.STOP:
                    return

    @property
    def _breaking_key(self) -> str:
        return PYTHON if self.expressions.python else WHERE

    async def _alone(self, partition: TopicPartition, records: Sequence[OpenRecord], tries: int) -> Back:
        """Raises TransformFailedError if they break the pipe each time."""
        for left in reversed(range(tries)):
            try:
                async with self._turn:
                    return await self.alone.change(partition, records)
            except TransformFailedError:
                if not left:
                    raise
        raise AssertionError("it is tried at least once")

    async def _pass_nothing(self, partition: TopicPartition) -> None:
        """Raises StateError (TRANSFORM_REFUSED) if the pipe breaks without a record: none may be left out for
        that."""
        if self._passes_nothing:
            return
        try:
            await self._alone(partition, (), TRIES)
        except TransformFailedError as error:
            told = (
                f"{self._breaking_key}: fails without a record, for rows all of whose columns are null:"
                f" {error}"
            )
            raise StateError(told, reason=PartitionReason.TRANSFORM_REFUSED) from error
        self._passes_nothing = True

    async def why(self, partition: TopicPartition, record: OpenRecord, failed: str) -> str:
        """What failed for a record, with what Spark says about it."""
        if self._explained is None or self._explained[:2] != (partition, record):
            why = failed
            try:
                await self.strict.change(partition, [record])
            except TransformFailedError as error:
                why = f"{failed}: {error}" if str(error) not in failed else failed
            self._explained = partition, record, why
        return self._explained[2]

    def _name_origins(
        self, partition: TopicPartition, records: Sequence[OpenRecord], passed: dict[int, OpenRecord]
    ) -> None:
        prefix = origin_prefix(self.source, partition)
        for offset, ms, _ in records:
            if offset in passed:
                _, timestamp_ms, body = passed[offset]
                passed[offset] = offset, timestamp_ms, with_header(body, origin_header(prefix, offset, ms))


def _add(back: Back, more: Back) -> None:
    back.passed.extend(more.passed)
    back.failed.update(more.failed)
    back.routes.update(more.routes)


ChangingOf = Callable[[Flow, Expressions], Changing]


@asynccontextmanager
async def kept_pipes(
    run_pipe: RunPipe, make_pipe: MakePipe = record_pipe, *, tries_again: bool = False
) -> AsyncIterator[ChangingOf]:
    """What changes the records of each flow that asks for it. Its pipes stay open while the context lasts:
    Spark may need longer for a plan than whoever asked has time. `tries_again`: as in `Changing`."""
    kept: dict[tuple[Flow, Expressions], Changing] = {}
    running: list[asyncio.Task[None]] = []
    async with asyncio.TaskGroup() as group:

        def changing(flow: Flow, expressions: Expressions) -> Changing:
            async def run_job(job: PipeJob) -> TwinlogError | None:
                try:
                    await run_pipe(flow, expressions, job)
                except TwinlogError as error:
                    return error
                return None

            found = kept.get((flow, expressions))
            if found is None:
                found = kept[flow, expressions] = Changing(
                    group=group,
                    expressions=expressions,
                    source=flow.source,
                    pipe=make_pipe(run_job, expressions, False, IDLE_SECONDS),
                    alone=make_pipe(run_job, expressions, False, APART_SECONDS),
                    strict=make_pipe(run_job, expressions, True, APART_SECONDS),
                    tries_again=tries_again,
                )
                running.extend(group.create_task(pipe.run(), name=f"pipe of {flow}") for pipe in found.pipes)
            return found

        try:
            yield changing
        finally:
            for each in (*running, *(work for changing in kept.values() for work in changing.left)):
                each.cancel()
