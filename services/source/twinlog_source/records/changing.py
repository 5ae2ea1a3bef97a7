"""What becomes of the records of one fetch: what Spark makes of them, and what is done about a record with
which it fails.

A record whose expression fails comes out of the pipe with the key that failed. What breaks the pipe instead
(a function that raises, returns nonsense or takes too long) is found by halving: chunk by chunk alone, down
to the record.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from twinlog.batches import LaneReason
from twinlog.batches.bodies import OpenRecord
from twinlog.errors import TwinlogError, WireFormatError
from twinlog.model import TopicPartition
from twinlog.transforms.expressions import PYTHON, WHERE, Expressions, OnError
from twinlog_source.reasons import PartitionReason
from twinlog_source.records.frames import PASSED, Row
from twinlog_source.records.pipe import PipeJob, RunJob, TransformFailedError, record_pipe

log = structlog.get_logger(__name__)


class Pipe(Protocol):
    """As `RecordPipe`."""

    async def change(self, partition: TopicPartition, records: Sequence[OpenRecord]) -> Sequence[Row]: ...

    async def run(self) -> None: ...


MakePipe = Callable[[RunJob, Expressions, bool], Pipe]
"""The last argument: whether it breaks at a record whose expression fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """The outcome for the records of one fetch. Offsets and order stay."""

    passed: Mapping[int, OpenRecord]
    """By source offset."""
    failed: Mapping[int, str] = field(default_factory=dict)
    """Why a record could not be changed, by source offset."""
    dropped: Sequence[int] = ()
    """The source offsets of the others."""
    stops: bool = False
    """The partition stops at a record that failed; otherwise it is not copied."""

    @property
    def left_out(self) -> Sequence[tuple[int, LaneReason]]:
        """The offsets of records that are not copied, and why."""
        skipped = () if self.stops else self.failed
        return [
            *((offset, LaneReason.FILTERED) for offset in self.dropped),
            *((offset, LaneReason.SKIPPED) for offset in skipped),
        ]

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
class Changing:
    """Of one task."""

    expressions: Expressions
    pipe: Pipe
    strict: Pipe
    """Breaks at a record whose expression fails, with the reason."""
    _alone: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by a chunk that may break the pipe; then no other is in it."""
    _together: int = 0
    """How many other chunks are in the pipe."""
    _emptied: asyncio.Event = field(default_factory=asyncio.Event)
    _explained: tuple[TopicPartition, int, str] | None = None
    """The last answer of `strict`: a partition that stopped tries the same record again."""

    @property
    def pipes(self) -> Sequence[Pipe]:
        """They run beside the copy; each costs nothing before it is used."""
        return self.pipe, self.strict

    async def change(self, partition: TopicPartition, records: Sequence[OpenRecord]) -> Changed:
        """Raises KafkaError when Spark is away, and ConfigError when it refuses the expressions."""
        if not records:
            return Changed(passed={})
        failed: dict[int, str] = {}
        rows: dict[int, Row] = {}
        await self._through(partition, records, rows, failed)
        passed: dict[int, OpenRecord] = {}
        steps = tuple(self.expressions.written)
        for offset, row in rows.items():
            if row.failed == PASSED:
                passed[offset] = (offset, row.timestamp_ms, row.body)
            else:
                failed[offset] = f"{steps[row.failed]} fails for it"
        stops = bool(failed) and self.expressions.on_error is OnError.STOP
        if stops:
            record = next(each for each in records if each[0] in failed)
            failed[record[0]] = await self.why(partition, record, failed[record[0]])
        for offset, error in failed.items():
            log.warning("record_not_changed", partition=str(partition), offset=offset, error=error)
        dropped = [record[0] for record in records if record[0] not in passed and record[0] not in failed]
        return Changed(passed=passed, failed=failed, dropped=dropped, stops=stops)

    async def _through(
        self,
        partition: TopicPartition,
        records: Sequence[OpenRecord],
        rows: dict[int, Row],
        failed: dict[int, str],
    ) -> None:
        """Fill `rows` by source offset; `failed` gets the records that break the pipe."""
        async with self._alone:
            self._together += 1
        try:
            self._note(await self.pipe.change(partition, records), records, rows)
            return
        except TransformFailedError as error:
            log.info("pipe_broke", partition=str(partition), records=len(records), error=str(error))
        finally:
            self._together -= 1
            self._emptied.set()
        suspects = [records]
        async with self._alone:
            while self._together:
                self._emptied.clear()
                await self._emptied.wait()
            while suspects:
                some = suspects.pop()
                try:
                    self._note(await self.pipe.change(partition, some), some, rows)
                except TransformFailedError as error:
                    if len(some) == 1:
                        key = PYTHON if self.expressions.python else WHERE
                        failed[some[0][0]] = f"{key}: {error}"
                        if self.expressions.on_error is OnError.STOP:
                            return
                    else:
                        middle = len(some) // 2
                        suspects += [some[middle:], some[:middle]]

    async def why(self, partition: TopicPartition, record: OpenRecord, failed: str) -> str:
        """What failed for a record, with what Spark says about it."""
        if self._explained is None or self._explained[:2] != (partition, record[0]):
            why = failed
            try:
                await self.strict.change(partition, [record])
            except TransformFailedError as error:
                why = f"{failed}: {error}" if str(error) not in failed else failed
            self._explained = partition, record[0], why
        return self._explained[2]

    @staticmethod
    def _note(back: Sequence[Row], records: Sequence[OpenRecord], rows: dict[int, Row]) -> None:
        for row in back:
            rows[records[row.place][0]] = row


@asynccontextmanager
async def changing_with(
    run_pipe: Callable[[PipeJob], Awaitable[None]], expressions: Expressions
) -> AsyncIterator[Changing]:
    """For whoever is no task. `run_pipe` raises TwinlogError when its job failed."""

    async def run_job(job: PipeJob) -> TwinlogError | None:
        try:
            await run_pipe(job)
        except TwinlogError as error:
            return error
        return None

    changing = Changing(
        expressions=expressions,
        pipe=record_pipe(run_job, expressions, False),
        strict=record_pipe(run_job, expressions, True),
    )
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(pipe.run(), name="pipe") for pipe in changing.pipes]
        try:
            yield changing
        finally:
            for each in running:
                each.cancel()
