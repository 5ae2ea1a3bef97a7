"""Two logs in memory for tests of verification: built batch by batch, damaged, and compared."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from twinlog.batches import Codec, DecodedRecord, iter_batches
from twinlog.batches.header import Batch
from twinlog.comparison.compare import Comparison
from twinlog.comparison.judging.judge import judge
from twinlog.comparison.model import Bounds, PartitionProof, Range, Side
from twinlog.comparison.sides import AskEnds, Chunk, EndsNow, Extend, Extended, Read, Steps
from twinlog.model import TopicPartition
from twinlog.testing.source_batches import source_batch

SOURCE, TARGET = TopicPartition("orders", 0), TopicPartition("A.orders", 0)


def records_at(records: Sequence[DecodedRecord], offsets: Sequence[int]) -> list[DecodedRecord]:
    """The same records at other offsets."""
    return [record._replace(offset=offset) for record, offset in zip(records, offsets, strict=True)]


@dataclass(slots=True)
class MemoryLog:
    """Batches of one partition; `end` may lie behind the last one (markers)."""

    batches: list[Batch] = field(default_factory=list)
    start: int = 0
    end: int = 0
    batches_per_chunk: int = 3
    reads: int = 0

    @classmethod
    def of(
        cls,
        records: Sequence[DecodedRecord],
        *,
        sizes: Sequence[int] = (5,),
        codec: Codec = Codec.NONE,
        start: int | None = None,
        end: int | None = None,
        **batch_options: Any,
    ) -> "MemoryLog":
        """Records in batches of these sizes, in turn."""
        log = cls()
        index = number = 0
        while index < len(records):
            size = max(1, sizes[number % len(sizes)])
            data = source_batch(records[index : index + size], codec=codec, **batch_options)
            log.batches += iter_batches(data)
            index, number = index + size, number + 1
        last = records[-1].offset + 1 if records else 0
        log.end = last if end is None else end
        log.start = (records[0].offset if records else log.end) if start is None else start
        return log

    def read(self, offset: int) -> Chunk:
        self.reads += 1
        lost_until = None
        if offset < self.start:
            lost_until = offset = self.start
        following = [batch for batch in self.batches if batch.header.next_offset > offset]
        some = tuple(following[: self.batches_per_chunk])
        more = len(following) > len(some)
        next_offset = some[-1].header.next_offset if more else max(self.end, offset + 1)
        return Chunk(batches=some, next_offset=next_offset, lost_until=lost_until)


def bounds_of(source: MemoryLog, target: MemoryLog, **changes: Any) -> Bounds:
    """Everything, with the flow's position at the source's end."""
    bounds = Bounds(
        source=SOURCE,
        target=TARGET,
        source_start=source.start,
        source_goal=source.end,
        source_limit=source.end,
        target_start=target.start,
        target_goal=target.end,
        target_limit=target.end,
        position=source.end,
        source_lost=(Range(0, source.start),) if source.start else (),
        target_lost=(Range(0, target.start),) if target.start else (),
    )
    return replace(bounds, **changes)


def drive(steps: Steps[Any], source: MemoryLog, target: MemoryLog, answers: Sequence[Extended] = ()) -> Any:
    """Answer a generator's requests to its end; `answers` go to requests for more of the target."""
    waiting = [*answers]
    answer: Chunk | Extended | EndsNow | None = None
    limit, position = target.end, None
    try:
        while True:
            asked = steps.send(answer) if answer is not None else next(steps)
            match asked:
                case Read(side=Side.SOURCE, offset=offset):
                    answer = source.read(offset)
                case Read(offset=offset):
                    answer = target.read(offset)
                case AskEnds():
                    answer = EndsNow(source=source.end, target=target.end)
                case Extend() if waiting:
                    answer = waiting.pop(0)
                    limit, position = answer.target_limit, answer.position
                case Extend():
                    answer = Extended(target_limit=limit, position=position)
    except StopIteration as end:
        return end.value


def prove(
    source: MemoryLog, target: MemoryLog, *, answers: Sequence[Extended] | None = None, **changes: Any
) -> PartitionProof:
    """Compare and judge two logs."""
    bounds = bounds_of(source, target, **changes)
    comparison = Comparison(bounds=bounds)
    if answers is None:
        answers = [Extended(target_limit=bounds.target_limit, position=bounds.position)] * 3
    drive(comparison.compare(), source, target, answers)
    proof = drive(judge(comparison), source, target)
    assert isinstance(proof, PartitionProof)
    return proof
