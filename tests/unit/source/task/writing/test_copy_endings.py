"""Preserved copies that cannot keep the source's offsets: where each ends, and when."""

import asyncio
from dataclasses import replace

import pytest

from twinlog.errors import FatalKafkaError
from twinlog.policy.expected_offsets import MOST_MARKERS
from twinlog.testing.brokers import eventually
from twinlog_source.log.facts import CopyFact
from twinlog_source.partitions import orders
from twinlog_source.partitions.orders import PartitionState, PreservedTerms, TaskAssignment
from twinlog_source.preserved.append_steps import Hole, ReadEnd, Tail
from twinlog_source.preserved.own_batches import FirstForeign
from twinlog_source.task.partition import PartitionCopy
from twinlog_source.task.writing.preserved_copy import PreservedCopy
from unit.source.preserved.preserved_rig import FIRST, PreservedRig


def test_a_copy_with_too_many_holes_is_given_up_once_it_is_at_rest() -> None:
    rig = PreservedRig()
    first = rig.assigned(FIRST)
    rig.fetched(FIRST, 0, 2)
    send = rig.sent(first)
    for number in range(200):
        first.hole_cost.filled(number / 4 - 50, number / 4 - 49.76)
    rig.changed(first)
    copy = rig.copies[FIRST]
    assert not copy.needs_translation
    assert not copy.fetchable(0.0)
    rig.answered(first, send, 0)
    assert not copy.needs_translation, "the end of the copy is read first"
    assert isinstance(first.appends.next(), ReadEnd)
    rig.end_read(first, 2)
    assert (copy.needs_translation, copy.reason, copy.committed) == (True, "HOLES_TOO_FREQUENT", 2)
    assert first.target not in rig.preserved.writer.partitions


def test_a_hole_that_consumers_would_see_ends_the_copy_before_it() -> None:
    rig = PreservedRig()
    first = rig.assigned(FIRST)
    rig.fetched(FIRST, 0, 2)
    send = rig.sent(first)
    rig.shown_nothing(FIRST, 2 + MOST_MARKERS)
    rig.shown_nothing(FIRST, 2 + MOST_MARKERS + 1)
    copy = rig.copies[FIRST]
    assert not copy.needs_translation, "what was sent is not answered"
    assert not copy.fetchable(0.0)
    rig.answered(first, send, 0)
    assert not copy.needs_translation, "the end of the copy is read first"
    assert isinstance(first.appends.next(), ReadEnd)
    rig.end_read(first, 2)
    assert (copy.needs_translation, copy.reason, copy.committed) == (True, "HOLE_TOO_LONG", 2)


def test_records_of_the_other_side_end_a_copy_also_while_its_end_is_compared() -> None:
    """They are on the target already, so they prove its end as holes do."""
    rig = PreservedRig()
    rig.assigned(FIRST, 9, stored=7, filled=(Hole(7, 2),))
    copy = rig.copies[FIRST]
    rig.shown_nothing(FIRST, 12, echo_records=5)
    assert (copy.fetchable(0.0), copy.fetched) == (True, 9), "what lies behind the end is read again"
    rig.shown_nothing(FIRST, 12, echo_records=3)
    assert (copy.needs_translation, copy.reason, copy.committed) == (True, "BOTH_WAYS", 9)


async def test_a_copy_ends_only_once_nothing_late_can_lengthen_it() -> None:
    """What a killed task had on its way would be copied again behind the end of the copy."""
    rig = PreservedRig()
    first = rig.assigned(FIRST, 9, end_reason="OFFSETS_CONFIGURED", has_former_task=True)
    assert not rig.copies[FIRST].needs_translation
    assert not rig.copies[FIRST].fetchable(0.0), "it is written no further"
    rig.clock.advance(rig.preserved.fill_after_seconds)
    rig.preserved.doubt(rig.preserved.by_source[FIRST])  # as the timer does then
    assert first.appends.next() == ReadEnd(9)
    first.appends.end_read(Tail(12, 5, knows_writer=True))
    rig.changed(first)
    assert (rig.copies[FIRST].needs_translation, rig.copies[FIRST].committed) == (True, 12)


async def test_foreign_writes_are_judged_after_late_own_batches_can_no_longer_arrive() -> None:
    rig = PreservedRig(found=FirstForeign(99, 5, 1))
    first = rig.assigned(FIRST, 5, has_former_task=True)
    rig.fetched(FIRST, 5, 2)
    rig.answered(first, rig.sent(first), 6)
    judge = rig.preserved.judge
    await judge.look_at(rig.preserved.by_source[FIRST])
    assert not rig.copies[FIRST].needs_translation
    assert not judge.is_about_to_judge, "the end of the task does not wait for it"
    rig.clock.advance(rig.preserved.fill_after_seconds)
    first.lost_at = rig.clock.monotonic()
    await judge.look_at(rig.preserved.by_source[FIRST])
    assert not rig.copies[FIRST].needs_translation, "an answer was lost"
    rig.clock.advance(rig.preserved.writer.settings.request_timeout_seconds)
    await judge.look_at(rig.preserved.by_source[FIRST])
    assert (rig.copies[FIRST].needs_translation, rig.copies[FIRST].committed) == (True, 6)


async def test_records_of_others_in_a_recreated_topic_do_not_end_the_copy_of_the_former_one() -> None:
    """The driver decides about the new topic, with the position of the former."""
    rig = PreservedRig(found=FirstForeign(99, 0, 0))
    first = rig.assigned(FIRST, 5)
    rig.topic_id = "another"
    rig.preserved.doubt(rig.preserved.by_source[FIRST])
    first.appends.next()
    first.appends.end_read(Tail(25, 0, False, foreign_from=0))
    rig.changed(first)
    judge = rig.preserved.judge
    await judge.look_at(rig.preserved.by_source[FIRST])
    assert (rig.copies[FIRST].needs_translation, rig.copies[FIRST].committed) == (False, 5)
    assert first.problem is not None
    assert first.problem.reason == "TARGET_RECREATED"
    assert not judge.is_about_to_judge, "the end of the task does not wait for it"


def test_that_a_copy_ends_is_stored_with_its_position() -> None:
    """A task that knew the position alone would continue at the end of the copy's log."""
    rig = PreservedRig()
    rig.assigned(FIRST, 5)
    rig.preserved.end(rig.preserved.by_source[FIRST], 4, 3, ("SOURCE_TRUNCATED", "shorter"))
    assert [partition for partition, _ in rig.stored] == [FIRST]
    assert rig.facts() == [
        CopyFact(partition=FIRST, preserved=False, since=3, reason="SOURCE_TRUNCATED", target_topic_id="id")
    ]
    assert rig.copies[FIRST].committed == 4
    # Not once more, without saying so.
    rig.preserved.store_positions()
    assert len(rig.stored) == 1


async def test_the_end_of_the_task_leaves_the_position_of_an_ended_copy() -> None:
    """The next task would not copy what the source wrote in place of its lost tail."""
    rig = PreservedRig()
    rig.assigned(FIRST, 5)
    rig.preserved.end(rig.preserved.by_source[FIRST], 4, 4, ("SOURCE_TRUNCATED", "shorter"))
    await rig.preserved.drain()
    assert rig.copies[FIRST].committed == 4


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (FirstForeign(99, 5, 2), "FOREIGN_WRITE"),
        (FirstForeign(-1, 5, 2, is_filler=True), "FOREIGN_WRITE"),
        (FirstForeign(99, 5, 2, is_filler=True), "MARKER_REPEATED"),
    ],
)
async def test_a_copy_that_others_wrote_to_ends_at_the_first_of_their_records(
    found: FirstForeign, reason: str
) -> None:
    rig = PreservedRig()
    first = rig.assigned(FIRST, 5)
    rig.fetched(FIRST, 5, 2)
    rig.answered(first, rig.sent(first), 6)
    write = orders.ForeignWrite(
        from_offset=5, to_offset=6, records=1, producer_id=99, producer_epoch=0, written_at_ms=7
    )
    rig.found = replace(found, writes=(write,), end=8)
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(rig.preserved.judge.run(stop), name="judge")
        await eventually(lambda: rig.copies[FIRST].needs_translation)
        stop.set()
    (fact,) = rig.facts()
    assert isinstance(fact, CopyFact)
    assert (fact.preserved, fact.since, fact.reason) == (False, 5, reason)
    assert rig.copies[FIRST].committed == 7, "what is ours behind it is not copied twice"
    assert rig.told == [(FIRST, write)], "who wrote what"
    assert rig.copies[FIRST].target_end == 8, "nobody tells it once more"


def refuse_to_fill(rig: PreservedRig, at_target: PreservedCopy, *, end: int) -> None:
    """Its hole cannot be filled; the transaction left the copy with this end."""
    rig.failed(at_target, FatalKafkaError("refused", reason="FILL_REFUSED"))
    at_target.appends.filled()
    rig.changed(at_target)
    assert isinstance(at_target.appends.next(), ReadEnd)
    at_target.appends.end_read(Tail(end, 0, True))
    rig.changed(at_target)


def test_a_copy_whose_holes_cannot_be_filled_ends_within_the_hole() -> None:
    rig = PreservedRig()
    first = rig.assigned(FIRST)
    rig.shown_nothing(FIRST, 9)
    copy = rig.copies[FIRST]
    assert first.appends.next() == Hole(0, 9)
    refuse_to_fill(rig, first, end=1)
    assert (copy.needs_translation, copy.reason, copy.committed) == (True, "FILL_REFUSED", 1)
    assert len(rig.facts()) == 1


def test_a_copy_whose_beginning_cannot_be_filled_ends_where_it_would_begin() -> None:
    rig = PreservedRig()
    copy = PartitionCopy(partition=FIRST, target_topic="t", committed=700, random=lambda: 1.0)
    rig.copies[FIRST] = copy
    rig.preserved.assign(
        TaskAssignment(
            partition=FIRST,
            target_topic="t",
            position=700,
            preserved=PreservedTerms(since=700, skip_to=700),
        ),
        copy,
    )
    first = rig.preserved.by_source[FIRST]
    first.appends.next()
    first.appends.end_read(Tail(0, None, False))
    rig.changed(first)
    assert first.appends.next() == Hole(0, 700)
    refuse_to_fill(rig, first, end=1)
    assert (copy.needs_translation, copy.committed) == (True, 700)
    (fact,) = rig.facts()
    assert isinstance(fact, CopyFact)
    assert fact.since == 1, "behind that the next records lie at other offsets"


def test_a_copy_that_must_keep_the_offsets_waits_until_its_holes_can_be_filled() -> None:
    rig = PreservedRig()
    first = rig.assigned(FIRST, required=True)
    assert rig.failed(first, FatalKafkaError("refused", reason="FILL_REFUSED"))
    assert rig.preserved.by_source[FIRST].giving_up is None
    assert rig.copies[FIRST].state is PartitionState.FAULTED


async def test_a_copy_that_shall_end_ends_once_what_it_waited_to_fill_is_compared() -> None:
    """Its beginning was filled by the task before, and that is not on the log yet."""
    rig = PreservedRig(on_log=False)
    copy = PartitionCopy(partition=FIRST, target_topic="t", committed=7, random=lambda: 1.0)
    rig.copies[FIRST] = copy
    rig.preserved.assign(
        TaskAssignment(
            partition=FIRST,
            target_topic="t",
            position=7,
            preserved=PreservedTerms(since=7, skip_to=7, end_reason="OFFSETS_CONFIGURED"),
        ),
        copy,
    )
    first = rig.preserved.by_source[FIRST]
    first.appends.next()
    first.appends.end_read(Tail(7, 0, True, filled=(Hole(0, 7),)))
    rig.changed(first)
    assert rig.preserved.by_source[FIRST].waits_to_fill
    assert not copy.needs_translation
    rig.on_log = True
    await eventually(lambda: copy.needs_translation)
