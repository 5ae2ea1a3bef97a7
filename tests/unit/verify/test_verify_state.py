"""What is proven stays proven after a kill, for the topics that it was proven of, and for no others."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from twinlog.kafka.ports import TopicDescription
from twinlog.model import Flow
from twinlog.testing.mirror_logs import SOURCE, TARGET, MemoryLog, bounds_of
from twinlog.verify.model import Bounds, Difference, Kind, NotCompared, PartitionProof, Reason, Side
from twinlog_source.verify.gathering import TopicPair
from twinlog_source.verify.request import Instant, VerifyRequest
from twinlog_source.verify.state import ProvenRanges


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
    return {SOURCE.topic: pair}


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., ProvenRanges]]:
    """As the next run opens it."""
    with ExitStack() as stack:

        def open_state(source_id: str = "one", begin: Instant | None = None) -> ProvenRanges:
            request = VerifyRequest(flow=Flow("A", "B"), state_directory=str(tmp_path), begin=begin)
            state = ProvenRanges.open(request, pairs(source_id))
            stack.callback(state.close)
            return state

        yield open_state


def bounds(end: int = 100) -> Bounds:
    log = MemoryLog(start=0, end=end)
    return bounds_of(log, log)


def proof(**changes: object) -> PartitionProof:
    made = PartitionProof(
        source=SOURCE, target=TARGET, source_from=0, source_to=60, target_from=0, target_to=58, records=55
    )
    for name, value in changes.items():
        setattr(made, name, value)
    return made


LAG = NotCompared(side=Side.SOURCE, from_offset=60, to_offset=100, reason=Reason.NOT_COPIED_YET)


Opened = Callable[..., ProvenRanges]


def test_the_next_run_begins_behind_what_is_proven_and_counts_it(opened: Opened) -> None:
    opened().end(proof(not_compared=[LAG]), bounds())
    begun = opened().narrowed(bounds())
    assert (begun.bounds.source_start, begun.bounds.target_start) == (60, 58)
    rest = proof(source_from=60, source_to=100, target_from=58, target_to=98, records=40)
    whole = begun.completed(rest)
    assert (whole.source_from, whole.source_to, whole.records) == (0, 100, 95)


def test_a_partition_with_a_difference_is_not_proven(opened: Opened) -> None:
    missing = Difference(kind=Kind.MISSING, source_offset=3, target_offset=3)
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


def test_a_part_that_is_proven_is_kept_and_one_whose_end_moves_is_not(opened: Opened) -> None:
    state = opened()
    fixed, moving = bounds(), replace(bounds(end=70), source_limit=90)
    for part in (fixed, moving):
        state.keep_part(part, records=7, unopened_records=7, same_offsets=True)
    again = opened()
    found = again.kept_part(fixed)
    assert found is not None
    assert (found.records, found.source_to, found.differences) == (7, 100, [])
    assert again.kept_part(moving) is None
