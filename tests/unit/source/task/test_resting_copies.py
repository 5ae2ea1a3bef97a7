"""What others write into a copy at rest is found, told once, and nobody is accused of what we wrote."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import cast

from twinlog.batches import DecodedRecord
from twinlog.errors import KafkaError, TransientKafkaError
from twinlog.kafka.raw import BatchReader
from twinlog.kafka.raw.fetch.reader import FetchedBatches
from twinlog.model import TopicPartition
from twinlog.testing.mirror_logs import MemoryLog
from twinlog_source.partitions.orders import ForeignWrite
from twinlog_source.task.foreign_writes import ForeignWrites, RestingCopies
from twinlog_source.task.partition import PartitionCopy

SOURCE, TARGET = TopicPartition("orders", 0), TopicPartition("A.orders", 0)
_OWN_ID = 98


@dataclass(slots=True)
class Log:
    """A target log that somebody else wrote to, from `begin` on."""

    begin: int
    end: int
    meanwhile: Callable[[], None] = lambda: None
    producer_id: int = 99
    is_marker: bool = False
    fails: bool = False
    reads: int = 0

    async def ends(self, wanted: Collection[TopicPartition]) -> Mapping[TopicPartition, int | KafkaError]:
        self.meanwhile()
        return dict.fromkeys(wanted, self.end)

    async def fetch(self, partition: TopicPartition, offset: int, *, max_bytes: int) -> FetchedBatches:
        self.reads += 1
        if self.fails:
            raise TransientKafkaError("away", reason="KAFKA_TIMEOUT")
        records = [DecodedRecord(at, 7, b"who", b"was this", ()) for at in range(self.begin, self.end)]
        log = MemoryLog.of(records, producer_id=self.producer_id, control=self.is_marker)
        return FetchedBatches(
            batches=tuple(log.batches),
            aborted=(),
            log_start_offset=0,
            end_offset=self.end,
            size_bytes=100,
        )


@dataclass(slots=True)
class Rig:
    log: Log
    told: list[tuple[TopicPartition, ForeignWrite]] = field(default_factory=list)
    hidden: list[TopicPartition] = field(default_factory=list)
    copy: PartitionCopy = field(init=False)
    foreign_writes: ForeignWrites = field(init=False)
    resting: RestingCopies = field(init=False)

    def __post_init__(self) -> None:
        self.copy = PartitionCopy(
            partition=SOURCE,
            target_topic=TARGET.topic,
            committed=0,
            random=lambda: 0.0,
            target_end=10,
            end_is_exact=True,
            ends_rounds_with_marker=True,
            markers_to_come=1,
        )
        self.foreign_writes = ForeignWrites(
            reader=cast("BatchReader", self.log),
            found=lambda *found: self.told.append(found),
            own_producer_id=_OWN_ID,
        )
        self.resting = RestingCopies(
            by_target={TARGET: self.copy},
            ends=self.log.ends,
            foreign_writes=self.foreign_writes,
            preserved=None,
            on_hidden=self.hidden.append,
        )

    async def look(self) -> list[int]:
        """How many records of others each stretch had that was told until now."""
        await self.resting.look(asyncio.Event())
        return [write.records for _, write in self.told]


async def test_what_lies_behind_the_end_of_a_copy_at_rest_is_told_once() -> None:
    rig = Rig(Log(begin=11, end=14))
    assert await rig.look() == [3]
    ((partition, write),) = rig.told
    assert (partition, write.from_offset, write.to_offset, write.producer_id) == (SOURCE, 11, 14, 99)
    assert await rig.look() == [3]
    assert rig.log.reads == 1, "the end is known now"
    assert rig.copy.target_end == 14


async def test_more_of_it_later_is_told_too() -> None:
    rig = Rig(Log(begin=11, end=14))
    await rig.look()
    rig.log.begin, rig.log.end = 14, 15
    assert await rig.look() == [3, 1]


async def test_our_marker_behind_the_last_record_is_nobodys_write() -> None:
    rig = Rig(Log(begin=10, end=11))
    assert await rig.look() == []
    assert rig.log.reads == 0


async def test_a_batch_of_ours_that_came_late_to_another_offset_is_nobodys_write() -> None:
    """As behind a tail that the target lost: its records are the source's."""
    rig = Rig(Log(begin=11, end=14, producer_id=_OWN_ID))
    assert await rig.look() == []
    assert rig.copy.target_end == 14


async def test_a_marker_of_somebody_else_is_looked_at_and_not_told() -> None:
    rig = Rig(Log(begin=11, end=12, is_marker=True))
    assert await rig.look() == []
    assert rig.copy.target_end == 12


async def test_what_was_written_while_the_question_was_on_its_way_is_not_accused() -> None:
    rig = Rig(Log(begin=11, end=14))

    def write() -> None:
        rig.copy.written(11, 3, 0)

    rig.log.meanwhile = write
    assert await rig.look() == []
    rig.copy.rounds = 1
    rig.log.meanwhile, rig.log.end = lambda: None, 20
    assert await rig.look() == [], "a round is on its way"


async def test_an_end_that_consumers_do_not_see_for_two_looks_is_told() -> None:
    """A marker may come a moment after the commit was answered."""
    rig = Rig(Log(begin=8, end=8))
    await rig.look()
    rig.log.end = 10
    await rig.look()
    rig.log.end = 8
    await rig.look()
    assert rig.hidden == []
    await rig.look()
    assert rig.hidden == [TARGET]


async def test_where_the_end_is_not_certain_nobody_is_accused() -> None:
    rig = Rig(Log(begin=11, end=14))
    rig.copy.rewind()
    assert await rig.look() == []


async def test_the_next_batch_behind_what_was_told_does_not_tell_it_again() -> None:
    rig = Rig(Log(begin=11, end=14))
    await rig.look()
    assert rig.copy.written(14, 2, 0) is None
    stop = asyncio.Event()
    assert await rig.foreign_writes.look(SOURCE, TARGET, 10, 14, stop)
    assert len(rig.told) == 1


async def test_a_translated_copy_that_ends_before_is_left_to_the_driver() -> None:
    """It may be another topic by now."""
    rig = Rig(Log(begin=0, end=3))
    assert await rig.look() == []
    assert rig.log.reads == 0


async def test_a_copy_that_cannot_be_read_is_looked_at_again() -> None:
    rig = Rig(Log(begin=11, end=14))
    stop = asyncio.Event()
    stop.set()
    rig.log.fails = True
    await rig.resting.look(stop)
    assert rig.copy.target_end == 10
    rig.log.fails = False
    assert await rig.look() == [3]


async def test_a_copy_that_is_written_again_is_hidden_until_consumers_see_what_it_had_at_rest() -> None:
    """Also while a transaction is open behind that."""
    rig = Rig(Log(begin=8, end=8))
    for hides in (False, True):
        await rig.look()
        assert rig.copy.is_hidden is hides
    rig.copy.written(11, 19, 0)
    rig.copy.rounds = 1
    await rig.look()
    assert rig.copy.is_hidden
    rig.log.end = 11
    await rig.look()
    assert not rig.copy.is_hidden
