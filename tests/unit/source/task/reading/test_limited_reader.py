"""What a limited task reads of a backlog: as many bytes of whole batches as the limit allows, of any size."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from hypothesis import example, given
from hypothesis import strategies as st

from twinlog.batches import CopyPolicy, DecodedRecord
from twinlog.kafka.raw import FetchedPartition, FetchSizes
from twinlog.model import TopicPartition
from twinlog.testing.source_batches import source_batch
from twinlog.testing.virtual_time import FakeClock
from twinlog_source.task.partition import PartitionCopy
from twinlog_source.task.reading.fetch_schedule import LEAST_PARTITION_BYTES, Throttle
from twinlog_source.task.reading.source_reader import SourceReader
from unit.source.task.halves import reading_half

PARTITION = TopicPartition("t", 0)
ROUND_TRIP_SECONDS = 0.004
SECONDS = 10.0


@dataclass(slots=True)
class Backlog:
    """A fetcher of an endless log of equal batches, each of one record. Time passes as it is asked, and what
    was read is written at once."""

    batch: bytes
    clock: FakeClock
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    read_bytes: int = 0
    source_reader: SourceReader = field(init=False)
    _interrupted: bool = False

    def is_asked(self, partition: TopicPartition) -> bool:
        return False

    async def poll(
        self, positions: Mapping[TopicPartition, int], *, max_wait_seconds: float, sizes: FetchSizes
    ) -> dict[TopicPartition, FetchedPartition]:
        self._pass(ROUND_TRIP_SECONDS)
        return {partition: self._answer(partition, offset, sizes) for partition, offset in positions.items()}

    async def pause(self, seconds: float) -> None:
        self._pass(seconds)

    def interrupt(self) -> None:
        self._interrupted = True

    def _pass(self, seconds: float) -> None:
        while (chunk := self.source_reader.pop()) is not None:
            self.read_bytes += len(self.batch) * len(chunk.prepared.batches)
        self._interrupted = False
        self.source_reader.release()
        self.clock.advance(ROUND_TRIP_SECONDS if self._interrupted else seconds)
        if self.clock.monotonic() >= SECONDS:
            self.stop.set()

    def _answer(self, partition: TopicPartition, offset: int, sizes: FetchSizes) -> FetchedPartition:
        """As a broker does: the first batch whole, then what there is room for, the last one cut."""
        assert sizes.max_bytes is not None
        most_bytes = min(sizes.max_bytes, sizes.partition_bytes.get(partition.topic, sizes.max_bytes))
        size_bytes = max(most_bytes, len(self.batch))
        body = self.batch[8:]
        records = b"".join(
            (offset + index).to_bytes(8) + body for index in range(-(-size_bytes // len(self.batch)))
        )
        return FetchedPartition(
            partition=partition,
            error_code=0,
            preferred_replica=-1,
            fetch_offset=offset,
            records=memoryview(records)[:size_bytes],
            aborted=(),
            high_watermark=1 << 40,
            last_stable_offset=1 << 40,
            log_start_offset=0,
        )


async def read_of(backlog: Backlog, throttle: Throttle) -> int:
    """Bytes of whole batches that were read within SECONDS."""
    copy = PartitionCopy(
        partition=PARTITION,
        target_topic="A.t",
        committed=0,
        random=lambda: 1.0,
        policy=CopyPolicy(coalesce_below_bytes=0),
    )
    backlog.source_reader = reading_half(
        backlog, {PARTITION: copy}, throttle=throttle, clock=backlog.clock, max_buffered_bytes=8 << 20
    )
    await backlog.source_reader.run(backlog.stop)
    return backlog.read_bytes


def a_batch(size_bytes: int) -> bytes:
    return source_batch([DecodedRecord(0, 0, None, bytes(size_bytes), ())])


@example(limit=1_000_000, batch_bytes=128 << 10, of_topic=False)
@example(limit=1_000_000, batch_bytes=256 << 10, of_topic=True)
@given(limit=st.integers(100_000, 2_000_000), batch_bytes=st.integers(2_000, 600_000), of_topic=st.booleans())
async def test_what_is_read_of_a_limited_backlog_is_what_the_limit_allows(
    limit: int, batch_bytes: int, of_topic: bool
) -> None:
    throttle = Throttle()
    throttle.set_limits(0 if of_topic else limit, {"t": limit} if of_topic else {}, 0.0)
    backlog = Backlog(a_batch(batch_bytes), FakeClock())
    read_bytes = await read_of(backlog, throttle)
    one_fetch = max(len(backlog.batch), LEAST_PARTITION_BYTES, limit // 4)
    assert abs(read_bytes - limit * SECONDS) <= one_fetch + limit * 0.25
