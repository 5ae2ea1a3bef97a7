"""What a task tells of its partitions, and how soon it says that something is in the way."""

from collections.abc import Callable

import pytest

from twinlog.errors import KafkaError, TransientKafkaError
from twinlog_source.partitions.orders import SkippedRange, TaskReport
from twinlog_source.preserved.append_log import AppendLog, Phase
from twinlog_source.reasons import PartitionReason
from twinlog_source.records.changing import AtSpark
from twinlog_source.task.stream.reports import EVERYTHING_SECONDS, SLOW_SECONDS, Reporter
from twinlog_source.task.writing.preserved_copy import PreservedCopy
from unit.source.task.writing.writer_rig import BAD, GOOD, WriterRig


def reporter(rig: WriterRig, problem: KafkaError | None = None) -> Reporter:
    return Reporter(
        copies=rig.copies,
        target_writer=rig.target_writer,
        syncs=rig.target_writer.syncs,
        source_problem=lambda: problem,
        source_throttled=lambda: False,
        target_throttled=lambda: False,
        clock=rig.clock,
    )


def told(reports: TaskReport) -> dict[str, tuple[str, str]]:
    """State and reason by topic."""
    return {each.partition.topic: (str(each.state), each.reason) for each in reports.partitions}


def test_a_target_that_acknowledges_nothing_is_named_before_the_delivery_time_is_over() -> None:
    rig = WriterRig()
    reports = reporter(rig)
    reports.report()
    rig.copies[GOOD].fetched = 10
    assert told(reports.report()) == {}
    rig.clock.advance(SLOW_SECONDS)
    assert told(reports.report()) == {"good": ("RUNNING", PartitionReason.TARGET_SLOW)}
    rig.copies[GOOD].commit(10)
    assert told(reports.report()) == {"good": ("RUNNING", "")}


def test_a_slow_target_that_goes_on_is_not_named() -> None:
    rig = WriterRig()
    reports = reporter(rig)
    copy = rig.copies[GOOD]
    for second in range(1, 20):
        copy.fetched = second + 1
        copy.commit(second)
        rig.clock.advance(1)
        assert ("RUNNING", PartitionReason.TARGET_SLOW) not in told(reports.report()).values()


def test_a_partition_whose_records_spark_has_says_so_until_they_are_back() -> None:
    rig = WriterRig()
    reports, at_spark = reporter(rig), AtSpark(since=rig.clock.monotonic())
    reports.report()
    reports.at_spark = {GOOD: at_spark}
    assert told(reports.report()) == {}
    rig.clock.advance(SLOW_SECONDS)
    (waiting,) = reports.report().partitions
    assert (str(waiting.state), waiting.reason) == ("RUNNING", "")
    assert "Spark" in waiting.message
    at_spark.problem = TransientKafkaError("no core", reason="NO_FREE_CORE")
    assert told(reports.report()) == {"good": ("BACKOFF", "NO_FREE_CORE")}
    reports.at_spark = {}
    assert [each.message for each in reports.report().partitions] == [""]


def test_a_cluster_that_is_away_sets_all_running_partitions_back_in_words() -> None:
    rig = WriterRig()
    away = TransientKafkaError("no broker answers", reason="KAFKA_UNAVAILABLE")
    rig.copies[BAD].pause(paused=True)
    assert told(reporter(rig, away).report()) == {
        "good": ("BACKOFF", "KAFKA_UNAVAILABLE"),
        "bad": ("PAUSED", "PAUSED_BY_OPERATOR"),
    }


def test_failures_are_counted_by_reason_from_all_who_meet_them() -> None:
    rig = WriterRig()
    for reason in ("LEADER_MOVED", "LEADER_MOVED", "RECORD_TOO_LARGE"):
        rig.copies[GOOD].fail(reason=reason, message="", retriable=True, now=0.0)
    rig.source_reader.failures["KAFKA_UNAVAILABLE"] = 3
    rig.target_writer.failures["KAFKA_UNAVAILABLE"] = 4
    assert dict(reporter(rig).report().counters.failures) == {
        "LEADER_MOVED": 2,
        "RECORD_TOO_LARGE": 1,
        "KAFKA_UNAVAILABLE": 7,
    }


def test_only_what_changed_is_told_and_distributions_once() -> None:
    rig = WriterRig()
    reports = reporter(rig)
    assert len(reports.report().partitions) == 2
    assert not reports.report().partitions
    rig.copies[GOOD].counters.latency.add(0.5, 7)
    rig.copies[GOOD].counters.records += 7
    (report,) = reports.report().partitions
    assert report.latency is not None
    assert report.latency.records == 7
    assert report.record_age is None
    (report, _) = reports.report(everything=True).partitions
    assert report.latency is None


def test_everything_is_told_again_after_a_while() -> None:
    rig = WriterRig()
    reports = reporter(rig)
    reports.report()
    rig.clock.advance(EVERYTHING_SECONDS - 0.1)
    assert not reports.report().partitions
    rig.clock.advance(0.1)
    assert len(reports.report().partitions) == 2


def a_preserved_copy(rig: WriterRig) -> PreservedCopy:
    return PreservedCopy(
        copy=rig.copies[GOOD],
        appends=AppendLog.starting_at(0, max_in_flight_bytes=1),
        skip_from=4,
        skip_to=9,
        topic_id="id",
        may_fill_at=0.0,
        alone_at=0.0,
        settle=lambda *_: None,
        is_stored=lambda: True,
        fill_later=lambda _: None,
    )


def _its_end_is_read(taken: PreservedCopy) -> None:
    taken.is_end_known = False


def _others_wrote(taken: PreservedCopy) -> None:
    taken.appends.phase = Phase.FOREIGN


def _a_former_task_may_fill(taken: PreservedCopy) -> None:
    taken.waits_to_fill, taken.copy.rounds = True, 1


def _it_is_given_up(taken: PreservedCopy) -> None:
    taken.giving_up = ("BOTH_WAYS", "who")


@pytest.mark.parametrize(
    "begins", [_its_end_is_read, _others_wrote, _a_former_task_may_fill, _it_is_given_up]
)
def test_a_copy_that_waits_until_a_former_task_cannot_write_says_so(
    begins: Callable[[PreservedCopy], None],
) -> None:
    """Nothing is fetched meanwhile, and nothing is to be acknowledged: neither cluster is slow."""
    rig = WriterRig()
    preserved, reports = a_preserved_copy(rig), reporter(rig)
    preserved.is_end_known, preserved.appends.phase = True, Phase.SURE
    reports.preserved = {GOOD: preserved}

    def said() -> list[str]:
        return [each.reason for each in reports.report().partitions if each.partition == GOOD]

    begins(preserved)
    assert said() == [""]
    rig.clock.advance(SLOW_SECONDS)
    assert said() == ["COMPARING"]
    preserved.is_end_known, preserved.appends.phase = True, Phase.SURE
    preserved.waits_to_fill, preserved.copy.rounds, preserved.giving_up = False, 0, None
    assert said() == [""]


def test_the_end_of_a_preserved_copy_is_told_once_it_is_on_the_log() -> None:
    """Its driver puts nothing about it on the log, and hands the partition out by what it hears."""
    rig = WriterRig()
    preserved, reports = a_preserved_copy(rig), reporter(rig)
    reports.preserved = {GOOD: preserved}
    preserved.end(7, 5, ("FOREIGN_WRITE", "who"))
    rig.target_writer.store_soon(GOOD)
    (before,) = [each for each in reports.report().partitions if each.partition.topic == GOOD.topic]
    assert before.skipped is None
    assert not before.needs_translation
    rig.target_writer.positions.unstored.clear()
    (after,) = [each for each in reports.report().partitions if each.partition.topic == GOOD.topic]
    assert after.skipped == SkippedRange(first=4, end=9)
    assert (after.needs_translation, after.preserved_until, after.position) == (True, 5, 7)
