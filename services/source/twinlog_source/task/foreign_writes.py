"""Finds foreign records in copies while the copies are written.

A copier knows the offset of its next batch: behind its last one and the marker of its transaction. If the
batch is at a higher offset, or a copy at rest ends at a higher one (`resting_copies`), the offsets in between
are read once. Records there that consumers see are foreign, and the batch header has the producer. Records of
our own aborted rounds are not visible to consumers. Preserved copies are checked by their own reader.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

import structlog

from twinlog.batches import Visibility, classify
from twinlog.batches.header import BatchHeader
from twinlog.errors import KafkaError, TwinlogError
from twinlog.kafka.raw import BatchReader
from twinlog.kafka.reasons import KafkaReason
from twinlog.model import TopicPartition
from twinlog.service.waiting import wait_or_stop
from twinlog_source.partitions.orders import ForeignWrite
from twinlog_source.partitions.rows import ForeignStretches
from twinlog_source.task.partition import PartitionCopy
from twinlog_source.task.writing.preserved_copies import PreservedCopies

MOST_WAITING = 1_000
"""The most ranges that wait for a check; the oldest are checked first, and dropped first."""
_LOOK_BYTES = 1 << 20
_MOST_LOOKS = 64
"""How often one range is checked."""
_AGAIN_SECONDS = 1.0
_MOST_TRIES = 30
"""How often a check is tried while the target does not answer, or an open transaction hides what follows."""

log = structlog.get_logger(__name__)


def writes_of(headers: Iterable[BatchHeader], begin: int, end: int) -> tuple[ForeignWrite, ...]:
    """The foreign writes between two target offsets; `headers` are those of the batches that consumers see
    there."""
    stretches = ForeignStretches(begin, end)
    for header in headers:
        stretches.add(header)
    return stretches.found


@dataclass(frozen=True, slots=True)
class _Range:
    source: TopicPartition
    target: TopicPartition
    begin: int
    end: int


@dataclass(slots=True, kw_only=True)
class ForeignWrites:
    """The foreign writes that one task finds. The writer calls `suspect`; findings go to `found`.

    Invariant: no offset of a copy is reported twice, however often it is suspected.
    """

    reader: BatchReader
    """Reads the target with read_committed."""
    found: Callable[[TopicPartition, ForeignWrite], None]
    own_producer_id: int | None = None
    """Of the flow's copies with the source's offsets. Behind a tail that the target lost, a late batch may be
    at another offset than its own: its records are the source's."""
    _waiting: deque[_Range] = field(default_factory=lambda: deque(maxlen=MOST_WAITING))
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)
    _looking: asyncio.Lock = field(default_factory=asyncio.Lock)
    _looked_to: dict[TopicPartition, int] = field(default_factory=dict)
    """By target partition: offsets below are reported."""

    def suspect(self, source: TopicPartition, target: TopicPartition, begin: int, end: int) -> None:
        """These offsets of the copy are foreign unless they are aborted."""
        self._waiting.append(_Range(source, target, begin, end))
        self._arrived.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Loop until cancelled; `stop` ends waits for a target that does not answer."""
        while True:
            await self._arrived.wait()
            while self._waiting:
                what = self._waiting.popleft()
                await self.look(what.source, what.target, what.begin, what.end, stop)
            self._arrived.clear()

    async def look(
        self, source: TopicPartition, target: TopicPartition, begin: int, end: int, stop: asyncio.Event
    ) -> bool:
        """Read these offsets of a copy and report foreign records. False: they could not be read."""
        async with self._looking:
            looked_to = self._looked_to.get(target, 0)
            if begin < looked_to <= end:  # A log that ends below has been recreated.
                begin = looked_to
            if begin < end and not await self._look(_Range(source, target, begin, end), stop):
                return False
            self._looked_to[target] = end
            return True

    async def _look(self, what: _Range, stop: asyncio.Event) -> bool:
        for _ in range(_MOST_TRIES):
            try:
                headers = await self._visible(what)
            except TwinlogError as error:
                # Bounded by the session. This check is optional: the copy neither waits for it nor fails with
                # it.
                log.debug("foreign_writes_not_read", partition=str(what.target), reason=error.reason)
                headers = None
            if headers is not None:
                for write in writes_of(headers, what.begin, what.end):
                    self.found(what.source, write)
                return True
            if await wait_or_stop(stop, _AGAIN_SECONDS):
                break
        return False

    async def _visible(self, what: _Range) -> list[BatchHeader] | None:
        """Headers of others' batches that consumers see there; None while a transaction there is open."""
        seen: list[BatchHeader] = []
        at = what.begin
        for _ in range(_MOST_LOOKS):
            try:
                fetched = await self.reader.fetch(what.target, at, max_bytes=_LOOK_BYTES)
            except KafkaError as error:
                if error.reason == KafkaReason.OFFSET_OUT_OF_RANGE:
                    return seen  # Deleted meanwhile, so it can no longer be determined.
                raise
            if not fetched.batches:
                return None
            visible = classify(fetched.batches, fetched.aborted, read_committed=True)
            seen += [
                batch.header
                for batch, how in visible
                if how is Visibility.VISIBLE and batch.header.producer_id != self.own_producer_id
            ]
            at = fetched.next_offset(at)
            if at >= what.end:
                break
        return seen


# Finds foreign records, and lost ones, in copies at rest, for which no batch of ours would arrive at an
# unexpected offset.
#
# The ends of all copies at rest are read at an interval, with one request to each leader. A copy that ends
# behind its last written record is checked, and so is one with the source's offsets that ends before it: it
# has lost its tail, which is copied again, or its topic was recreated, which the driver decides about. In one
# with other offsets whose consumers stand before that for two looks a transaction of ours may hang. A copy
# with records in flight during the request is at rest neither before nor after it, so our own records are
# never reported as foreign.

FIRST_LOOK_SECONDS = 2.0
"""The delay after the start of a task: what was written between two tasks is found soon."""
LOOK_SECONDS = 20.0

Ends = Callable[[Collection[TopicPartition]], Awaitable[Mapping[TopicPartition, int | KafkaError]]]
"""Returns where copies end for their consumers, by target partition. Raises KafkaError."""


@dataclass(slots=True, kw_only=True)
class RestingCopies:
    """The copies at rest of one task."""

    by_target: Mapping[TopicPartition, PartitionCopy]
    ends: Ends
    foreign_writes: ForeignWrites
    preserved: PreservedCopies | None
    on_hidden: Callable[[TopicPartition], None] = lambda _target: None
    """Called with a copy of whose last records consumers see none."""
    _hidden: dict[TopicPartition, int] = field(default_factory=dict)
    """By target partition: where those copies ended at rest that were so at the last look. Once consumers see
    that, what hung has ended, whatever is open behind it."""

    async def run(self, stop: asyncio.Event) -> None:
        """Loop until `stop`."""
        wait_seconds = FIRST_LOOK_SECONDS
        while not await wait_or_stop(stop, wait_seconds):
            wait_seconds = LOOK_SECONDS
            try:
                await self.look(stop)
            except TwinlogError as error:
                # This check is optional: the copy neither waits for it nor fails with it.
                log.debug("resting_copies_not_read", reason=error.reason)

    async def look(self, stop: asyncio.Event) -> None:
        """Read where the copies at rest end, and check unexpected offsets. Raises KafkaError."""
        before = {
            target: end
            for target, copy in self.by_target.items()
            if (end := self._resting_end(copy)) is not None
        }
        seen_before = self._hidden
        self._hidden = {each: end for each, end in seen_before.items() if self.by_target[each].is_hidden}
        hidden = {
            target: min(end, written)
            for target, end in self._hidden.items()
            if target not in before and (written := self.by_target[target].target_end) is not None
        }
        if not before and not hidden:
            return
        for target, found in (await self.ends({**before, **hidden})).items():
            if target in hidden:
                # What hangs was left open: nobody knows for certain how it ended.
                self.by_target[target].is_hidden = isinstance(found, KafkaError) or found < hidden[target]
                continue
            copy = self.by_target.get(target)
            if copy is None or isinstance(found, KafkaError) or self._resting_end(copy) != before[target]:
                continue
            copy.is_hidden = found < before[target] == seen_before.get(target) and not copy.keeps_offsets
            if copy.keeps_offsets and self.preserved is not None:
                if found != before[target]:
                    self.preserved.doubt(self.preserved.by_source[copy.partition])
            elif found < before[target]:
                self._hidden[target] = before[target]
                if copy.is_hidden:
                    self.on_hidden(target)
            elif found > before[target] + copy.markers_to_come and await self.foreign_writes.look(
                copy.partition, target, before[target], found, stop
            ):
                copy.others_wrote(before[target], found)

    def _resting_end(self, copy: PartitionCopy) -> int | None:
        """Where the copy ends if only Twinlog wrote it; None: unknown, or about to change."""
        if copy.keeps_offsets:
            return None if self.preserved is None else self.preserved.resting_end(copy.partition)
        if copy.shared:
            return None
        return copy.target_end if copy.is_idle and copy.end_is_exact else None
