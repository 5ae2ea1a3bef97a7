"""A topic and its copy, read whole: what a translated offset has to point at. And what fills such a topic."""

import random
from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from twinlog.batches import Codec, NewRecord
from twinlog.clock import SystemClock
from twinlog.kafka.ports import KafkaCluster, OffsetSpec
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.model import TopicPartition
from twinlog.testing.brokers import write_batches

PARTITIONS = 2
_LAST_OFFSETS = 5000
_NOWHERE = 1 << 62


@dataclass(slots=True, kw_only=True)
class HistoryWriter:
    """Fills a topic with everything that makes offsets of two logs differ."""

    cluster: BlockingCluster
    topic: str
    rng: random.Random
    keys: int = 50
    written: int = 0
    aborted: int = 0
    now_ms: int = field(default_factory=lambda: SystemClock().now_ms() - 60_000)
    """Not long ago: the broker's retention is a week."""

    async def write(self, count: int, *, batch_records: int = 40) -> None:
        """Plain batches, transactions and aborted ones, each with its markers; values tell records apart."""
        while count > 0:
            size = min(count, self.rng.randint(1, 10) * batch_records)
            count -= size
            batches = []
            for start in range(0, size, batch_records):
                names = range(self.written + start, self.written + min(size, start + batch_records))
                records = [
                    NewRecord(
                        b"key %d" % self.rng.randrange(self.keys), b"%d" % name, self.now_ms + name // 9
                    )
                    for name in names
                ]
                batches.append((self.rng.randrange(PARTITIONS), self.rng.choice(list(Codec)), records))
            kind = self.rng.random()
            abort = kind > 0.85
            await write_batches(
                self.cluster,
                self.topic,
                batches,
                transactional_id=self.topic if kind > 0.4 else None,
                abort=abort,
            )
            self.written += size
            self.aborted += size if abort else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogView:
    """The visible records of a log: offsets and names, in order."""

    offsets: Sequence[int]
    names: Sequence[int]

    def index(self, offset: int) -> int:
        """Number of the first record at or after `offset`."""
        return bisect_left(self.offsets, offset)


class Fault(StrEnum):
    SKIPPED = "SKIPPED"
    """A record that the group has not read lies before its new place, and nowhere behind."""
    READ_AGAIN = "READ_AGAIN"
    """The first record at the new place is not the first unread one."""


class Truth:
    """Both sides of one partition. Judges translations."""

    def __init__(self, source: LogView, target: LogView) -> None:
        self.source = source
        self.target = target
        last_copy = {name: index for index, name in enumerate(target.names)}
        self._next_copied = [_NOWHERE] * (len(source.names) + 1)
        """For each index of the source: the name of the first record from there on that was copied."""
        self._earliest_last_copy = [_NOWHERE] * (len(source.names) + 1)
        """The lowest index on the target that no place may lie beyond."""
        for index in range(len(source.names) - 1, -1, -1):
            name = source.names[index]
            copy = last_copy.get(name, _NOWHERE)
            self._next_copied[index] = name if copy != _NOWHERE else self._next_copied[index + 1]
            self._earliest_last_copy[index] = min(copy, self._earliest_last_copy[index + 1])

    @property
    def duplicates(self) -> int:
        return len(self.target.names) - len(set(self.target.names))

    def fault(self, offset: int, translated: int) -> Fault | None:
        """What is wrong with going on at `translated` instead of `offset`; None = the very same record."""
        mine, there = self.source.index(offset), self.target.index(translated)
        if self._earliest_last_copy[mine] < there:
            return Fault.SKIPPED
        if self._next_copied[mine] == _NOWHERE:
            return Fault.READ_AGAIN if there < len(self.target.names) and not self.duplicates else None
        return None if self.target.names[there] == self._next_copied[mine] else Fault.READ_AGAIN


async def read_view(
    cluster: KafkaCluster, partition: TopicPartition, *, last_offsets: int | None = None
) -> LogView:
    """All committed records of a log, or those of its last offsets."""
    end = (await cluster.list_offsets(OffsetSpec.LAST_STABLE, [partition]))[partition]
    position = (await cluster.list_offsets(OffsetSpec.EARLIEST, [partition]))[partition]
    assert isinstance(end, int)
    assert isinstance(position, int)
    if last_offsets is not None:
        position = max(position, end - last_offsets)
    offsets, names = array("q"), array("q")
    async with cluster.reader() as reader:
        while position < end:
            fetched = await reader.fetch(partition, position, max_wait_seconds=1, max_bytes=4 << 20)
            for record in fetched.records:
                offsets.append(record.offset)
                names.append(int(record.value or b"-1"))
            position = fetched.next_offset
    return LogView(offsets=offsets, names=names)


async def read_truths(
    source: KafkaCluster, topic: str, target: KafkaCluster, remote: str
) -> Mapping[int, Truth]:
    return {
        number: Truth(
            await read_view(source, TopicPartition(topic, number)),
            await read_view(target, TopicPartition(remote, number)),
        )
        for number in range(PARTITIONS)
    }


async def all_copied(source: KafkaCluster, topic: str, target: KafkaCluster, remote: str) -> bool:
    """Whether both sides end with the same record."""
    if remote not in await target.list_topics():
        return False
    for number in range(PARTITIONS):
        mine = await read_view(source, TopicPartition(topic, number), last_offsets=_LAST_OFFSETS)
        there = await read_view(target, TopicPartition(remote, number), last_offsets=_LAST_OFFSETS)
        if not there.names or there.names[-1] != mine.names[-1]:
            return False
    return True
