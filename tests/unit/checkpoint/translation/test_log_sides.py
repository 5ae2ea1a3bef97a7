"""What is counted in a log, as its leader shows it."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import cast

import pytest

from twinlog.comparison.sides import Chunk
from twinlog.errors import TransientKafkaError
from twinlog.kafka.raw import BatchReader
from twinlog.kafka.raw.fetch.reader import FetchedBatches
from twinlog.model import TopicPartition
from twinlog_checkpoint.translation.log_sides import BatchLog, ByteBudget, ComparedPartition
from twinlog_checkpoint.translation.translation import LogBounds

PARTITION = TopicPartition("t", 0)


@dataclass(frozen=True, slots=True)
class Empty:
    """A leader that has no batch to show, and knows that its log ends here."""

    end: int
    read_committed: bool = True

    async def expect(self, partitions: Collection[TopicPartition]) -> None:
        """It answers about each."""

    async def fetch(self, partition: TopicPartition, offset: int, *, max_bytes: int) -> FetchedBatches:
        return FetchedBatches(
            batches=(), aborted=(), log_start_offset=0, end_offset=self.end, size_bytes=max_bytes and 1
        )


def side(leader: Empty) -> ComparedPartition:
    log = BatchLog(cast("BatchReader", leader))
    budget = ByteBudget(1 << 20)
    return ComparedPartition(log=log, partition=PARTITION, bounds=LogBounds(start=0, end=10), budget=budget)


async def test_what_a_new_leader_does_not_show_yet_is_not_counted_as_nothing() -> None:
    """It learns only after a while how much of its log all replicas have: a move would not wait for it."""
    for look in (side(Empty(end=4)).count(4, 10), side(Empty(end=4)).first(4)):
        with pytest.raises(TransientKafkaError, match="ends at 4 on its leader"):
            await look


async def test_offsets_at_the_end_whose_records_compaction_has_removed_are_counted_as_nothing() -> None:
    assert await side(Empty(end=10)).count(4, 10) == 0
    chunk: Chunk = await side(Empty(end=10)).read(4, max_bytes=1)
    assert chunk.next_offset == 10
