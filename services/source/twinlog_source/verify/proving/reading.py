"""Reads the records of both sides."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from twinlog.batches.bodies import OpenRecord
from twinlog.batches.header import HEADER_BYTES, BatchHeader
from twinlog.batches.transformed import ChangeRecords, RouteRecords
from twinlog.comparison.model import Side
from twinlog.comparison.sides import Chunk, Extended, KeptChunks, View, of_anybody
from twinlog.config.client_settings import ClientConfig
from twinlog.errors import KafkaError, TransientKafkaError, required
from twinlog.kafka.clients import aiokafka_client_options
from twinlog.kafka.ports import OffsetSpec
from twinlog.kafka.raw import BatchReader, DataClientPool, list_offsets
from twinlog.kafka.raw.fetch.reader import FetchedBatches
from twinlog.kafka.reasons import KafkaReason
from twinlog.model import TopicPartition
from twinlog.policy.transformed import TopicTransforms, changes_records
from twinlog.service.waiting import wait_or_stop
from twinlog_source.records.changing import Changing
from twinlog_source.task.reading.fetch_schedule import Bucket
from twinlog_source.verify.proving.prover import OffsetForTime
from twinlog_source.verify.request import Way

# One partition of one cluster, read for a comparison: in order, one fetch ahead, and again where the
# comparison goes back.

# The speed at which one side is read, all partitions together.

_LEAST_FETCH_BYTES = 64 << 10
_SHORTEST_WAIT_SECONDS = 0.01


@dataclass(slots=True)
class ReadPace:
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


def _unrouted(
    change: ChangeRecords | None, records: Sequence[OpenRecord]
) -> Iterator[tuple[str, OpenRecord]]:
    return (("", record) for record in (records if change is None else change(records)))


_all_of_the_copy = partial(_unrouted, None)


@dataclass(slots=True, kw_only=True)
class PartitionLog:
    """Belongs to one task. Raises KafkaError, WireFormatError (CORRUPT_BATCH)."""

    partition: TopicPartition
    session: DataClientPool
    reader: Fetches
    pace: ReadPace
    view: View
    patience_seconds: float
    group: asyncio.TaskGroup
    """Runs the fetch ahead."""
    way: Way = field(default_factory=Way)
    """Which of the records are compared."""
    split: RouteRecords = _all_of_the_copy
    """What is done to records before Spark, and the routes that they take then."""
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
        opened, routes = list[OpenRecord](), dict[int, str]()

        def open_only(records: Sequence[OpenRecord]) -> list[OpenRecord]:
            for route, record in self.split(records):
                opened.append(record)
                routes[record[0]] = route
            return []

        replace(self.view, change=open_only).of(fetched.batches, fetched.aborted)
        changed = await changing.change(self.partition, opened)
        for offset, _, body in changed.passed.values():
            if len(body) + HEADER_BYTES > self.most_bytes:
                told = f"it becomes {len(body)} bytes, and max.message.bytes of the copy is {self.most_bytes}"
                self.too_large[offset] = told
        routes |= changed.routes

        def take(records: Sequence[OpenRecord]) -> list[OpenRecord]:
            return self.way.of((routes[record[0]], record) for record in changed.take(records))

        return replace(self.view, change=take)

    async def _beyond(self, offset: int, error: KafkaError) -> Chunk:
        """Retention removed the offset meanwhile; or the log ends before it, and nothing follows."""
        starts = await list_offsets(self.session, OffsetSpec.EARLIEST, [self.partition])
        start = required(starts[self.partition])
        if start <= offset:
            raise error
        chunk = await self._fetch_once(start)
        return replace(chunk, lost_until=start)


# The questions of a running comparison to the clusters: what has arrived on the target, which offset has a
# time.

_POLL_SECONDS = 0.5
_LookUp = Callable[
    [Mapping[TopicPartition, int]], Awaitable[Mapping[TopicPartition, int | KafkaError | None]]
]


class Arriving(Protocol):
    """A flow whose copies grow (`GatheredFlow`)."""

    @property
    def open_copies(self) -> Mapping[TopicPartition, object]: ...
    def copy_of(self, partition: TopicPartition) -> TopicPartition: ...
    async def stored_positions(self) -> Mapping[TopicPartition, int]: ...
    def position_of(
        self, partition: TopicPartition, positions: Mapping[TopicPartition, int]
    ) -> int | None: ...
    async def target_end(self, copy: TopicPartition, spec: OffsetSpec = ...) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Waits until the copy has reached the ends of the source from the start of the verification."""

    gathered: Arriving
    give_up_at: float

    async def extend(self, partition: TopicPartition, *, at: int, limit: int) -> Extended:
        """`at` is the next source offset to compare, `limit` the known end of the copy. Raises KafkaError.

        A position counts only when readers can see everything that was written before it, because a
        transaction ends on one partition before it ends on another.
        """
        loop = asyncio.get_running_loop()
        copy = self.gathered.copy_of(partition)
        while True:
            position = self.gathered.position_of(partition, await self.gathered.stored_positions())
            written = await self.gathered.target_end(copy, OffsetSpec.LATEST)
            while True:
                end = await self.gathered.target_end(copy)
                is_seen = end >= written
                is_lost = is_seen and position is not None and position > at
                is_over = partition in self.gathered.open_copies or loop.time() >= self.give_up_at
                if end > limit or is_lost or is_over:
                    return Extended(target_limit=max(end, limit), position=position if is_seen else None)
                await wait_or_stop(asyncio.Event(), _POLL_SECONDS)
                if is_seen:
                    break


def offset_for_time(look_up: _LookUp, partition: TopicPartition) -> OffsetForTime:
    """None: no record is that young. Raises KafkaError."""

    async def offset(timestamp_ms: int) -> int | None:
        return required((await look_up({partition: max(0, timestamp_ms)}))[partition])

    return offset


_TIMEOUT_SECONDS = 30.0


@dataclass(slots=True, kw_only=True)
class Sides:
    """The connections for reading records."""

    source: DataClientPool
    target: DataClientPool
    source_reader: BatchReader
    target_reader: BatchReader
    source_pace: ReadPace
    target_pace: ReadPace
    transforms: TopicTransforms | None
    changing: Changing | None = None
    """What Spark does to records of the source; None = nothing."""
    most_bytes: Mapping[str, int] = field(default_factory=dict)
    """By source topic, what Spark may make larger is left out."""

    def log(
        self,
        side: Side,
        partition: TopicPartition,
        patience: float,
        group: asyncio.TaskGroup,
        counts: Callable[[BatchHeader], bool] = of_anybody,
        too_large: dict[int, str] | None = None,
        way: Way | None = None,
    ) -> PartitionLog:
        """`too_large`: as in `Bounds`; `way`: None = its records go to one topic."""
        is_source = side is Side.SOURCE
        reader = self.source_reader if is_source else self.target_reader
        transforms = self.transforms if is_source else None
        change = None if transforms is None else transforms.changes(partition.topic)
        split = (None if transforms is None else transforms.routes(partition.topic)) or partial(
            _unrouted, change
        )
        if way is not None:
            change = partial(_on_its_way, split, way)
        by_spark = transforms is not None and transforms.expressions(partition.topic) is not None
        return PartitionLog(
            partition=partition,
            session=self.source if is_source else self.target,
            reader=reader,
            pace=self.source_pace if is_source else self.target_pace,
            view=View(read_committed=reader.read_committed, counts=counts, change=change),
            way=way or Way(),
            split=split,
            patience_seconds=patience,
            group=group,
            changing=self.changing if by_spark else None,
            most_bytes=self.most_bytes.get(partition.topic, math.inf) if by_spark else math.inf,
            too_large={} if too_large is None else too_large,
        )


def _on_its_way(split: RouteRecords, way: Way, records: Sequence[OpenRecord]) -> list[OpenRecord]:
    return way.of(split(records))


async def open_sides(
    stack: AsyncExitStack,
    source: ClientConfig,
    target: ClientConfig,
    *,
    read_committed: bool,
    max_bytes_per_second: int,
    policy_config: Mapping[str, str],
    changing: Changing | None,
    most_bytes: Mapping[str, int],
) -> Sides:
    """They close with the stack. `policy_config`: the flow's, with its transforms. Raises ConfigError."""
    pools = []
    for client in (source, target):
        options = aiokafka_client_options(client.properties, alias=client.alias, client_id_suffix="verify")
        pool = DataClientPool(client.alias, options, timeout_seconds=_TIMEOUT_SECONDS)
        stack.push_async_callback(pool.close)
        pools.append(pool)
    return Sides(
        source=pools[0],
        target=pools[1],
        source_reader=BatchReader(pools[0], read_committed=read_committed),
        target_reader=BatchReader(pools[1], read_committed=True),
        source_pace=ReadPace(max_bytes_per_second),
        target_pace=ReadPace(max_bytes_per_second),
        transforms=TopicTransforms(policy_config, source.alias) if changes_records(policy_config) else None,
        changing=changing,
        most_bytes=most_bytes,
    )
