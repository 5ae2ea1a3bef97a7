"""A partition that stands still behind a transaction of the source is named once that takes long."""

from collections.abc import Collection

import pytest

from twinlog.batches import EndMarker
from twinlog.errors import FatalKafkaError, KafkaError
from twinlog.kafka.ports import NewTopic
from twinlog.kafka.raw import OpenTransaction
from twinlog.model import Record, TopicPartition
from twinlog.testing.fakes.cluster import FakeCluster
from twinlog.testing.virtual_time import FakeClock
from twinlog_source.partitions.events import Begun, EndsSeen, Reported, TopicsChosen
from twinlog_source.partitions.orders import PartitionReport, PartitionState, TaskReport
from twinlog_source.partitions.standing import standing_of
from twinlog_source.partitions.table import PartitionTable
from twinlog_source.topics.open_transactions import LONG_SECONDS, LOOKS, OpenTransactions
from twinlog_source.topics.source_ends import SourceEnds
from unit.source.partitions.standing_facts import FACTS

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)
RECORD = Record(offset=-1, timestamp_ms=1, key=None, value=b"x")


class Site:
    """A source of two partitions, and what is found out about it."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.cluster = FakeCluster("A", clock=self.clock)
        self.table = PartitionTable()
        self.asked: list[Collection[TopicPartition]] = []
        self.refused: KafkaError | None = None
        self.found: dict[TopicPartition, list[OpenTransaction]] = {}
        self.ends = SourceEnds(
            source=self.cluster,
            reader=self.cluster.reader(),
            table=self.table,
            read_committed=True,
            clock=self.clock,
        )
        self.transactions = OpenTransactions(
            source=self.cluster, ask=self.ask, table=self.table, clock=self.clock
        )

    async def ask(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, list[OpenTransaction]]:
        self.asked.append(partitions)
        if self.refused is not None:
            raise self.refused
        return self.found

    async def begin(self) -> None:
        await self.cluster.create_topics([NewTopic(name="t", partition_count=2, replication_factor=1)])
        self.table.apply(TopicsChosen(targets={P: "A.t", Q: "A.t"}), 0.0)
        for partition in self.table.rows:
            self.table.apply(Begun(partition=partition, position=0), 0.0)

    def open(self, partition: TopicPartition) -> int:
        """A transaction, and records behind it that belong to none."""
        number = self.cluster.append_transaction(partition, [RECORD] * 3, None)
        for _ in range(5):
            self.cluster.append(partition, RECORD)
        return number

    @property
    def waiting(self) -> set[TopicPartition]:
        return {partition for partition, row in self.table.rows.items() if row.waits_for_transaction}

    async def look(self, seconds: float = 0.0) -> dict[TopicPartition, str]:
        self.clock.advance(seconds)
        await self.ends.look()
        await self.transactions.look()
        return {
            partition: row.open_transaction
            for partition, row in self.table.rows.items()
            if row.open_transaction
        }


async def test_a_transaction_that_stays_open_is_named_with_its_producer() -> None:
    site = Site()
    await site.begin()
    number = site.open(P)
    assert await site.look() == {}
    assert site.waiting == set()
    assert await site.look(LONG_SECONDS / 2) == {}
    assert site.waiting == {P}
    assert site.asked == []
    site.found = {P: [OpenTransaction(7, 0, 0, 1_700_000_000_000)]}
    told = await site.look(LONG_SECONDS / 2)
    assert told.keys() == {P}
    assert "producer id 7" in told[P]
    assert "since 2023-11-14T22:13:20Z" in told[P]
    assert site.waiting == set()
    site.cluster.finish_transaction(P, number, EndMarker.ABORT)
    assert await site.look(LOOKS.shortest_seconds) == {}


async def test_transactions_that_follow_each_other_are_none_that_stays_open() -> None:
    site = Site()
    await site.begin()
    number = site.open(P)
    for _ in range(10):
        assert await site.look(LONG_SECONDS / 2) == {}
        site.cluster.finish_transaction(P, number, EndMarker.COMMIT)
        number = site.open(P)
        assert site.waiting == set()


@pytest.mark.parametrize("refused", [None, FatalKafkaError("no such request")])
async def test_without_an_answer_of_the_leader_the_offset_is_named(refused: KafkaError | None) -> None:
    site = Site()
    site.refused = refused
    await site.begin()
    site.open(Q)
    await site.look()
    assert await site.look(LONG_SECONDS) == {
        Q: "a transaction is open from offset 0: nothing behind it can be copied"
    }


async def test_what_cannot_be_read_changes_nothing() -> None:
    site = Site()
    await site.begin()
    site.open(P)
    await site.look()
    told = await site.look(LONG_SECONDS)
    site.cluster.take_away()
    assert await site.look(LOOKS.shortest_seconds) == told


def test_a_partition_that_is_caught_up_with_it_says_so_and_runs() -> None:
    table = PartitionTable()
    table.apply(TopicsChosen(targets={P: "A.t"}), 0.0)
    table.apply(EndsSeen(ends={P: 10}, asked_at=100.0), 100.0)
    report = PartitionReport(partition=P, position=10, source_end=10, state=PartitionState.RUNNING)
    table.apply(Reported(slot=0, report=TaskReport(partitions=(report,)), now_ms=1), 100.0)
    table.rows[P].open_transaction = "producer id 7 has a transaction open"
    standing = standing_of(table.rows[P], FACTS)
    assert (standing.state, standing.reason) == (PartitionState.RUNNING, "OPEN_TRANSACTION")
    assert "producer id 7" in standing.message
    table.rows[P].open_transaction, table.rows[P].waits_for_transaction = "", True
    standing = standing_of(table.rows[P], FACTS)
    assert (standing.state, standing.reason) == (PartitionState.RUNNING, ""), "as is usual for a moment"
    assert standing.message == "waits for an open transaction of the source"
