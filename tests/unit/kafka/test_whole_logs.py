"""Reading a log to an end that was told before: for as long as there is progress."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from twinlog.batches import EndMarker
from twinlog.errors import TransientKafkaError
from twinlog.kafka.ports import FetchedRecords, NewTopic, OffsetSpec
from twinlog.kafka.whole_logs import committed_records, read_to, records_to
from twinlog.model import Record, TopicPartition
from twinlog.testing.fakes.cluster import Call, FakeCluster
from twinlog.testing.virtual_time import FakeClock

P = TopicPartition("t", 0)


@pytest.fixture
async def cluster() -> FakeCluster:
    """With a topic of 100 records."""
    cluster = FakeCluster("A", clock=FakeClock())
    await cluster.create_topics([NewTopic(name=P.topic, partition_count=1, replication_factor=1)])
    async with cluster.writer() as writer:
        for number in range(100):
            await writer.append(P, key=b"%d" % number, value=b"x")
    return cluster


@contextmanager
def tells(cluster: FakeCluster, end: int) -> Iterator[None]:
    """ListOffsets tells an end that fetches do not show."""

    def tell(call: Call) -> None:
        if call.arguments["spec"] is not OffsetSpec.EARLIEST:
            call.result[P] = end

    undo = cluster.intercept("list_offsets", tell, after=True)
    yield
    undo()


async def read(cluster: FakeCluster) -> list[Record]:
    async with cluster.reader() as reader:
        return [record async for record in committed_records(cluster, reader, P)]


async def test_all_records_before_the_end_are_read(cluster: FakeCluster) -> None:
    assert len(await read(cluster)) == 100
    with tells(cluster, 90):
        assert len(await read(cluster)) == 90


async def test_a_leader_that_shows_less_than_was_told_is_a_transient_error(cluster: FakeCluster) -> None:
    with tells(cluster, 110), pytest.raises(TransientKafkaError, match="from offset 100 on") as refused:
        await read(cluster)
    assert refused.value.reason == "KAFKA_UNAVAILABLE"


async def test_an_offset_that_the_log_does_not_have_any_more_is_a_transient_error(
    cluster: FakeCluster,
) -> None:
    async with cluster.reader() as reader:
        with pytest.raises(TransientKafkaError) as refused:
            [record async for record in records_to(reader, P, 150, 200)]
    assert refused.value.reason == "OFFSET_OUT_OF_RANGE"


async def test_what_an_open_transaction_hides_is_waited_for(cluster: FakeCluster) -> None:
    held = Record(offset=0, timestamp_ms=0, key=b"held", value=b"x")
    number = cluster.append_transaction(P, [held], None)
    async with cluster.writer() as writer:
        await writer.append(P, key=b"behind", value=b"x")
    end = cluster.log(P).end_offset
    fetches = 0
    async with cluster.reader(read_committed=True) as reader:
        async for _ in read_to(reader, P, 0, end, patience_seconds=60.0):
            fetches += 1
            if fetches == 50:
                cluster.finish_transaction(P, number, EndMarker.COMMIT)
    assert fetches > 50


@dataclass(slots=True)
class Reader:
    """Answers each fetch with the next offset that `next_offset` says, and shows the log up to `shown`."""

    next_offset: Callable[[int, int], int]
    """By the number of the fetch, and its offset."""
    shown: int
    fetches: int = 0

    async def fetch(
        self, partition: TopicPartition, offset: int, *, max_wait_seconds: float, max_bytes: int = 1 << 20
    ) -> FetchedRecords:
        self.fetches += 1
        return FetchedRecords(
            records=[],
            next_offset=self.next_offset(self.fetches, offset),
            log_start_offset=0,
            high_watermark=self.shown,
        )


async def test_the_time_without_progress_is_bound_and_not_the_whole_reading() -> None:
    slow = Reader(lambda number, offset: offset + number % 2, shown=1000)
    async for _ in read_to(slow, P, 0, 1000, patience_seconds=1.0):
        pass
    assert slow.fetches == 1999


async def test_the_end_is_reached_when_compaction_has_removed_the_last_records() -> None:
    compacted = Reader(lambda _, offset: max(offset, 97), shown=100)
    ends = [fetched.next_offset async for fetched in read_to(compacted, P, 0, 100)]
    assert ends[-1] == 100
