"""The preserved copies of a task: what is read, what is set aside and what is stored."""

import asyncio
import math
from typing import cast

import pytest

from twinlog.errors import FatalKafkaError, KafkaError, TransientKafkaError
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.errors import from_code
from twinlog.model import TopicPartition
from twinlog.policy.expected_offsets import MOST_MARKERS
from twinlog.testing.brokers import eventually
from twinlog_source.log.fact_records import parse_control
from twinlog_source.log.facts import CopyFact
from twinlog_source.partitions.orders import PartitionState
from twinlog_source.preserved.append_log import Phase
from twinlog_source.preserved.append_steps import Hole, PreservedReason, ReadEnd, Tail
from twinlog_source.task.foreign_writes import ForeignWrites, RestingCopies
from twinlog_source.task.reading.fetch_schedule import BUFFERED_BYTES
from twinlog_source.task.writing.preserved_copies import DRAIN_SECONDS, ROOM_SECONDS
from unit.source.preserved.preserved_rig import FIRST, SECOND, PreservedRig


def test_a_partition_with_its_share_on_the_way_is_not_read_and_the_others_are() -> None:
    rig = PreservedRig()
    first = rig.assigned(FIRST)
    rig.assigned(SECOND)
    rig.fetched(FIRST, 0, 2, size_bytes=BUFFERED_BYTES)
    assert not rig.copies[FIRST].fetchable(0.0)
    assert rig.copies[SECOND].fetchable(0.0)
    woken = rig.woken
    rig.answered(first, rig.sent(first), 0)
    assert rig.copies[FIRST].fetchable(0.0)
    assert rig.woken == woken + 1


def test_a_partition_that_cannot_be_written_gives_its_room_to_others_that_need_it() -> None:
    rig = PreservedRig()
    away = TransientKafkaError("away", reason="KAFKA_UNAVAILABLE")
    first, second = rig.assigned(FIRST), rig.assigned(SECOND)
    rig.fetched(FIRST, 0, 2)
    sent = rig.sent(first)
    rig.fetched(FIRST, 2, 2)
    rig.failed(first, away)
    assert rig.copies[FIRST].held_bytes == 200, "nobody needs it"
    rig.fetched(SECOND, 0, 2, size_bytes=BUFFERED_BYTES)
    rig.failed(first, away)
    copy, now = rig.copies[FIRST], rig.clock.monotonic()
    assert (copy.held_bytes, copy.fetched) == (100, 2), "what was sent is kept"
    assert not copy.fetchable(now)
    assert copy.fetchable(now + ROOM_SECONDS), "its leader may answer again"
    rig.answered(first, sent, 0)
    rig.answered(second, rig.sent(second), 0)
    assert (copy.committed, rig.shares.held_bytes) == (2, 0)


def test_verifying_the_end_of_one_copy_does_not_delay_others() -> None:
    """What would prove it may be gone from the source, or not be read while the partition is paused."""
    rig = PreservedRig()
    rig.assigned(FIRST, 20, stored=10, filled=(Hole(12, 1), Hole(15, 2)))
    copy = rig.copies[FIRST]
    assert (copy.committed, copy.fetched, copy.fetchable(0.0)) == (12, 12, True)
    assert copy.is_idle, "a loss on the source is judged, an order is carried out"
    assert rig.preserved.writer.is_idle, "a drain does not wait for it"
    assert not rig.preserved.by_source[FIRST].is_at_rest, "its end is not its position yet"
    assert rig.preserved.believe(FIRST)
    assert (copy.committed, copy.fetched, rig.preserved.by_source[FIRST].is_at_rest) == (20, 20, True)
    assert not rig.preserved.believe(FIRST)


def test_what_a_retry_does_not_heal_sets_only_its_partition_aside() -> None:
    rig = PreservedRig()
    first = rig.assigned(FIRST)
    rig.assigned(SECOND)
    rig.fetched(FIRST, 0, 2)
    send = rig.sent(first)
    first.appends.refused(send)
    wait_seconds = rig.failed(first, FatalKafkaError("too large", reason="RECORD_TOO_LARGE"))
    assert wait_seconds is not None
    assert wait_seconds > 0
    copy = rig.copies[FIRST]
    assert (copy.state, copy.reason, copy.committed) == (PartitionState.FAULTED, "RECORD_TOO_LARGE", 0)
    assert rig.copies[SECOND].state is PartitionState.RUNNING


def test_what_a_retry_may_heal_is_counted_and_tried_again_soon() -> None:
    rig = PreservedRig()
    first = rig.assigned(FIRST)
    assert rig.failed(first, TransientKafkaError("away", reason="KAFKA_UNAVAILABLE")) is None
    assert rig.copies[FIRST].state is PartitionState.RUNNING
    assert rig.copies[FIRST].counters.failures_by_reason == {"KAFKA_UNAVAILABLE": 1}


def test_a_copy_that_has_all_has_no_problem_while_it_has_no_leader() -> None:
    """It may have got all since its leader was asked for; nothing would end the problem before the next
    record."""
    rig = PreservedRig()
    away = from_code(ErrorCode.leader_not_available, "write", alias="B")
    first, second = rig.assigned(FIRST), rig.assigned(SECOND, is_end_read=False)
    rig.preserved.writer.leaderless(dict.fromkeys((first.target, second.target), away))
    assert (first.problem, second.problem) == (None, away)
    rig.fetched(FIRST, 0, 2)
    rig.preserved.writer.leaderless({first.target: away})
    assert first.problem is away


@pytest.mark.parametrize(("required", "count"), [(False, MOST_MARKERS), (True, MOST_MARKERS + 1)])
def test_a_hole_is_filled_that_nobody_sees_or_that_must_be(required: bool, count: int) -> None:
    rig = PreservedRig()
    first = rig.assigned(FIRST, required=required)
    rig.shown_nothing(FIRST, count)
    assert first.appends.next() == Hole(0, count)


@pytest.mark.parametrize("required", [False, True])
def test_only_a_copy_that_must_keep_the_offsets_fills_a_range_that_consumers_would_see(
    required: bool,
) -> None:
    rig = PreservedRig()
    rig.assigned(FIRST, required=required, has_former_task=True)
    assert rig.preserved.fills(rig.preserved.by_source[FIRST], 5, 5 + MOST_MARKERS)
    assert rig.preserved.fills(rig.preserved.by_source[FIRST], 5, 6 + MOST_MARKERS) == required


def test_a_task_that_has_sent_nothing_late_is_quiet_also_where_its_copy_is_not_at_rest() -> None:
    rig = PreservedRig()
    first = rig.assigned(FIRST, 5)
    taken = rig.preserved.by_source[FIRST]
    rig.preserved.doubt(rig.preserved.by_source[FIRST])
    assert (taken.is_at_rest, taken.is_quiet) == (False, True)
    first.appends.next()
    rig.end_read(first, 5)
    rig.fetched(FIRST, 5, 2)
    send = rig.sent(first)
    assert not taken.is_quiet, "it is unanswered"
    rig.answered(first, send, 6)
    assert (first.appends.phase, taken.is_at_rest, taken.is_quiet) == (Phase.FOREIGN, False, True)
    first.lost_at = 1.0
    assert not taken.is_quiet, "a batch whose answer was lost may still come"
    first.lost_at, first.filling_since = -math.inf, 1.0
    assert not taken.is_quiet, "so may a marker"


def test_nothing_is_read_once_somebody_else_wrote_to_the_copy() -> None:
    rig = PreservedRig()
    first = rig.assigned(FIRST)
    rig.fetched(FIRST, 0, 2)
    rig.answered(first, rig.sent(first), 1)
    assert not rig.copies[FIRST].fetchable(0.0)
    assert rig.copies[FIRST].committed == 0


def test_positions_are_stored_only_when_they_moved() -> None:
    rig = PreservedRig()
    first = rig.assigned(FIRST)
    rig.assigned(SECOND)
    rig.preserved.store_positions()
    assert rig.stored == []
    rig.fetched(FIRST, 0, 2)
    rig.answered(first, rig.sent(first), 0)
    rig.preserved.store_positions()
    rig.preserved.store_positions()
    assert rig.stored == [(FIRST, [])]


async def test_a_copy_at_rest_that_ends_farther_than_it_was_written_is_looked_at() -> None:
    rig = PreservedRig()
    first = rig.assigned(FIRST, 5)
    assert rig.preserved.resting_end(FIRST) == 5
    rig.preserved.doubt(rig.preserved.by_source[FIRST])
    assert rig.preserved.resting_end(FIRST) is None, "nothing is known until it is read"
    assert first.appends.next() == ReadEnd(5)
    first.appends.end_read(Tail(7, 5, True, foreign_from=5))
    assert first.appends.phase is Phase.FOREIGN


async def test_a_copy_at_rest_that_lost_its_tail_is_read_again() -> None:
    rig = PreservedRig()
    first = rig.assigned(FIRST, 5)
    copy, target = rig.copies[FIRST], first.target

    async def ends(_wanted: object) -> dict[TopicPartition, int | KafkaError]:
        return {target: 3}

    resting = RestingCopies(
        by_target={target: copy},
        ends=ends,
        foreign_writes=cast("ForeignWrites", None),
        preserved=rig.preserved,
    )
    await resting.look(asyncio.Event())
    assert first.appends.next() == ReadEnd(5)
    rig.end_read(first, 3)
    assert (copy.committed, copy.fetched, copy.fetchable(0.0)) == (3, 3, True)
    assert copy.counters.failures_by_reason == {"TARGET_LOST_TAIL": 1}


async def test_a_copy_that_is_written_is_not_doubted() -> None:
    rig = PreservedRig()
    first = rig.assigned(FIRST, 5)
    rig.fetched(FIRST, 5, 2)
    assert rig.preserved.resting_end(FIRST) is None
    rig.preserved.doubt(rig.preserved.by_source[FIRST])
    assert first.appends.phase is Phase.SURE


async def test_a_task_that_ends_judges_first_what_lies_in_the_wrong_place() -> None:
    """The end of the log says nothing of it to the next one."""
    rig = PreservedRig()
    first = rig.assigned(FIRST, 5)
    rig.fetched(FIRST, 5, 2)
    rig.answered(first, rig.sent(first), 6)
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(rig.preserved.judge.run(stop), name="judge")
        await rig.preserved.drain()
        stop.set()
    assert rig.copies[FIRST].needs_translation
    assert len(rig.facts()) == 1


async def test_a_copy_is_judged_whose_batches_behind_a_misplaced_one_get_no_answer() -> None:
    """The last of them leaves it at rest."""
    rig = PreservedRig()
    first = rig.assigned(FIRST)
    sends = []
    for number in range(3):
        rig.fetched(FIRST, 2 * number, 2)
        first.appends.pack_below_bytes = 0  # each batch goes by itself
        sends.append(rig.sent(first))
    rig.answered(first, sends[0], 2)
    assert first.appends.phase is Phase.FOREIGN
    for send in sends[1:]:
        first.appends.refused(send)
        rig.preserved.writer.back_off([first], TransientKafkaError("closed", reason="KAFKA_UNAVAILABLE"))
    assert first.target in rig.preserved.judge.waiting


async def test_the_end_of_a_task_does_not_wait_for_a_leader_that_is_away() -> None:
    """The next task judges what lies in the wrong place."""
    rig = PreservedRig(found=TransientKafkaError("away", reason="KAFKA_UNAVAILABLE"))
    first = rig.assigned(FIRST, 5)
    rig.fetched(FIRST, 5, 2)
    rig.answered(first, rig.sent(first), 6)
    stop = asyncio.Event()
    async with asyncio.timeout(DRAIN_SECONDS / 2), asyncio.TaskGroup() as group:
        group.create_task(rig.preserved.judge.run(stop), name="judge")
        await rig.preserved.drain()
        stop.set()
    assert not rig.copies[FIRST].needs_translation


def test_the_reader_is_woken_when_the_read_offset_changes_or_a_retry_is_due() -> None:
    """While every partition is asked for it looks at its partitions every few seconds only."""
    rig = PreservedRig()
    first, second = rig.assigned(FIRST, 5), rig.assigned(SECOND)
    woken = rig.woken
    rig.preserved.doubt(rig.preserved.by_source[FIRST])
    assert first.appends.next() == ReadEnd(5)
    rig.end_read(first, 3)
    assert rig.copies[FIRST].fetched == 3
    assert rig.woken > woken
    woken = rig.woken
    rig.failed(second, FatalKafkaError("too large", reason="RECORD_TOO_LARGE"))
    assert rig.woken > woken


async def test_what_is_found_once_the_task_is_over_is_left_to_the_next() -> None:
    """It would be told and be in no log. The end of a task waits for it, but not for long."""
    rig = PreservedRig()
    first = rig.assigned(FIRST, 5)
    rig.fetched(FIRST, 5, 2)
    rig.answered(first, rig.sent(first), 6)
    asyncio.get_running_loop().call_later(1.0, rig.clock.advance, DRAIN_SECONDS)
    await rig.preserved.drain()
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(rig.preserved.judge.run(stop), name="judge")
        await eventually(lambda: not rig.preserved.judge.waiting)
        stop.set()
    assert not rig.copies[FIRST].needs_translation
    assert rig.copies[FIRST].committed == 5
    assert rig.facts() == []


def test_a_copy_that_must_keep_the_offsets_does_not_give_them_up_for_their_cost() -> None:
    rig = PreservedRig()
    first = rig.assigned(FIRST, required=True)
    for number in range(200):
        first.hole_cost.filled(number / 4 - 50, number / 4 - 49.76)
    rig.changed(first)
    assert rig.preserved.by_source[FIRST].giving_up is None


def test_what_is_left_out_is_told_with_all_that_is_known_of_the_copy() -> None:
    rig = PreservedRig()
    rig.assigned(FIRST, 5)
    record = rig.preserved.positions.fact_of(rig.preserved.by_source[FIRST], skip_to=9)
    parsed = parse_control("A", record.key, record.value)
    assert parsed is not None
    assert parsed.fact == CopyFact(
        partition=FIRST, preserved=True, since=3, reason="", target_topic_id="id", skip_from=5, skip_to=9
    )


def test_a_proof_that_begins_below_the_position_is_no_loss() -> None:
    rig = PreservedRig()
    rig.assigned(FIRST, 20, stored=15, filled=(Hole(12, 1),))
    copy = rig.copies[FIRST]
    assert copy.committed == 12
    assert copy.counters.failures_by_reason == {}


async def test_the_end_of_a_task_waits_for_no_hole_that_is_not_begun() -> None:
    """The filler was busy with the holes of other partitions: the next task fills this one."""
    rig = PreservedRig()
    first = rig.assigned(FIRST)
    rig.shown_nothing(FIRST, 5)
    fill = first.appends.next()
    assert isinstance(fill, Hole)
    rig.preserved.writer.holes.add(first, fill)
    await rig.preserved.drain()
    assert first.appends.is_idle
    assert rig.copies[FIRST].committed == 0


async def test_a_hole_that_consumers_would_see_ends_a_copy_also_behind_a_comparison() -> None:
    """One fetch has both: what proves the end of the copy, and the hole."""
    rig = PreservedRig()
    first = rig.assigned(FIRST, 13, stored=10, filled=(Hole(12, 1),))
    assert first.appends.is_proving
    rig.fetched_all(FIRST, ((13, 2), (515, 2)))
    rig.fetched_all(FIRST, ((13, 2), (515, 2)))  # From the end of the copy on.
    assert first.appends.next() is None
    giving_up = rig.preserved.by_source[FIRST].giving_up
    assert giving_up is not None
    assert giving_up[0] == PreservedReason.HOLE_TOO_LONG
