"""What is said of a partition: lag and state as they are, with any owner; nothing where nothing is known."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from twinlog.errors import TransientKafkaError
from twinlog.model import TopicPartition
from twinlog_source.partitions.events import (
    EndsSeen,
    MovementChecked,
    Reported,
    SetAside,
)
from twinlog_source.partitions.orders import PartitionReport, PartitionState, TaskReport
from twinlog_source.partitions.rows import PartitionRow, StallWatch
from twinlog_source.partitions.standing import (
    END_VALID_SECONDS,
    SILENT_SECONDS,
    TRIES_SECONDS,
    FlowFacts,
    PartitionStanding,
    idle_words,
    standing_of,
)
from twinlog_source.partitions.table import PartitionTable
from twinlog_source.partitions.transitions import reread, take
from unit.source.partitions.standing_facts import FACTS

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)
RUNNING, STALLED = PartitionState.RUNNING, PartitionState.STALLED
WAITING, PAUSED = PartitionState.WAITING, PartitionState.PAUSED
FAULTED, BACKOFF = PartitionState.FAULTED, PartitionState.BACKOFF


def heard(at: float | None) -> Callable[[int], float | None]:
    return lambda _: at


def said(
    state: PartitionState = RUNNING,
    *,
    position: int = 10,
    end: int | None = None,
    reason: str = "",
    message: str = "",
) -> PartitionReport:
    return PartitionReport(
        partition=P,
        position=position,
        source_end=end,
        state=state,
        reason=reason,
        message=message,
    )


def one_row(row: PartitionRow) -> PartitionTable:
    return PartitionTable(rows={P: row})


def hear(table: PartitionTable, report: PartitionReport, at: float) -> None:
    table.apply(Reported(slot=0, report=TaskReport(partitions=(report,)), now_ms=1), at)


def see_end(table: PartitionTable, end: int, at: float) -> None:
    table.apply(EndsSeen(ends={P: end}, asked_at=at), at)


def behind(*, report: PartitionReport | None = None, since: float | None = None) -> PartitionRow:
    """A partition with 40 of 50 offsets to copy."""
    table = one_row(PartitionRow(partition=P, position=10, slot=0))
    if report is not None:
        hear(table, report, 40.0)
    see_end(table, 50, 99.0)
    if since is not None:
        table.apply(MovementChecked(paused=()), since)
    return table.rows[P]


def words(standing: PartitionStanding) -> tuple[PartitionState, str]:
    return standing.state, standing.reason


def test_the_lag_is_known_without_a_task_and_whatever_the_flow_suffers_from() -> None:
    for facts in (
        replace(FACTS, heard_at=heard(None)),
        replace(FACTS, heard_at=heard(None), idle_reason="SPARK_UNAVAILABLE", idle_message="no JVM"),
        replace(FACTS, is_paused=lambda _: True),
    ):
        assert standing_of(behind(), facts).lag_records == 40


def test_what_is_not_known_of_the_lag_is_none_and_never_zero() -> None:
    unread = PartitionRow(partition=P, position=10)
    unplaced = PartitionRow(partition=P)
    see_end(one_row(unplaced), 50, 99.0)
    old = PartitionRow(partition=P, position=10, slot=0)
    see_end(one_row(old), 50, FACTS.now - END_VALID_SECONDS - 1)
    for row, facts in (
        (unread, FACTS),
        (unplaced, FACTS),
        (old, FACTS),
        (behind(), replace(FACTS, positions_known=False)),
    ):
        standing = standing_of(row, facts)
        assert (standing.lag_records, standing.lag_seconds) == (None, None)
    assert old.last_known_lag == 40


def test_a_copy_that_reached_the_end_has_no_lag() -> None:
    row = PartitionRow(partition=P, position=50)
    see_end(one_row(row), 50, 99.0)
    standing = standing_of(row, FACTS)
    assert (standing.lag_records, standing.lag_seconds) == (0, 0.0)


def test_an_end_that_a_task_repeats_does_not_hide_what_the_leader_says() -> None:
    row = PartitionRow(partition=P, position=10)
    table = one_row(row)
    hear(table, said(end=60), 1.0)
    assert (row.end, row.end_at) == (60, 1.0)
    see_end(table, 20, 2.0)
    hear(table, said(end=60), 3.0)
    assert (row.end, row.end_at) == (20, 2.0), "the log lost its tail, and the task has not read since"
    hear(table, said(end=61), 4.0)
    assert (row.end, row.end_at) == (61, 4.0)


def test_an_answer_that_a_task_has_overtaken_takes_nothing_back() -> None:
    row = PartitionRow(partition=P, position=10)
    table = one_row(row)
    hear(table, said(end=60), 5.0)
    see_end(table, 55, 4.0)
    assert row.end == 60


def test_a_tasks_word_counts_while_the_task_is_heard() -> None:
    row = behind(report=said(RUNNING))
    assert words(standing_of(row, FACTS)) == (RUNNING, "")
    gone = replace(FACTS, heard_at=heard(FACTS.now - SILENT_SECONDS - 0.1))
    assert words(standing_of(row, gone)) == (WAITING, "NO_TASK")
    standby = replace(gone, idle_reason="OWNED_ELSEWHERE", idle_message="another process")
    assert words(standing_of(row, standby)) == (WAITING, "OWNED_ELSEWHERE")
    assert words(standing_of(row, replace(gone, is_paused=lambda _: True))) == (PAUSED, "PAUSED_BY_OPERATOR")
    never = replace(FACTS, heard_at=heard(None))
    assert words(standing_of(behind(), never)) == (WAITING, "STARTING")
    in_no_epoch_yet = PartitionRow(partition=P, position=10)
    assert words(standing_of(in_no_epoch_yet, FACTS)) == (WAITING, "STARTING")


def test_a_fault_outlives_its_task() -> None:
    row = behind(report=said(FAULTED, reason="RECORD_TOO_LARGE"))
    gone = replace(FACTS, heard_at=heard(None), is_paused=lambda _: True)
    assert words(standing_of(row, gone)) == (FAULTED, "RECORD_TOO_LARGE")
    set_aside = SetAside(partition=P, reason="NO_POSITION", message="none", retry_at=0.0)
    one_row(row).apply(set_aside, 100.0)
    assert words(standing_of(row, gone)) == (FAULTED, "NO_POSITION")


def test_a_partition_that_should_move_and_does_not_is_stalled_until_it_moves() -> None:
    row = behind(report=said(), since=70.0)
    standing = standing_of(row, FACTS)
    assert (standing.state, standing.stalled_since) == (STALLED, 70.0)
    assert standing_of(row, replace(FACTS, now=99.9)).state == RUNNING
    table = one_row(row)
    hear(table, said(position=11), 99.0)
    table.apply(MovementChecked(paused=()), 100.0)
    assert standing_of(row, FACTS).state == RUNNING


def test_a_fault_of_a_partition_that_another_process_copies_now_is_not_said() -> None:
    """That process tells whether it still has the fault; here it would stay for ever."""
    elsewhere = replace(FACTS, is_owned=False, heard_at=heard(None), idle_reason="OWNED_ELSEWHERE")
    reported = behind(report=said(FAULTED, reason="RECORD_TOO_LARGE"))
    set_aside = behind()
    one_row(set_aside).apply(SetAside(partition=P, reason="NO_POSITION", message="", retry_at=200.0), 50.0)
    for row in (reported, set_aside):
        assert standing_of(row, FACTS).state == FAULTED
        assert words(standing_of(row, elsewhere)) == (WAITING, "OWNED_ELSEWHERE")


@pytest.mark.parametrize("state", [PAUSED, FAULTED])
def test_who_rests_or_is_at_fault_is_not_stalled(state: PartitionState) -> None:
    row = behind(report=said(state, reason="BECAUSE"), since=0.0)
    assert words(standing_of(row, FACTS)) == (state, "BECAUSE")


def test_a_task_that_tries_again_does_not_blame_the_source_meanwhile() -> None:
    reason = "LEADER_UNAVAILABLE"
    row = behind(report=said(BACKOFF, reason=reason), since=0.0)
    tries_at = FACTS.now - 5
    take(row, said(), slot=0, now=tries_at, now_ms=0)
    assert words(standing_of(row, FACTS)) == (STALLED, reason)
    soon = replace(FACTS, now=tries_at + TRIES_SECONDS - 1, heard_at=heard(tries_at + TRIES_SECONDS - 1))
    assert words(standing_of(row, soon)) == (STALLED, reason)
    later = replace(FACTS, now=tries_at + TRIES_SECONDS + 1, heard_at=heard(tries_at + TRIES_SECONDS))
    assert words(standing_of(row, later)) == (STALLED, "FETCH_UNANSWERED")


@pytest.mark.parametrize(
    ("state", "reason", "moved"),
    [(PAUSED, "PAUSED_BY_OPERATOR", 0), (RUNNING, "DELAYED", 0), (BACKOFF, "NO_FREE_CORE", 1)],
)
def test_neither_an_order_that_has_ended_nor_a_try_that_succeeded_is_blamed_for_a_standstill(
    state: PartitionState, reason: str, moved: int
) -> None:
    row = behind(report=said(state, reason=reason), since=0.0)
    take(row, said(position=10 + moved), slot=0, now=FACTS.now - 5, now_ms=0)
    assert words(standing_of(row, FACTS)) == (STALLED, "FETCH_UNANSWERED")


def test_what_a_lost_task_waited_for_is_not_blamed_where_the_log_shows_that_it_went_on() -> None:
    row = behind(report=said(BACKOFF, reason="LEADER_UNAVAILABLE"), since=0.0)
    reread(row, 11, (), wrote_nothing=False)
    take(row, said(position=11), slot=0, now=FACTS.now - 5, now_ms=0)
    assert words(standing_of(row, FACTS)) == (STALLED, "FETCH_UNANSWERED")


def test_a_stalled_partition_says_what_it_waits_for() -> None:
    no_task = replace(FACTS, heard_at=heard(None))
    cases: list[tuple[PartitionRow, FlowFacts, str]] = [
        (behind(since=0.0), no_task, "NO_TASK"),
        (behind(since=0.0), replace(no_task, idle_reason="SPARK_UNAVAILABLE"), "SPARK_UNAVAILABLE"),
        (behind(report=said(reason="TARGET_SLOW"), since=0.0), FACTS, "TARGET_SLOW"),
        (behind(report=said(BACKOFF, reason="KAFKA_TIMEOUT"), since=0.0), FACTS, "KAFKA_TIMEOUT"),
        (behind(report=said(), since=0.0), replace(FACTS, slow_slots=frozenset((0,))), "TARGET_SLOW"),
        (behind(report=said(), since=0.0), replace(FACTS, is_limited=lambda _: True), "THROTTLED"),
        (behind(report=said(), since=0.0), FACTS, "FETCH_UNANSWERED"),
        (behind(report=said(message="with Spark"), since=0.0), FACTS, "SPARK_UNAVAILABLE"),
        (behind(report=said(), since=0.0), replace(FACTS, source_throttled_at=heard(90.0)), "QUOTA"),
        (
            behind(report=said(reason="TARGET_SLOW"), since=0.0),
            replace(FACTS, target_throttled_at=heard(90.0)),
            "QUOTA",
        ),
    ]
    hung = behind(report=said(), since=0.0)
    unanswered = TransientKafkaError("no answer", reason="KAFKA_TIMEOUT")
    one_row(hung).apply(EndsSeen(ends={P: unanswered}, asked_at=99.0), 99.0)
    cases.append((hung, FACTS, "KAFKA_TIMEOUT"))
    for row, facts, reason in cases:
        standing = standing_of(row, facts)
        assert words(standing) == (STALLED, reason)
        assert standing.message.startswith("no progress for 30 s or longer: ")
        assert not standing.message.endswith(": "), reason


def test_a_target_that_is_slow_by_a_quota_is_called_so_before_anything_stalls() -> None:
    row = behind(report=said(reason="TARGET_SLOW", message="the target has acknowledged nothing"))
    assert words(standing_of(row, FACTS)) == (RUNNING, "TARGET_SLOW")
    standing = standing_of(row, replace(FACTS, target_throttled_at=heard(90.0)))
    assert words(standing) == (RUNNING, "QUOTA")
    assert "quota of the target" in standing.message


def test_a_quota_of_the_source_is_told_before_anything_stalls() -> None:
    """Or the heartbeats that it delays would be all that is told for half a minute."""
    throttled = replace(FACTS, source_throttled_at=heard(90.0))
    waits, moves = behind(report=said(), since=96.0), behind(report=said(), since=98.0)
    assert words(standing_of(waits, throttled)) == (RUNNING, "QUOTA")
    assert words(standing_of(waits, FACTS)) == (RUNNING, "")
    assert words(standing_of(moves, throttled)) == (RUNNING, "")


@pytest.mark.parametrize(("was_copied", "which"), [(False, "first"), (True, "next")])
def test_an_idle_flow_names_the_epoch_that_is_made_ready(was_copied: bool, which: str) -> None:
    says = partial(
        idle_words, None, is_copied=False, is_owned=True, has_partitions=True, was_copied=was_copied
    )
    assert says() == ("STARTING", f"the {which} epoch is getting ready")
    assert says(is_copied=True) == ("", "")
    assert says(has_partitions=False)[0] == "NO_TOPICS"
    assert says(is_owned=False) == ("STARTING", "this process is taking over the flow")


def test_a_pause_and_an_empty_log_are_no_stall_and_its_time_begins_afterwards() -> None:
    watch = StallWatch()
    watch.observe(10, must_move=False, now=0.0)
    assert watch.since(30.0, now=100.0) is None
    watch.observe(10, must_move=True, now=100.0)
    watch.observe(10, must_move=True, now=129.0)
    assert watch.since(30.0, now=129.9) is None
    assert watch.since(30.0, now=130.0) == 100.0
    watch.observe(10, must_move=False, now=131.0)
    assert watch.since(30.0, now=200.0) is None
    watch.observe(None, must_move=True, now=200.0)
    watch.observe(5, must_move=True, now=229.0)
    assert watch.since(30.0, now=240.0) is None, "a position that became known is a move"


def test_a_partition_that_keeps_up_has_caught_up_and_one_that_stands_never_does() -> None:
    row = PartitionRow(partition=P, position=10, slot=0, end=25, end_at=99.0, report=said())
    row.lag_time.observe(10, 10, 98.5)
    row.lag_time.observe(10, 25, 99.0)
    assert standing_of(row, FACTS).caught_up_in_seconds == 0.0
    later = replace(FACTS, now=105.0, heard_at=heard(104.0))
    assert standing_of(row, later).caught_up_in_seconds is None, "its pace is not known"
    row.report = said(PAUSED)
    assert standing_of(row, FACTS).caught_up_in_seconds is None
    row.position = 25
    assert standing_of(row, FACTS).caught_up_in_seconds == 0.0
    assert standing_of(row, replace(FACTS, positions_known=False)).caught_up_in_seconds is None


@pytest.mark.parametrize(("reason", "state"), [("COMPARING", WAITING), ("TARGET_OPEN_TRANSACTION", FAULTED)])
def test_a_copy_whose_target_is_being_compared_waits_and_is_no_fault(
    reason: str, state: PartitionState
) -> None:
    row = PartitionRow(partition=P, target_topic="A.t")
    table = one_row(row)
    table.apply(SetAside(partition=P, reason=reason, message="words", retry_at=0.0), 0.0)
    said_of = standing_of(table.rows[P], FACTS)
    assert (said_of.state, said_of.reason, said_of.message) == (state, reason, "words")
