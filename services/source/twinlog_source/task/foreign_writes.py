"""Finds who else writes into copies, while they are made.

A copier knows at which offset its next batch should lie: behind its last one, and behind the marker of its
transaction. Where it lies farther, the offsets between are looked at, once: what consumers see there,
somebody else wrote, and the batch's header says who. What is left of an aborted round of ours, nobody sees.
While nobody else writes, nothing is asked of the target.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import structlog

from twinlog.batches import Visibility, classify
from twinlog.batches.header import BatchHeader
from twinlog.errors import KafkaError, TwinlogError
from twinlog.kafka.raw import BatchReader
from twinlog.model import TopicPartition
from twinlog.service.waiting import wait_or_stop
from twinlog_source.partitions.reports import ForeignWrite

MOST_WAITING = 1_000
"""Ranges that wait to be looked at; the oldest go first, and are dropped first."""
_LOOK_BYTES = 1 << 20
_MOST_LOOKS = 64
"""Of one range."""
_AGAIN_SECONDS = 1.0
_MOST_TRIES = 30
"""While the target does not answer, or an open transaction of somebody hides what follows."""

log = structlog.get_logger(__name__)


def writes_of(headers: Iterable[BatchHeader], begin: int, end: int) -> list[ForeignWrite]:
    """What others wrote between two target offsets, batches of one producer in a row as one.

    `headers`: of the batches that consumers see there.
    """
    found: list[ForeignWrite] = []
    for header in headers:
        first, behind = max(begin, header.base_offset), min(end, header.next_offset)
        if first >= behind:
            continue
        write = ForeignWrite(
            from_offset=first,
            to_offset=behind,
            records=behind - first if header.record_count < 0 else min(header.record_count, behind - first),
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            written_at_ms=header.max_timestamp_ms,
        )
        last = found[-1] if found else None
        if last is None or (last.producer_id, last.producer_epoch) != (
            write.producer_id,
            write.producer_epoch,
        ):
            found.append(write)
            continue
        found[-1] = replace(
            last,
            to_offset=write.to_offset,
            records=last.records + write.records,
            written_at_ms=max(last.written_at_ms, write.written_at_ms),
        )
    return found


@dataclass(frozen=True, slots=True)
class _Range:
    source: TopicPartition
    target: TopicPartition
    begin: int
    end: int


@dataclass(slots=True, kw_only=True)
class ForeignWrites:
    """Of one task. `suspect` is told by the writer; what is found goes to `found`, by source partition."""

    reader: BatchReader
    """Of the target, read_committed."""
    found: Callable[[TopicPartition, ForeignWrite], None]
    _waiting: deque[_Range] = field(default_factory=lambda: deque(maxlen=MOST_WAITING))
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def suspect(self, source: TopicPartition, target_topic: str, begin: int, end: int) -> None:
        """These offsets of the copy are not ours, unless they are aborted."""
        target = TopicPartition(target_topic, source.partition)
        self._waiting.append(_Range(source, target, begin, end))
        self._arrived.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Loop until it is cancelled; `stop` ends the waits for a target that does not answer."""
        while True:
            await self._arrived.wait()
            while self._waiting:
                await self._look(self._waiting.popleft(), stop)
            self._arrived.clear()

    async def _look(self, what: _Range, stop: asyncio.Event) -> None:
        for _ in range(_MOST_TRIES):
            try:
                headers = await self._visible(what)
            except TwinlogError as error:
                # Bounded by the session. It is an extra: what copies does not wait for it, nor fail with it.
                log.debug("foreign_writes_not_read", partition=str(what.target), reason=error.reason)
                headers = None
            if headers is not None:
                for write in writes_of(headers, what.begin, what.end):
                    self.found(what.source, write)
                return
            if await wait_or_stop(stop, _AGAIN_SECONDS):
                return

    async def _visible(self, what: _Range) -> list[BatchHeader] | None:
        """Of the batches that consumers see there; None: what is there is not decided yet."""
        seen: list[BatchHeader] = []
        at = what.begin
        for _ in range(_MOST_LOOKS):
            try:
                fetched = await self.reader.fetch(what.target, at, max_bytes=_LOOK_BYTES)
            except KafkaError as error:
                if error.reason == "OFFSET_OUT_OF_RANGE":
                    return seen  # Deleted meanwhile: nobody can tell any more.
                raise
            if not fetched.batches:
                return None
            visible = classify(fetched.batches, fetched.aborted, read_committed=True)
            seen += [batch.header for batch, how in visible if how is Visibility.VISIBLE]
            at = fetched.next_offset(at)
            if at >= what.end:
                break
        return seen
