"""One partition of one cluster, read for a comparison: in order, one fetch ahead, and again where the
comparison goes back."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from twinlog.batches.bodies import OpenRecord
from twinlog.batches.header import HEADER_BYTES
from twinlog.comparison.sides import Chunk, KeptChunks
from twinlog.comparison.view import View
from twinlog.errors import KafkaError, TransientKafkaError
from twinlog.kafka.ports import OffsetSpec
from twinlog.kafka.raw import DataClientPool, list_offsets
from twinlog.kafka.raw.fetch.reader import FetchedBatches
from twinlog.kafka.reasons import KafkaReason
from twinlog.model import TopicPartition
from twinlog.service.waiting import wait_or_stop
from twinlog_source.records.changing import Changing
from twinlog_source.task.reading.throttle import Bucket

# The speed at which one side is read, all partitions together.

_LEAST_FETCH_BYTES = 64 << 10
_SHORTEST_WAIT_SECONDS = 0.01


@dataclass(slots=True)
class Pace:
    """`bytes_per_second` 0 = no limit. The wait follows each fetch."""

    bytes_per_second: int
    read_bytes: int = 0
    _bucket: Bucket | None = field(init=False, default=None)
    _never: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        if self.bytes_per_second > 0:
            self._bucket = Bucket(bytes_per_second=self.bytes_per_second)

    def most_bytes(self, wanted: int) -> int:
        """The size limit of a fetch."""
        if self._bucket is None:
            return wanted
        return max(_LEAST_FETCH_BYTES, min(wanted, int(self._bucket.burst_bytes)))

    async def wait(self) -> None:
        """Wait until the next fetch may begin."""
        loop = asyncio.get_running_loop()
        while self._bucket is not None and not self._bucket.allows(loop.time()):
            await wait_or_stop(self._never, max(_SHORTEST_WAIT_SECONDS, self._bucket.owed_seconds))

    def spend(self, size_bytes: int) -> None:
        self.read_bytes += size_bytes
        if self._bucket is not None:
            self._bucket.spend(size_bytes, asyncio.get_running_loop().time())


FETCH_BYTES = 4 << 20
_KEPT_BYTES = 12 << 20
_FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS = 0.2, 5.0


class Fetches(Protocol):
    """Implemented by `BatchReader`."""

    async def fetch(self, partition: TopicPartition, offset: int, *, max_bytes: int) -> FetchedBatches: ...


@dataclass(slots=True, kw_only=True)
class PartitionLog:
    """Belongs to one task. Raises KafkaError, WireFormatError (CORRUPT_BATCH)."""

    partition: TopicPartition
    session: DataClientPool
    reader: Fetches
    pace: Pace
    view: View
    patience_seconds: float
    group: asyncio.TaskGroup
    """Runs the fetch ahead."""
    changing: Changing | None = None
    """What Spark does to the records before they are compared."""
    most_bytes: float = math.inf
    """What a copy may leave out because Spark makes it larger; infinite = nothing."""
    too_large: dict[int, str] = field(default_factory=dict)
    """Such records, as in `Bounds`."""
    read_bytes: int = 0
    is_ahead: bool = True
    _kept: KeptChunks = field(default_factory=lambda: KeptChunks(most_bytes=_KEPT_BYTES))
    _ahead: tuple[int, asyncio.Task[Chunk | Exception]] | None = None

    async def read(self, offset: int, *, limit: int) -> Chunk:
        """The chunk that contains an offset; the following one, below the limit, is fetched meanwhile."""
        if (kept := self._kept.at(offset)) is not None:
            return kept
        chunk = await self._taken(offset)
        self._kept.keep(offset, chunk)
        if chunk.next_offset < limit and self.is_ahead:
            following = chunk.next_offset
            task = self.group.create_task(self._tried(following), name=f"read {self.partition} ahead")
            self._ahead = following, task
        return chunk

    def close(self) -> None:
        """End the fetch ahead."""
        if self._ahead is not None:
            self._ahead[1].cancel()
            self._ahead = None

    async def _taken(self, offset: int) -> Chunk:
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] == offset:
            outcome = await ahead[1]
            if isinstance(outcome, Exception):
                raise outcome
            return outcome
        if ahead is not None:
            ahead[1].cancel()
        return await self._fetch(offset)

    async def _tried(self, offset: int) -> Chunk | Exception:
        """Return the error as a value: it belongs to the reader of these records."""
        try:
            return await self._fetch(offset)
        except Exception as error:  # noqa: BLE001 (raised by `_taken`)
            return error

    async def _fetch(self, offset: int) -> Chunk:
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + self.patience_seconds
        pause_seconds = _FIRST_RETRY_SECONDS
        while True:
            try:
                return await self._fetch_once(offset)
            except TransientKafkaError:
                if loop.time() + pause_seconds > give_up_at:
                    raise
            await wait_or_stop(asyncio.Event(), pause_seconds)
            pause_seconds = min(2 * pause_seconds, _LONGEST_RETRY_SECONDS)

    async def _fetch_once(self, offset: int) -> Chunk:
        await self.pace.wait()
        try:
            fetched = await self.reader.fetch(
                self.partition, offset, max_bytes=self.pace.most_bytes(FETCH_BYTES)
            )
        except KafkaError as error:
            if error.reason != KafkaReason.OFFSET_OUT_OF_RANGE:
                raise
            return await self._beyond(offset, error)
        self.pace.spend(fetched.size_bytes)
        self.read_bytes += fetched.size_bytes
        return await self._chunk(fetched, offset)

    async def _chunk(self, fetched: FetchedBatches, offset: int) -> Chunk:
        next_offset = fetched.next_offset(offset)
        if not fetched.batches:
            if fetched.end_offset <= offset:
                # The end of the log is never requested. A new leader learns only after a while how much of it
                # all replicas have; skipping these records would report them as lost.
                raise TransientKafkaError(
                    f"{self.partition} ends at {fetched.end_offset} on its leader, before the offset {offset}"
                    " where it was longer: its replicas are not in sync, or it has lost records",
                    reason="KAFKA_UNAVAILABLE",
                )
            # Compaction removed the last records of the log.
            next_offset = fetched.end_offset
        view = self.view if self.changing is None else await self._changed(self.changing, fetched)
        batches = view.of(fetched.batches, fetched.aborted)
        # Of what a transform writes anew, not of what was fetched.
        size = sum(len(batch.data) for batch in batches)
        return Chunk(batches=batches, next_offset=next_offset, size_bytes=size)

    async def _changed(self, changing: Changing, fetched: FetchedBatches) -> View:
        """The view of these batches after Spark."""
        before, opened = self.view.change, list[OpenRecord]()

        def open_only(records: Sequence[OpenRecord]) -> list[OpenRecord]:
            opened.extend(records if before is None else before(records))
            return []

        replace(self.view, change=open_only).of(fetched.batches, fetched.aborted)
        changed = await changing.change(self.partition, opened)
        for offset, _, body in changed.passed.values():
            if len(body) + HEADER_BYTES > self.most_bytes:
                told = f"it becomes {len(body)} bytes, and max.message.bytes of the copy is {self.most_bytes}"
                self.too_large[offset] = told
        return replace(self.view, change=changed.take)

    async def _beyond(self, offset: int, error: KafkaError) -> Chunk:
        """Retention removed the offset meanwhile; or the log ends before it, and nothing follows."""
        starts = await list_offsets(self.session, OffsetSpec.EARLIEST, [self.partition])
        start = starts[self.partition]
        if isinstance(start, KafkaError):
            raise start
        if start <= offset:
            raise error
        chunk = await self._fetch_once(start)
        return replace(chunk, lost_until=start)
