"""What is proven stays proven after a kill, for the topics that it was proven of, and for no others."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from twinlog.batches import DecodedRecord
from twinlog.comparison.compare import Comparison
from twinlog.comparison.model import (
    Bounds,
    Difference,
    DifferenceKind,
    KnownGap,
    NotCompared,
    NotComparedReason,
    PartitionProof,
    Range,
    Side,
)
from twinlog.comparison.sides import Read
from twinlog.kafka.ports import TopicDescription
from twinlog.model import Flow, Record
from twinlog.testing.fakes.cluster import FakeCluster
from twinlog.testing.mirror_logs import SOURCE, TARGET, MemoryLog, bounds_of, prove
from twinlog_source.verify.gathering.topics import TopicPair
from twinlog_source.verify.request import Instant, VerifyRequest
from twinlog_source.verify.state import _NOTED_AFTER_BYTES, ProvenRanges

ROUTE = SOURCE._replace(topic="orders-2026")


def pairs(source_id: str = "one") -> dict[str, TopicPair]:
    def described(name: str, topic_id: str) -> TopicDescription:
        return TopicDescription(
            name=name, topic_id=topic_id, partition_count=1, replication_factor=1, internal=False
        )

    pair = TopicPair(
        source=described(SOURCE.topic, source_id),
        target=described(TARGET.topic, "copy"),
        source_compacted=False,
        target_compacted=False,
    )
    return {SOURCE.topic: pair, ROUTE.topic: pair}


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., ProvenRanges]]:
    """As the next run opens it."""
    with ExitStack() as stack:

        def open_state(
            source_id: str = "one", begin: Instant | None = None, *, read_committed: bool = True
        ) -> ProvenRanges:
            request = VerifyRequest(flow=Flow("A", "B"), state_directory=str(tmp_path), begin=begin)
            state = ProvenRanges.open(request, pairs(source_id), read_committed=read_committed)
            stack.callback(state.close)
            return state

        yield open_state


def bounds(end: int = 100, **changes: Any) -> Bounds:
    log = MemoryLog(start=0, end=end)
    return bounds_of(log, log, **changes)


def proof(**changes: object) -> PartitionProof:
    made = PartitionProof(
        source=SOURCE, target=TARGET, source_from=0, source_to=60, target_from=0, target_to=58, records=55
    )
    for name, value in changes.items():
        setattr(made, name, value)
    made.continues_at = made.source_to, made.target_to
    return made


LAG = NotCompared(side=Side.SOURCE, from_offset=60, to_offset=100, reason=NotComparedReason.NOT_COPIED_YET)


Opened = Callable[..., ProvenRanges]


def test_the_next_run_begins_behind_what_is_proven_and_counts_it(opened: Opened) -> None:
    opened().end(proof(not_compared=[LAG]), bounds())
    begun = opened().narrowed(bounds())
    assert (begun.bounds.source_start, begun.bounds.target_start) == (60, 58)
    rest = proof(source_from=60, source_to=100, target_from=58, target_to=98, records=40)
    whole = begun.completed(rest)
    assert (whole.source_from, whole.source_to, whole.records) == (0, 100, 95)


def test_a_partition_with_a_difference_is_not_proven(opened: Opened) -> None:
    missing = Difference(kind=DifferenceKind.MISSING, source_offset=3, target_offset=3)
    opened().end(proof(differences=[missing]), bounds())
    assert opened().narrowed(bounds()).bounds == bounds()


def test_a_topic_that_was_created_again_is_not_proven(opened: Opened) -> None:
    opened().end(proof(), bounds())
    assert opened(source_id="another").narrowed(bounds()).bounds == bounds()


def test_a_log_that_ends_before_what_was_proven_is_compared_from_its_start(opened: Opened) -> None:
    opened().end(proof(), bounds())
    assert opened().narrowed(bounds(end=40)).bounds == bounds(end=40)


def test_a_line_that_a_kill_cut_off_says_nothing(opened: Opened, tmp_path: Path) -> None:
    opened().end(proof(), bounds())
    (file,) = tmp_path.iterdir()
    with file.open("a", encoding="utf-8") as stream:
        stream.write('{"topic": "orders", "partition": 0, "sour')
    again = opened()
    assert again.narrowed(bounds()).bounds.source_start == 60
    again.end(proof(source_to=80, target_to=78), bounds())
    assert opened().narrowed(bounds()).bounds.source_start == 80, "what comes after it counts"


def test_a_range_that_somebody_asks_for_is_compared_whatever_is_proven(opened: Opened) -> None:
    opened().end(proof(), bounds())
    state = opened(begin=Instant(offset=10))
    assert state.narrowed(bounds()).bounds == bounds()


def test_lag_that_stands_before_the_end_of_what_was_read_is_not_proven(opened: Opened) -> None:
    """What explains the end of the copy, such as compaction, was found beside what is not copied yet."""
    opened().end(proof(source_to=100, target_to=61, not_compared=[LAG]), bounds())
    assert opened().narrowed(bounds()).bounds == bounds()


def test_what_was_proven_of_committed_records_is_not_of_all_of_them(opened: Opened) -> None:
    opened().end(proof(), bounds())
    assert opened(read_committed=False).narrowed(bounds()).bounds == bounds()
    assert opened().narrowed(bounds()).bounds.source_start == 60


def test_offsets_that_are_promised_since_are_compared_once_more(opened: Opened) -> None:
    opened().end(proof(), bounds())
    promised = bounds(offsets_kept_from=0)
    assert opened().narrowed(promised).bounds == promised
    opened().end(proof(offsets_promised=True), promised)
    assert opened().narrowed(promised).bounds.source_start == 60


@pytest.mark.parametrize(("cut", "begin"), [(40, 0), (60, 60), (70, 60)])
def test_where_the_source_was_cut_off_since_its_offsets_mean_other_records(
    opened: Opened, cut: int, begin: int
) -> None:
    opened().end(proof(), bounds())
    shorter = bounds(source_lost=(Range(cut, cut),))
    begun = opened().narrowed(shorter).bounds
    assert begun.source_start == begin
    assert begun.source_lost == (Range(cut, cut),), "what is behind is still told"
    opened().end(proof(source_to=80, target_to=78), shorter)
    assert opened().narrowed(shorter).bounds.source_start == 80, "proven since"


def test_what_retention_takes_while_it_is_compared_is_not_passed_by_the_next_run(opened: Opened) -> None:
    """Its records are in the copy still, and only this run knows why."""
    records = [DecodedRecord(number, 1_000 + number, b"k", b"%d" % number, ()) for number in range(120_000)]
    source, target = MemoryLog.of(records, sizes=[5_000]), MemoryLog.of(records, sizes=[5_000])
    state = opened()
    begun = state.narrowed(bounds_of(source, target))
    comparison = Comparison(bounds=begun.bounds)
    steps = comparison.compare()
    asked = next(steps)
    while isinstance(asked, Read) and asked.offset < 60_000:
        asked = steps.send((source if asked.side is Side.SOURCE else target).read(asked.offset))
    state.note(comparison, begun, 1)
    proven = opened().narrowed(bounds_of(source, target)).bounds.source_start
    assert 0 < proven <= 60_000
    comparison.source.lost.append(Range(60_000, 115_000))
    comparison.source.seek(115_000)
    state.note(comparison, begun, 1)
    assert opened().narrowed(bounds_of(source, target)).bounds.source_start == proven


@pytest.mark.parametrize("size", [1, 5, 7])
def test_the_next_run_misses_nothing_of_what_came_after_the_goal_was_taken(opened: Opened, size: int) -> None:
    """The ends of the source are taken before those of the copy: records that come between are passed on both
    sides, or on neither."""
    records = [DecodedRecord(number, 1_000 + number, b"k", b"%d" % number, ()) for number in range(60)]
    source, target = MemoryLog.of(records, sizes=[size]), MemoryLog.of(records, sizes=[size])
    taken: dict[str, Any] = {"source_goal": 40, "target_goal": 50, "target_limit": 50}
    opened().end(prove(source, target, **taken), bounds_of(source, target, **taken))
    rest = opened().narrowed(bounds_of(source, target))
    assert rest.bounds.source_start >= 40
    left: dict[str, Any] = {
        "source_start": rest.bounds.source_start,
        "target_start": rest.bounds.target_start,
    }
    whole = rest.completed(prove(source, target, **left))
    assert (whole.differences, whole.not_compared, whole.records) == ([], [], 60)


def test_a_state_that_cannot_be_written_any_more_ends_no_verification(opened: Opened) -> None:
    state = opened()
    assert state.stream is not None
    os.close(state.stream.fileno())
    state.end(proof(), bounds())
    state.end(proof(), bounds())
    assert opened().narrowed(bounds()).bounds == bounds()


def test_where_a_gap_is_passed_nothing_behind_it_is_proven_before_the_end(opened: Opened) -> None:
    """A kill must not make a copy equal of which the ledger knows a gap."""
    records = [DecodedRecord(number, 1_000 + number, b"k", b"%d" % number, ()) for number in range(2_000)]
    source = MemoryLog.of(records, sizes=[100])
    target = MemoryLog.of([*records[:500], *records[1_000:]], sizes=[100])
    gap = KnownGap(from_offset=500, to_offset=1_000, reason="RETENTION")
    proven = noted(opened, source, target, gaps=(gap,))
    assert 0 < proven <= 500
    assert noted(opened, source, target, gaps=(replace(gap, acknowledged=True),)) > 1_000


def test_nothing_behind_a_record_at_another_offset_than_promised_is_proven(opened: Opened) -> None:
    """A distance that ends before a kill would be forgotten."""
    records = [DecodedRecord(number, 1_000 + number, b"k", b"%d" % number, ()) for number in range(2_000)]
    moved = [
        each._replace(offset=each.offset + 1) if 500 <= each.offset < 1_000 else each for each in records
    ]
    source = MemoryLog.of([*records[:999], *records[1_000:]], sizes=[100])
    target = MemoryLog.of([*moved[:999], *moved[1_000:]], sizes=[100])
    assert 0 < noted(opened, source, target, offsets_kept_from=0) <= 500
    assert noted(opened, source, target) > 1_000


def noted(opened: Opened, source: MemoryLog, target: MemoryLog, **taken: Any) -> int:
    """Where the next run begins when this one is killed shortly before its end."""
    state = opened()
    begun = state.narrowed(bounds_of(source, target, **taken))
    comparison = Comparison(bounds=begun.bounds)
    steps = comparison.compare()
    size = 0
    with suppress(StopIteration):
        asked = next(steps)
        while isinstance(asked, Read):
            size += _NOTED_AFTER_BYTES
            state.note(comparison, begun, size)
            asked = steps.send((source if asked.side is Side.SOURCE else target).read(asked.offset))
    return opened().narrowed(bounds_of(source, target, **taken)).bounds.source_start


@pytest.mark.parametrize("to", [30, 31, 50])
def test_a_joined_gap_excuses_no_more_where_a_proof_continues_within_it(opened: Opened, to: int) -> None:
    """What it excused before is counted with what is left: all of it is compared again."""
    records = [DecodedRecord(number, 1_000 + number, b"k", b"%d" % number, ()) for number in range(60)]
    gap = KnownGap(from_offset=10, to_offset=to, reason="RETENTION", acknowledged=True, lost_of_joined=5)
    source = MemoryLog.of(records)
    begun = MemoryLog.of([*records[:12], *records[15:30]])
    first: dict[str, Any] = {"source_goal": 30, "source_limit": 30, "gaps": (gap,), "position": 30}
    opened().end(prove(source, begun, **first), bounds_of(source, begun, **first))
    target = MemoryLog.of([*records[:12], *records[15:30], *records[35:]])
    rest = opened().narrowed(bounds_of(source, target, gaps=(gap,))).bounds
    assert rest.source_start == (30 if to == 30 else 0)


def test_what_was_seen_before_is_said_with_what_was_left(opened: Opened) -> None:
    gone = NotCompared(
        side=Side.TARGET,
        from_offset=0,
        to_offset=7,
        reason=NotComparedReason.SOURCE_RETENTION,
        is_harmless=True,
    )
    opened().end(proof(same_offsets=False, timestamps_compared=False, not_compared=[gone]), bounds())
    rest = proof(source_from=60, source_to=60, target_from=58, target_to=58, records=0)
    whole = opened().narrowed(bounds()).completed(rest)
    assert (whole.same_offsets, whole.timestamps_compared, whole.not_compared) == (False, False, [gone])


async def test_each_route_of_a_log_that_lost_its_tail_is_looked_at_for_itself(
    opened: Opened,
) -> None:
    source = FakeCluster("A")
    source.add_topic(SOURCE.topic)
    logs = {SOURCE: SOURCE, ROUTE: SOURCE}
    append(source, 30)
    state = opened()
    await state.look_at_epochs(source, logs)
    state.end(proof(source=ROUTE, source_to=20), bounds())
    source.elect(SOURCE)
    append(source, 30)
    state = opened()
    await state.look_at_epochs(source, logs)
    state.end(proof(), bounds())
    source.truncate(SOURCE, 40)
    source.elect(SOURCE)
    append(source, 60)
    state = opened()
    await state.look_at_epochs(source, logs)
    assert {each.source_to for each in state.ranges.values()} == {20}


async def test_a_route_that_was_never_compared_has_no_range_to_lose(opened: Opened) -> None:
    source = FakeCluster("A")
    source.add_topic(SOURCE.topic)
    append(source, 60)
    state = opened()
    await state.look_at_epochs(source, {SOURCE: SOURCE})
    state.end(proof(), bounds())
    source.truncate(SOURCE, 40)
    source.elect(SOURCE)
    append(source, 60)
    state = opened()
    await state.look_at_epochs(source, {SOURCE: SOURCE, ROUTE: SOURCE})
    assert state.ranges == {}


def append(cluster: FakeCluster, count: int) -> None:
    for _ in range(count):
        cluster.append(SOURCE, Record(offset=-1, timestamp_ms=1, key=None, value=b"x"))
