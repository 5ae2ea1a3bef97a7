"""The driver reads the ends of the source's logs itself."""

import pytest

from twinlog.kafka.ports import NewTopic
from twinlog.model import TopicPartition
from twinlog.testing.fakes.cluster import FakeCluster
from twinlog.testing.virtual_time import FakeClock
from twinlog_source.partitions.events import (
    Begun,
    TopicsChosen,
)
from twinlog_source.partitions.standing import END_VALID_SECONDS
from twinlog_source.partitions.table import PartitionTable
from twinlog_source.topics.source_ends import (
    LOOK_SECONDS,
    PARTITIONS_PER_SECOND,
    TIMEOUT_SECONDS,
    TIMESTAMPS_AT_ONCE,
    SourceEnds,
    look_seconds,
)

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)


class Looked:
    """A cluster and a table that looks at it."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.cluster = FakeCluster("A", clock=self.clock)
        self.table = PartitionTable()

    async def ends(self, *, read_committed: bool = True) -> SourceEnds:
        await self.cluster.create_topics([NewTopic(name="t", partition_count=2, replication_factor=1)])
        self.table.apply(TopicsChosen(targets={P: "A.t", Q: "A.t"}), 0.0)
        return SourceEnds(
            source=self.cluster,
            reader=self.cluster.reader(),
            table=self.table,
            read_committed=read_committed,
            clock=self.clock,
        )

    async def write(self, partition: TopicPartition, count: int, *, age_seconds: float = 0.0) -> None:
        async with self.cluster.writer() as writer:
            for _ in range(count):
                at = self.clock.now_ms() - int(age_seconds * 1000)
                await writer.append(partition, key=None, value=b"x", timestamp_ms=at)


async def test_the_driver_reads_ends_and_the_age_of_a_lag_that_was_there_before_it() -> None:
    site = Looked()
    ends = await site.ends()
    for partition in site.table.rows:
        site.table.apply(Begun(partition=partition, position=0), 0.0)
    await site.write(P, 7, age_seconds=3600)
    await ends.look()
    row, empty = site.table.rows[P], site.table.rows[Q]
    assert (row.end, empty.end) == (7, 0)
    now = site.clock.monotonic()
    assert row.lag_time.seconds(now) == pytest.approx(3600, abs=1)
    assert empty.lag_time.seconds(now) == 0.0


async def test_many_partitions_are_looked_at_less_often() -> None:
    site = Looked()
    ends = await site.ends()
    assert ends.is_due
    await ends.look()
    site.clock.advance(LOOK_SECONDS - 0.1)
    assert not ends.is_due
    site.clock.advance(0.1)
    assert ends.is_due
    several = {TopicPartition("t", number): "A.t" for number in range(4 * PARTITIONS_PER_SECOND)}
    site.table.apply(TopicsChosen(targets=several), 0.0)
    await ends.look()
    site.clock.advance(3.9)
    assert not ends.is_due


@pytest.mark.parametrize(("partitions", "flows"), [(1_000_000, 1), (10, 1_000)])
def test_an_end_is_read_again_before_it_is_too_old_to_tell_the_lag(partitions: int, flows: int) -> None:
    assert look_seconds(partitions, flows) + TIMEOUT_SECONDS <= END_VALID_SECONDS


async def test_a_source_that_is_away_leaves_what_was_known_and_its_reason() -> None:
    site = Looked()
    ends = await site.ends()
    site.table.apply(Begun(partition=P, position=3), 0.0)
    await site.write(P, 7)
    await ends.look()
    site.cluster.take_away()
    await ends.look()
    row = site.table.rows[P]
    assert row.last_known_lag == 4
    assert row.end_problem is not None
    site.cluster.bring_back()
    await ends.look()
    assert row.end_problem is None


async def test_partitions_whose_next_record_cannot_be_read_keep_no_age_of_others_unknown() -> None:
    """The first twenty begin behind their last record, of which only markers may be left."""
    site = Looked()
    ends = await site.ends()
    count = 2 * TIMESTAMPS_AT_ONCE + 3
    await site.cluster.create_topics([NewTopic(name="m", partition_count=count, replication_factor=1)])
    many = [TopicPartition("m", number) for number in range(count)]
    site.table.apply(TopicsChosen(targets=dict.fromkeys(many, "A.m")), 0.0)
    for number, partition in enumerate(many):
        site.table.apply(Begun(partition=partition, position=0), 0.0)
        await site.write(partition, 1, age_seconds=3600)
        if number < TIMESTAMPS_AT_ONCE:
            site.cluster.punch_holes(partition, {0})
    for _ in range(3):
        await ends.look()
    now = site.clock.monotonic()
    unknown = [each for each in many if site.table.rows[each].lag_time.seconds(now) is None]
    assert unknown == many[:TIMESTAMPS_AT_ONCE]
