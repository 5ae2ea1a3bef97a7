"""The preserved copies of a task: what is read, what is set aside, what is stored and what is given up."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from twinlog.api.common.v1 import types_pb2
from twinlog.api.source.v1 import worker_service_pb2 as pb
from twinlog.batches import NewRecord, OutgoingBatch, Prepared, build_batch
from twinlog.batches.outgoing import OffsetRun
from twinlog.errors import FatalKafkaError, KafkaError, TransientKafkaError
from twinlog.kafka.raw import ProducerIdentity, ProducerSettings
from twinlog.model import TopicPartition
from twinlog.testing.brokers import eventually
from twinlog.testing.fakes.clock import FakeClock
from twinlog_source.log.fact_records import parse_control
from twinlog_source.log.facts import CopyFact, Fact
from twinlog_source.partitions import reports
from twinlog_source.preserved.append_log import Fill, Hole, Phase, ReadEnd, Send, Tail
from twinlog_source.preserved.fill_limits import MOST_MARKERS
from twinlog_source.preserved.filler import Filler
from twinlog_source.preserved.own_batches import ForeignWrite
from twinlog_source.preserved.writer import Changed, Failed, PreservedPartition, PreservedWriter
from twinlog_source.task.partition import PartitionCopy, State
from twinlog_source.task.preserved_copies import (
    BUFFERED_BYTES,
    LEAST_SHARE_BYTES,
    PreservedCopies,
    share_bytes,
)
from twinlog_source.task.source_reader import PreparedChunk
from twinlog_source.task.syncs import OffsetSyncs, paced_syncs

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


def _batch(first: int, count: int) -> OutgoingBatch:
    batch = build_batch([NewRecord(None, b"x", 0)] * count)
    return batch._replace(runs=(OffsetRun(first, count),), next_source_offset=first + count)


@dataclass(eq=False)
class Bench:
    """The writer is not run: the test gives the answers of the target."""

    clock: FakeClock = field(default_factory=FakeClock)
    stored: list[tuple[TopicPartition, list[NewRecord]]] = field(default_factory=list)
    on_log: bool = True
    woken: int = 0
    found: ForeignWrite = field(default_factory=lambda: ForeignWrite(7, 0, 0))
    told: list[tuple[TopicPartition, reports.ForeignWrite]] = field(default_factory=list)
    """Foreign writes."""
    copies: dict[TopicPartition, PartitionCopy] = field(default_factory=dict)

    def __post_init__(self) -> None:
        nothing: Any = None
        self.preserved = PreservedCopies(
            source_alias="A",
            make_writer=self.make_writer,
            foreign_write=self.foreign_write,
            tell_foreign=lambda partition, write: self.told.append((partition, write)),
            delete_before=self.delete_before,
            store_position=self.store_position,
            is_stored=lambda _: self.on_log,
            wake_reader=self.wake_reader,
            syncs=OffsetSyncs(
                topic="",
                session=nothing,
                settings=nothing,
                paced=paced_syncs(100, flush_seconds=60),
                clock=self.clock,
            ),
            clock=self.clock,
            flush_seconds=60.0,
            fill_after_seconds=10.0,
        )

    def make_writer(self, changed: Changed, failed: Failed) -> PreservedWriter:
        nothing: Any = None
        self.changed, self.failed = changed, failed
        return PreservedWriter(
            session=nothing,
            settings=ProducerSettings(),
            identity=ProducerIdentity(1, 0),
            tails=nothing,
            filler=Filler(nothing, "fill", ProducerSettings()),
            clock=self.clock,
            changed=changed,
            failed=failed,
            may_write=lambda: True,
        )

    async def foreign_write(
        self, partition: TopicPartition, foreign_at: int, lost_since: int | None
    ) -> ForeignWrite:
        return self.found

    async def delete_before(
        self, before: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int | KafkaError]:
        raise AssertionError

    def store_position(self, partition: TopicPartition, records: Sequence[NewRecord]) -> None:
        self.stored.append((partition, list(records)))

    def facts(self) -> list[Fact | None]:
        """What was given away to be stored beside positions."""
        parsed = [parse_control("A", each.key, each.value) for _, records in self.stored for each in records]
        return [each.fact for each in parsed if each is not None]

    def wake_reader(self) -> None:
        self.woken += 1

    def assigned(
        self,
        partition: TopicPartition,
        end: int = 0,
        *,
        required: bool = False,
        stored: int | None = None,
        filled: tuple[Hole, ...] = (),
        end_reason: str = "",
        has_former_task: bool = False,
    ) -> PreservedPartition:
        """A copy whose end is known; `stored` is its position on the log, None = the end."""
        position = end if stored is None else stored
        copy = PartitionCopy(partition=partition, target_topic="t", committed=position, random=lambda: 1.0)
        self.copies[partition] = copy
        told = pb.PreservedCopy(since=3, required=required, end_reason=end_reason)
        if has_former_task:
            told.former_task_ago.FromSeconds(0)
        self.preserved.assign(
            pb.Assignment(
                partition=types_pb2.TopicPartition(topic="t", partition=partition.partition),
                target_topic="t",
                position=position,
                position_stored=True,
                preserved=told,
                target_topic_id="id",
            ),
            copy,
        )
        at_target = self.preserved.by_source[partition].at_target
        assert isinstance(at_target.appends.next(), ReadEnd)
        at_target.appends.end_read(Tail(end, 0, True, filled=filled))
        self.changed(at_target)
        return at_target

    def fetched(self, partition: TopicPartition, first: int, count: int, *, size_bytes: int = 100) -> None:
        copy = self.copies[partition]
        prepared = Prepared(batches=(_batch(first, count),), next_offset=first + count)
        copy.fetched = first + count
        self.preserved.offer(
            PreparedChunk(copy=copy, generation=copy.generation, prepared=prepared, fetched_bytes=size_bytes)
        )

    def shown_nothing(self, partition: TopicPartition, until: int) -> None:
        """The source shows nothing up to an offset."""
        copy = self.copies[partition]
        prepared = Prepared(batches=(), next_offset=until)
        copy.fetched = until
        self.preserved.offer(
            PreparedChunk(copy=copy, generation=copy.generation, prepared=prepared, fetched_bytes=1)
        )

    def sent(self, at_target: PreservedPartition) -> Send[OutgoingBatch]:
        send = at_target.appends.next()
        assert isinstance(send, Send)
        return send

    def answered(self, at_target: PreservedPartition, send: Send[OutgoingBatch], base: int) -> None:
        at_target.appends.answered(send, base)
        self.changed(at_target)


def test_a_partition_with_its_share_on_the_way_is_not_read_and_the_others_are() -> None:
    bench = Bench()
    first = bench.assigned(FIRST)
    bench.assigned(SECOND)
    bench.fetched(FIRST, 0, 2, size_bytes=BUFFERED_BYTES)
    assert not bench.copies[FIRST].fetchable(0.0)
    assert bench.copies[SECOND].fetchable(0.0)
    woken = bench.woken
    bench.answered(first, bench.sent(first), 0)
    assert bench.copies[FIRST].fetchable(0.0)
    assert bench.woken == woken + 1


def test_a_copy_that_is_read_again_only_to_prove_its_end_holds_nobody_up() -> None:
    """What would prove it may be gone from the source, or not be read while the partition is paused."""
    bench = Bench()
    bench.assigned(FIRST, 20, stored=10, filled=(Hole(12, 1), Hole(15, 2)))
    copy = bench.copies[FIRST]
    assert (copy.committed, copy.fetched, copy.fetchable(0.0)) == (12, 12, True)
    assert copy.is_idle, "a loss on the source is judged, an order is carried out"
    assert bench.preserved.writer.is_idle, "a drain does not wait for it"
    assert not bench.preserved.is_at_rest(FIRST), "its end is not its position yet"
    assert bench.preserved.believe(FIRST)
    assert (copy.committed, copy.fetched, bench.preserved.is_at_rest(FIRST)) == (20, 20, True)
    assert not bench.preserved.believe(FIRST)


@pytest.mark.parametrize("active", [0, 1, 8, 10_000])
def test_every_partition_has_room_for_a_fetch(active: int) -> None:
    assert LEAST_SHARE_BYTES <= share_bytes(active) <= BUFFERED_BYTES


def test_what_a_retry_does_not_heal_sets_only_its_partition_aside() -> None:
    bench = Bench()
    first = bench.assigned(FIRST)
    bench.assigned(SECOND)
    bench.fetched(FIRST, 0, 2)
    send = bench.sent(first)
    first.appends.refused(send)
    wait_seconds = bench.failed(first, FatalKafkaError("too large", reason="RECORD_TOO_LARGE"))
    assert wait_seconds is not None
    assert wait_seconds > 0
    copy = bench.copies[FIRST]
    assert (copy.state, copy.reason, copy.committed) == (State.FAULTED, "RECORD_TOO_LARGE", 0)
    assert bench.copies[SECOND].state is State.RUNNING


def test_what_a_retry_may_heal_is_counted_and_tried_again_soon() -> None:
    bench = Bench()
    first = bench.assigned(FIRST)
    assert bench.failed(first, TransientKafkaError("away", reason="KAFKA_UNAVAILABLE")) is None
    assert bench.copies[FIRST].state is State.RUNNING
    assert bench.copies[FIRST].counters.setbacks == {"KAFKA_UNAVAILABLE": 1}


def test_a_copy_with_too_many_holes_is_given_up_once_it_is_at_rest() -> None:
    bench = Bench()
    first = bench.assigned(FIRST)
    bench.fetched(FIRST, 0, 2)
    send = bench.sent(first)
    for number in range(200):
        first.hole_cost.filled(number / 4 - 50, number / 4 - 49.76)
    bench.changed(first)
    copy = bench.copies[FIRST]
    assert not copy.needs_translation
    assert not copy.fetchable(0.0)
    bench.answered(first, send, 0)
    assert (copy.needs_translation, copy.reason, copy.committed) == (True, "HOLES_TOO_FREQUENT", 2)
    assert first.target not in bench.preserved.writer.partitions


def test_a_hole_that_consumers_would_see_ends_the_copy_before_it() -> None:
    bench = Bench()
    first = bench.assigned(FIRST)
    bench.fetched(FIRST, 0, 2)
    send = bench.sent(first)
    bench.shown_nothing(FIRST, 2 + MOST_MARKERS)
    bench.shown_nothing(FIRST, 2 + MOST_MARKERS + 1)
    copy = bench.copies[FIRST]
    assert not copy.needs_translation, "what was sent is not answered"
    assert not copy.fetchable(0.0)
    bench.answered(first, send, 0)
    assert (copy.needs_translation, copy.reason, copy.committed) == (True, "HOLE_TOO_LONG", 2)


@pytest.mark.parametrize(("required", "count"), [(False, MOST_MARKERS), (True, MOST_MARKERS + 1)])
def test_a_hole_is_filled_that_nobody_sees_or_that_must_be(required: bool, count: int) -> None:
    bench = Bench()
    first = bench.assigned(FIRST, required=required)
    bench.shown_nothing(FIRST, count)
    assert first.appends.next() == Fill(0, count)


@pytest.mark.parametrize("required", [False, True])
def test_only_a_copy_that_must_keep_the_offsets_fills_a_range_that_consumers_would_see(
    required: bool,
) -> None:
    bench = Bench()
    bench.assigned(FIRST, required=required, has_former_task=True)
    assert bench.preserved.fills(FIRST, 5, 5 + MOST_MARKERS)
    assert bench.preserved.fills(FIRST, 5, 6 + MOST_MARKERS) == required
    assert bench.preserved.seconds_before_alone(FIRST) == bench.preserved.fill_after_seconds
    bench.clock.advance(bench.preserved.fill_after_seconds)
    assert bench.preserved.seconds_before_alone(FIRST) == 0
    bench.assigned(SECOND, required=required)
    assert bench.preserved.seconds_before_alone(SECOND) == 0, "there is no task before"


def test_a_copy_that_shall_end_ends_where_all_of_it_is_compared_with_the_source() -> None:
    """Also before it is filled on, and a marker where the source has a record is no end of it."""
    bench = Bench()
    plain = bench.assigned(FIRST, 9, end_reason="OFFSETS_CONFIGURED")
    assert bench.copies[FIRST].needs_translation
    (ended,) = [each for each in bench.facts() if isinstance(each, CopyFact)]
    assert (ended.preserved, ended.since, ended.reason) == (False, 9, "OFFSETS_CONFIGURED")
    assert plain.appends.next() is None

    filled = Bench()
    at_target = filled.assigned(FIRST, 9, stored=7, filled=(Hole(7, 2),), end_reason="OFFSETS_CONFIGURED")
    assert not filled.copies[FIRST].needs_translation
    assert filled.copies[FIRST].fetchable(0.0), "it is read again to prove its end"
    filled.fetched(FIRST, 7, 3)
    assert at_target.appends.phase is Phase.FOREIGN
    assert at_target.appends.foreign_at == 7
    assert not filled.facts()


def test_nothing_is_read_once_somebody_else_wrote_to_the_copy() -> None:
    bench = Bench()
    first = bench.assigned(FIRST)
    bench.fetched(FIRST, 0, 2)
    bench.answered(first, bench.sent(first), 1)
    assert not bench.copies[FIRST].fetchable(0.0)
    assert bench.copies[FIRST].committed == 0


def test_positions_are_stored_only_when_they_moved() -> None:
    bench = Bench()
    first = bench.assigned(FIRST)
    bench.assigned(SECOND)
    bench.preserved.store_positions()
    assert bench.stored == []
    bench.fetched(FIRST, 0, 2)
    bench.answered(first, bench.sent(first), 0)
    bench.preserved.store_positions()
    bench.preserved.store_positions()
    assert bench.stored == [(FIRST, [])]


def test_that_a_copy_ends_is_stored_with_its_position() -> None:
    """A task that knew the position alone would continue at the end of the copy's log."""
    bench = Bench()
    bench.assigned(FIRST, 5)
    bench.preserved.end_at(FIRST, 4, until=3, reason="SOURCE_TRUNCATED", message="shorter")
    assert [partition for partition, _ in bench.stored] == [FIRST]
    assert bench.facts() == [
        CopyFact(partition=FIRST, preserved=False, since=3, reason="SOURCE_TRUNCATED", target_topic_id="id")
    ]
    assert bench.copies[FIRST].committed == 4
    # Not once more, without saying so.
    bench.preserved.store_positions()
    assert len(bench.stored) == 1


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (ForeignWrite(99, 5, 2), "FOREIGN_WRITE"),
        (ForeignWrite(-1, 5, 2, is_filler=True), "FOREIGN_WRITE"),
        (ForeignWrite(99, 5, 2, is_filler=True), "MARKER_REPEATED"),
    ],
)
async def test_a_copy_that_others_wrote_to_ends_at_the_first_of_their_records(
    found: ForeignWrite, reason: str
) -> None:
    bench = Bench()
    first = bench.assigned(FIRST, 5)
    bench.fetched(FIRST, 5, 2)
    bench.answered(first, bench.sent(first), 6)
    write = reports.ForeignWrite(
        from_offset=5, to_offset=6, records=1, producer_id=99, producer_epoch=0, written_at_ms=7
    )
    bench.found = replace(found, writes=(write,), end=8)
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(bench.preserved._care(stop), name="care")
        await eventually(lambda: bench.copies[FIRST].needs_translation)
        stop.set()
    (fact,) = bench.facts()
    assert isinstance(fact, CopyFact)
    assert (fact.preserved, fact.since, fact.reason) == (False, 5, reason)
    assert bench.copies[FIRST].committed == 7, "what is ours behind it is not copied twice"
    assert bench.told == [(FIRST, write)], "who wrote what"
    assert bench.copies[FIRST].target_end == 8, "nobody tells it once more"


async def test_a_copy_at_rest_that_ends_farther_than_it_was_written_is_looked_at() -> None:
    bench = Bench()
    first = bench.assigned(FIRST, 5)
    assert bench.preserved.resting_end(FIRST) == 5
    bench.preserved.doubt(FIRST)
    assert bench.preserved.resting_end(FIRST) is None, "nothing is known until it is read"
    assert first.appends.next() == ReadEnd(5)
    first.appends.end_read(Tail(7, 5, True, foreign_from=5))
    assert first.appends.phase is Phase.FOREIGN


async def test_a_copy_that_is_written_is_not_doubted() -> None:
    bench = Bench()
    first = bench.assigned(FIRST, 5)
    bench.fetched(FIRST, 5, 2)
    assert bench.preserved.resting_end(FIRST) is None
    bench.preserved.doubt(FIRST)
    assert first.appends.phase is Phase.SURE


async def test_what_is_found_once_the_task_is_over_is_left_to_the_next() -> None:
    """It would be told and be in no log."""
    bench = Bench()
    first = bench.assigned(FIRST, 5)
    bench.fetched(FIRST, 5, 2)
    bench.answered(first, bench.sent(first), 6)
    await bench.preserved.drain()
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(bench.preserved._care(stop), name="care")
        await eventually(lambda: not bench.preserved._to_judge)
        stop.set()
    assert not bench.copies[FIRST].needs_translation
    assert bench.copies[FIRST].committed == 5
    assert bench.facts() == []


def test_a_copy_that_must_keep_the_offsets_does_not_give_them_up_for_their_cost() -> None:
    bench = Bench()
    first = bench.assigned(FIRST, required=True)
    for number in range(200):
        first.hole_cost.filled(number / 4 - 50, number / 4 - 49.76)
    bench.changed(first)
    assert bench.preserved.by_source[FIRST].giving_up is None


def test_what_is_left_out_is_told_with_all_that_is_known_of_the_copy() -> None:
    bench = Bench()
    bench.assigned(FIRST, 5)
    record = bench.preserved.fact_of(FIRST, skip_to=9)
    parsed = parse_control("A", record.key, record.value)
    assert parsed is not None
    assert parsed.fact == CopyFact(
        partition=FIRST, preserved=True, since=3, reason="", target_topic_id="id", skip_from=5, skip_to=9
    )


def refuse_to_fill(bench: Bench, at_target: PreservedPartition, *, end: int) -> None:
    """Its hole cannot be filled; the transaction left the copy with this end."""
    bench.failed(at_target, FatalKafkaError("refused", reason="FILL_REFUSED"))
    at_target.appends.filled()
    bench.changed(at_target)
    assert isinstance(at_target.appends.next(), ReadEnd)
    at_target.appends.end_read(Tail(end, 0, True))
    bench.changed(at_target)


def test_a_copy_whose_holes_cannot_be_filled_ends_within_the_hole() -> None:
    bench = Bench()
    first = bench.assigned(FIRST)
    bench.shown_nothing(FIRST, 9)
    copy = bench.copies[FIRST]
    assert first.appends.next() == Fill(0, 9)
    refuse_to_fill(bench, first, end=1)
    assert (copy.needs_translation, copy.reason, copy.committed) == (True, "FILL_REFUSED", 1)
    assert len(bench.facts()) == 1


def test_a_copy_whose_beginning_cannot_be_filled_ends_where_it_would_begin() -> None:
    bench = Bench()
    copy = PartitionCopy(partition=FIRST, target_topic="t", committed=700, random=lambda: 1.0)
    bench.copies[FIRST] = copy
    bench.preserved.assign(
        pb.Assignment(
            partition=types_pb2.TopicPartition(topic="t", partition=0),
            target_topic="t",
            position=700,
            preserved=pb.PreservedCopy(since=700, skip_to=700),
        ),
        copy,
    )
    first = bench.preserved.by_source[FIRST].at_target
    first.appends.next()
    first.appends.end_read(Tail(0, None, False))
    bench.changed(first)
    assert first.appends.next() == Fill(0, 700)
    refuse_to_fill(bench, first, end=1)
    assert (copy.needs_translation, copy.committed) == (True, 700)


def test_a_copy_that_must_keep_the_offsets_waits_until_its_holes_can_be_filled() -> None:
    bench = Bench()
    first = bench.assigned(FIRST, required=True)
    assert bench.failed(first, FatalKafkaError("refused", reason="FILL_REFUSED"))
    assert bench.preserved.by_source[FIRST].giving_up is None
    assert bench.copies[FIRST].state is State.FAULTED


def test_a_proof_that_begins_below_the_position_is_no_loss() -> None:
    bench = Bench()
    bench.assigned(FIRST, 20, stored=15, filled=(Hole(12, 1),))
    copy = bench.copies[FIRST]
    assert copy.committed == 12
    assert copy.counters.setbacks == {}


async def test_a_copy_that_shall_end_ends_once_what_it_waited_to_fill_is_compared() -> None:
    """Its beginning was filled by the task before, and that is not on the log yet."""
    bench = Bench(on_log=False)
    copy = PartitionCopy(partition=FIRST, target_topic="t", committed=7, random=lambda: 1.0)
    bench.copies[FIRST] = copy
    bench.preserved.assign(
        pb.Assignment(
            partition=types_pb2.TopicPartition(topic="t", partition=0),
            target_topic="t",
            position=7,
            preserved=pb.PreservedCopy(since=7, skip_to=7, end_reason="OFFSETS_CONFIGURED"),
        ),
        copy,
    )
    first = bench.preserved.by_source[FIRST].at_target
    first.appends.next()
    first.appends.end_read(Tail(7, 0, True, filled=(Hole(0, 7),)))
    bench.changed(first)
    assert bench.preserved.by_source[FIRST].waits_to_fill
    assert not copy.needs_translation
    bench.on_log = True
    await eventually(lambda: copy.needs_translation)
