"""A verification of logs that begin at other places, go away, or end later than it was said."""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest

from twinlog.batches import Batch, DecodedRecord, iter_batches
from twinlog.comparison.compare import Comparison
from twinlog.comparison.model import Bounds, DifferenceKind, NotComparedReason, PartitionProof, Range
from twinlog.comparison.sides import Chunk, EndsNow, Extended, View
from twinlog.errors import TransientKafkaError
from twinlog.kafka.ports import OffsetSpec
from twinlog.kafka.raw import DataClientPool
from twinlog.kafka.raw.fetch.reader import FetchedBatches
from twinlog.model import TopicPartition
from twinlog.testing.mirror_logs import SOURCE, TARGET, MemoryLog, bounds_of, records_at
from twinlog.testing.source_batches import source_batch
from twinlog.testing.virtual_time import run_in_virtual_time
from twinlog.verify.report import safe_range
from twinlog_source.verify.proving.prover import Prover
from twinlog_source.verify.proving.reading import PartitionLog, ReadPace, Waiting
from twinlog_source.verify.state import _NOTED_AFTER_BYTES, ProvenRanges

NOW_MS = 1_700_000_000_000


def record(offset: int, number: int | None = None) -> DecodedRecord:
    number = offset if number is None else number
    return DecodedRecord(offset, NOW_MS + number, b"key-%d" % (number % 7), b"value-%d" % number, ())


def numbers(begin: int, end: int) -> list[DecodedRecord]:
    return [record(number) for number in range(begin, end)]


def found(proof: PartitionProof) -> list[tuple[str, int | None, int | None, int]]:
    return [(each.kind, each.source_offset, each.target_offset, each.count) for each in proof.differences]


def left_out(proof: PartitionProof) -> list[tuple[str, str, int, int]]:
    return [(each.side, each.reason, each.from_offset, each.to_offset) for each in proof.not_compared]


@dataclass(slots=True)
class Reads:
    """A log in memory as a prover reads it."""

    log: MemoryLog
    most_reads: int | None = None
    """After so many the cluster is away."""
    is_ahead: bool = True
    read_bytes: int = 0
    reads: int = 0

    async def read(self, offset: int, *, limit: int) -> Chunk:
        self.reads += 1
        if self.most_reads is not None and self.reads > self.most_reads:
            raise TransientKafkaError("the cluster is away", reason="KAFKA_TIMEOUT")
        return self.log.read(offset)

    def close(self) -> None: ...

    async def offset_for_time(self, timestamp_ms: int) -> int | None:
        for batch in self.log.batches:
            if batch.header.max_timestamp_ms >= timestamp_ms:
                return max(batch.header.base_offset, self.log.start)
        return None


def proven(
    source: Reads,
    target: Reads,
    bounds: Bounds,
    on_progress: Callable[[Comparison], None] = lambda _: None,
) -> PartitionProof:
    async def extend(_: Comparison) -> Extended:
        return Extended(target_limit=bounds.target_limit, position=bounds.position)

    async def ends() -> EndsNow:
        return EndsNow(source=source.log.end, target=target.log.end)

    prover = Prover(
        bounds=bounds,
        source=source,
        target=target,
        extend=extend,
        ends=ends,
        source_offset_for_time=source.offset_for_time,
        target_offset_for_time=target.offset_for_time,
        on_progress=on_progress,
    )
    return asyncio.run(prover.run())


MANY, IN_BATCH = 24_000, 600


@pytest.mark.parametrize("wrong", [None, 0, 5])
@pytest.mark.parametrize("own_times", [False, True])
def test_what_retention_took_of_a_copy_is_passed_and_not_aligned(wrong: int | None, own_times: bool) -> None:
    """By time, or by reading where the copy has its broker's times; also where its first record is wrong."""
    source = MemoryLog.of(numbers(0, MANY), sizes=[IN_BATCH])
    kept = records_at(numbers(MANY // 2, MANY), range(90_000, 90_000 + MANY // 2))
    if wrong is not None:
        kept[wrong] = kept[wrong]._replace(headers=((b"h", b"1"),))
    appended: dict[str, Any] = {"appended_at_ms": NOW_MS + 10**9} if own_times else {}
    target = MemoryLog.of(kept, sizes=[IN_BATCH], **appended)
    proof = proven(Reads(source), Reads(target), bounds_of(source, target))
    at = wrong or 0
    assert found(proof) == (
        [] if wrong is None else [(DifferenceKind.CHANGED, MANY // 2 + at, 90_000 + at, 1)]
    )
    assert left_out(proof) == [("source", NotComparedReason.TARGET_RETENTION, 0, MANY // 2)]
    assert proof.records == MANY // 2 - (wrong is not None)
    assert proof.source_from > 0, "found, and not read as what differs"


@pytest.mark.parametrize("offsets_kept_from", [None, 0])
def test_a_verification_that_was_killed_still_knows_what_it_left_out(offsets_kept_from: int | None) -> None:
    source = MemoryLog.of(numbers(0, MANY), sizes=[IN_BATCH])
    target = MemoryLog.of(numbers(MANY // 2, MANY), sizes=[IN_BATCH])
    bounds = bounds_of(source, target, offsets_kept_from=offsets_kept_from)
    memory: dict[str, str] = {}
    ids = {SOURCE.topic: ("one", "copy")}

    def opened() -> ProvenRanges:
        state = ProvenRanges(file=None, topic_ids=ids, memory=memory)
        for line in memory.values():
            state.take_line(line)
        return state

    state, reads = opened(), count(1)
    begun = state.narrowed(bounds)
    proven(
        Reads(source, most_reads=12),
        Reads(target),
        begun.bounds,
        lambda comparison: state.note(comparison, begun, next(reads) * _NOTED_AFTER_BYTES),
    )
    resumed = opened().narrowed(bounds)
    assert MANY // 2 < resumed.bounds.source_start < MANY
    proof = resumed.completed(proven(Reads(source), Reads(target), resumed.bounds))
    assert left_out(proof) == [("source", NotComparedReason.TARGET_RETENTION, 0, MANY // 2)]
    assert (proof.differences, proof.records) == ([], MANY // 2)


@pytest.mark.parametrize("offsets_kept_from", [None, 0])
def test_nothing_may_be_deleted_of_what_retention_took_of_a_copy(offsets_kept_from: int | None) -> None:
    """However much that is: the comparison begins behind it."""
    source = MemoryLog.of(numbers(0, MANY), sizes=[IN_BATCH])
    target = MemoryLog.of(numbers(MANY // 2, MANY), sizes=[IN_BATCH])
    bounds = bounds_of(source, target, offsets_kept_from=offsets_kept_from)
    safe = safe_range(proven(Reads(source), Reads(target), bounds))
    assert (safe.begin, safe.until, safe.end, safe.reason) == (0, 0, MANY, "TARGET_RETENTION")


@pytest.mark.parametrize("wrong", [0, 5])
@pytest.mark.parametrize("own_times", [False, True])
def test_the_first_record_of_a_range_is_found_in_a_long_copy(wrong: int, own_times: bool) -> None:
    source = MemoryLog.of(numbers(0, MANY), sizes=[IN_BATCH])
    copied = [*numbers(0, MANY // 2 + wrong), *numbers(MANY // 2 + wrong + 1, MANY)]
    appended: dict[str, Any] = {"appended_at_ms": NOW_MS + 10**9} if own_times else {}
    target = MemoryLog.of(records_at(copied, range(len(copied))), sizes=[IN_BATCH], **appended)
    bounds = bounds_of(source, target, source_start=MANY // 2, head_is_free=True)
    proof = proven(Reads(source), Reads(target), bounds)
    at = MANY // 2 + wrong
    assert found(proof) == [(DifferenceKind.MISSING, at, at, 1)]
    assert proof.not_compared == []
    assert proof.target_from > 0


def test_a_copy_that_has_not_come_to_the_range_is_not_read_through() -> None:
    """As with `twinlog repair` of a lost end, before it sets the position back."""
    source = MemoryLog.of(numbers(0, MANY), sizes=[IN_BATCH])
    target = MemoryLog.of(numbers(0, MANY - IN_BATCH), sizes=[IN_BATCH])
    bounds = bounds_of(source, target, source_start=MANY - IN_BATCH, source_lost=(), head_is_free=True)
    reads = Reads(target)
    proof = proven(Reads(source), reads, bounds)
    assert found(proof) == [(DifferenceKind.MISSING, MANY - IN_BATCH, None, IN_BATCH)]
    assert reads.reads < MANY // IN_BATCH


def test_offsets_that_are_kept_tell_where_both_logs_begin() -> None:
    source = MemoryLog.of(numbers(0, MANY), sizes=[IN_BATCH])
    kept = numbers(MANY // 2, MANY)
    kept[0] = kept[0]._replace(key=None)
    target = MemoryLog.of(kept, sizes=[IN_BATCH])
    reads = Reads(source)
    proof = proven(reads, Reads(target), bounds_of(source, target, offsets_kept_from=0))
    assert found(proof) == [(DifferenceKind.CHANGED, MANY // 2, MANY // 2, 1)]
    assert left_out(proof) == [("source", NotComparedReason.TARGET_RETENTION, 0, MANY // 2)]


def test_a_difference_that_was_found_before_a_cluster_went_away_stays_found() -> None:
    source = MemoryLog.of(numbers(0, MANY), sizes=[100])
    copied = [*numbers(0, 100), record(0, 999_999), *numbers(100, MANY)]
    target = MemoryLog.of(records_at(copied, range(len(copied))), sizes=[100])
    proof = proven(Reads(source, most_reads=60), Reads(target), bounds_of(source, target))
    assert found(proof) == [(DifferenceKind.FOREIGN, 100, 100, 1)]
    assert {each.reason for each in proof.not_compared} == {"KAFKA_TIMEOUT"}
    assert not proof.is_complete


@dataclass(slots=True, kw_only=True)
class CopyMeanwhile:
    """A copy whose transaction ended for the position before it ends for the data."""

    position: int
    ends: list[int]
    """What readers see, each time they ask; the last one stays."""
    written: int
    open_copies: dict[TopicPartition, object] = field(default_factory=dict)

    def copy_of(self, partition: TopicPartition) -> TopicPartition:
        return TARGET

    async def stored_positions(self) -> dict[TopicPartition, int]:
        return {SOURCE: self.position}

    def position_of(self, partition: TopicPartition, positions: Any) -> int | None:
        stored: int = positions[partition]
        return stored

    async def target_end(self, copy: TopicPartition, spec: OffsetSpec = OffsetSpec.LAST_STABLE) -> int:
        if spec is OffsetSpec.LATEST:
            return self.written
        return self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]


def extended(copy: CopyMeanwhile) -> Extended:
    async def ask() -> Extended:
        give_up_at = asyncio.get_running_loop().time() + 30
        return await Waiting(gathered=copy, give_up_at=give_up_at).extend(SOURCE, at=50, limit=50)

    answers: list[Extended] = []

    async def scenario() -> None:
        answers.append(await ask())

    run_in_virtual_time(scenario())
    return answers[0]


def test_a_position_whose_transaction_has_not_ended_on_the_copy_makes_nothing_missing() -> None:
    assert extended(CopyMeanwhile(position=60, ends=[50, 50, 61], written=61)) == Extended(
        target_limit=61, position=60
    )


def test_what_an_open_transaction_hides_is_not_missing() -> None:
    hidden = CopyMeanwhile(position=60, ends=[50], written=61)
    assert extended(hidden).position is None, "until nobody waits any longer"
    hidden.open_copies[SOURCE] = "since the start"
    assert extended(hidden).position is None


def test_what_is_below_a_position_and_not_there_is_missing() -> None:
    lost = CopyMeanwhile(position=60, ends=[50], written=50)
    assert extended(lost) == Extended(target_limit=50, position=60)


async def test_a_copy_that_does_not_grow_is_waited_for_until_the_time_is_over() -> None:
    loop = asyncio.get_running_loop()
    waiting = Waiting(gathered=CopyMeanwhile(position=50, ends=[50], written=50), give_up_at=1_000)
    assert await waiting.extend(SOURCE, at=50, limit=50) == Extended(target_limit=50, position=50)
    assert 1_000 <= loop.time() < 1_001


@dataclass(slots=True)
class Answers:
    """A leader that was elected a moment ago: its log ends earlier for a while."""

    ends: list[int]
    batches: Sequence[Batch]

    async def fetch(self, partition: TopicPartition, offset: int, *, max_bytes: int) -> FetchedBatches:
        end = self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]
        seen = [each for each in self.batches if offset < each.header.next_offset <= end]
        return FetchedBatches(
            batches=tuple(seen), aborted=(), log_start_offset=0, end_offset=end, size_bytes=0
        )


def chunk_at(offset: int, answers: Answers) -> Chunk:
    chunks: list[Chunk] = []

    async def scenario() -> None:
        async with asyncio.TaskGroup() as group:
            log = PartitionLog(
                partition=SOURCE,
                session=DataClientPool("A", {"bootstrap_servers": "nowhere:1"}, timeout_seconds=1.0),
                reader=answers,
                view=View(read_committed=True),
                pace=ReadPace(0),
                patience_seconds=10.0,
                group=group,
            )
            log.is_ahead = False
            chunks.append(await log.read(offset, limit=100))

    run_in_virtual_time(scenario())
    return chunks[0]


BATCHES = [*iter_batches(source_batch(numbers(0, 50)) + source_batch(numbers(50, 100)))]


def test_a_leader_whose_log_ends_earlier_for_a_while_is_waited_for() -> None:
    found_there = chunk_at(50, Answers(ends=[50, 50, 100], batches=BATCHES))
    assert (len(found_there.batches), found_there.next_offset) == (1, 100)


def test_a_log_that_stays_shorter_than_it_was_is_an_error_and_no_loss() -> None:
    with pytest.raises(ExceptionGroup) as failures:
        chunk_at(50, Answers(ends=[50], batches=BATCHES))
    assert failures.group_contains(TransientKafkaError, match="ends at 50")


def test_the_end_of_a_log_that_compaction_emptied_is_passed() -> None:
    assert chunk_at(50, Answers(ends=[100], batches=BATCHES[:1])).next_offset == 100


@pytest.mark.parametrize("begin", ["trimmed", "from", "both"])
def test_repeated_equal_records_with_log_append_time_cause_no_difference(begin: str) -> None:
    """What the range begins with is in the copy long before as well, and nothing tells both apart."""
    many = [record(number, number % 5 if number % 9 == 0 else number) for number in range(900)]
    appended: dict[str, Any] = {"appended_at_ms": NOW_MS + 10**9}
    source = MemoryLog.of(many, sizes=[40])
    kept = {"trimmed": 270, "from": 0, "both": 200}[begin]
    at = [number + number // 50 for number in range(900)]
    target = MemoryLog.of(records_at(many, at)[kept:], start=at[kept], sizes=[33], **appended)
    first: dict[str, Any] = {"source_lost": (), "head_is_free": True}
    for start in range(261, 290, 3):
        changes = {} if begin == "trimmed" else {**first, "source_start": start}
        proof = proven(Reads(source), Reads(target), bounds_of(source, target, **changes))
        assert (found(proof), proof.is_complete) == ([], True)


@pytest.mark.parametrize("trimmed", ["source", "copy"])
@pytest.mark.parametrize("lost", [3, 90])
def test_what_retention_took_of_records_that_are_repeated_is_no_difference(trimmed: str, lost: int) -> None:
    """The first record that is left occurs before it, too, as status reports of one millisecond do."""
    kinds = random.Random(7).choices(range(2), k=200)
    many = [record(number, kind) for number, kind in enumerate(kinds)]
    at = [number + number // 50 for number in range(200)]
    copies = records_at(many, at)
    begins = (lost, 0) if trimmed == "source" else (0, lost)
    source = MemoryLog.of(many[begins[0] :], sizes=[7])
    target = MemoryLog.of(copies[begins[1] :], start=at[begins[1]], sizes=[9])
    proof = proven(Reads(source), Reads(target), bounds_of(source, target))
    assert (found(proof), proof.is_complete, proof.records) == ([], True, 200 - lost)


def test_what_was_copied_twice_at_the_start_is_a_duplicate_also_of_a_log_that_lost_its_tail() -> None:
    copied = [*range(20), *range(100)]
    target = MemoryLog.of(records_at([record(number) for number in copied], range(120)))
    source = MemoryLog.of(numbers(0, 100))
    bounds = bounds_of(source, target, source_lost=(Range(90, 90),))
    assert found(proven(Reads(source), Reads(target), bounds)) == [(DifferenceKind.DUPLICATE, 0, 20, 20)]


def test_what_others_wrote_at_the_start_of_a_copy_is_foreign_also_where_the_source_lost_its_tail() -> None:
    written = [*range(500, 580), *range(100)]
    target = MemoryLog.of(records_at([record(number) for number in written], range(180)))
    source = MemoryLog.of(numbers(0, 100))
    bounds = bounds_of(source, target, source_lost=(Range(90, 90),))
    assert found(proven(Reads(source), Reads(target), bounds)) == [(DifferenceKind.FOREIGN, 0, 0, 80)]
