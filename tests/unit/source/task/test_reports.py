"""What a task tells of its partitions, and how soon it says that something is in the way."""

from twinlog.api.source.v1 import source_service_pb2 as source_pb
from twinlog.api.source.v1 import worker_service_pb2 as pb
from twinlog.errors import KafkaError, TransientKafkaError
from twinlog_source.preserved.append_log import AppendLog
from twinlog_source.preserved.writer import PreservedPartition
from twinlog_source.reasons import PartitionReason
from twinlog_source.task.preserved_copy import PreservedCopy
from twinlog_source.task.reports import SLOW_SECONDS, Reporter
from unit.source.task.test_target_writer import BAD, GOOD, Bench


def reporter(bench: Bench, problem: KafkaError | None = None) -> Reporter:
    return Reporter(
        copies=bench.copies,
        target_writer=bench.target_writer,
        syncs=bench.target_writer.syncs,
        source_problem=lambda: problem,
        source_throttled=lambda: False,
        target_throttled=lambda: False,
        clock=bench.clock,
    )


def told(reports: pb.PartitionReports) -> dict[str, tuple[str, str]]:
    """State and reason by topic."""
    return {
        each.partition.topic: (
            source_pb.PartitionState.Name(each.state).removeprefix("PARTITION_STATE_"),
            each.reason,
        )
        for each in reports.partitions
    }


def test_a_target_that_acknowledges_nothing_is_named_before_the_delivery_time_is_over() -> None:
    bench = Bench()
    reports = reporter(bench)
    reports.report()
    bench.copies[GOOD].fetched = 10
    assert told(reports.report()) == {}
    bench.clock.advance(SLOW_SECONDS)
    assert told(reports.report()) == {"good": ("RUNNING", PartitionReason.TARGET_SLOW)}
    bench.copies[GOOD].commit(10)
    assert told(reports.report()) == {"good": ("RUNNING", "")}


def test_a_slow_target_that_goes_on_is_not_named() -> None:
    bench = Bench()
    reports = reporter(bench)
    copy = bench.copies[GOOD]
    for second in range(1, 20):
        copy.fetched = second + 1
        copy.commit(second)
        bench.clock.advance(1)
        assert ("RUNNING", PartitionReason.TARGET_SLOW) not in told(reports.report()).values()


def test_a_cluster_that_is_away_sets_all_running_partitions_back_in_words() -> None:
    bench = Bench()
    away = TransientKafkaError("no broker answers", reason="KAFKA_UNAVAILABLE")
    bench.copies[BAD].pause(paused=True)
    assert told(reporter(bench, away).report()) == {
        "good": ("BACKOFF", "KAFKA_UNAVAILABLE"),
        "bad": ("PAUSED", "PAUSED_BY_OPERATOR"),
    }


def test_failures_are_counted_by_reason_from_all_who_meet_them() -> None:
    bench = Bench()
    for reason in ("LEADER_MOVED", "LEADER_MOVED", "RECORD_TOO_LARGE"):
        bench.copies[GOOD].fail(reason=reason, message="", retriable=True, now=0.0)
    bench.source_reader.failures["KAFKA_UNAVAILABLE"] = 3
    bench.target_writer.failures["KAFKA_UNAVAILABLE"] = 4
    assert dict(reporter(bench).report().failures) == {
        "LEADER_MOVED": 2,
        "RECORD_TOO_LARGE": 1,
        "KAFKA_UNAVAILABLE": 7,
    }


def test_only_what_changed_is_told_and_distributions_once() -> None:
    bench = Bench()
    reports = reporter(bench)
    assert len(reports.report().partitions) == 2
    assert not reports.report().partitions
    bench.copies[GOOD].counters.latency.add(0.5, 7)
    bench.copies[GOOD].counters.records += 7
    (report,) = reports.report().partitions
    assert sum(bucket.records for bucket in report.latency.buckets) == 7
    assert not report.HasField("record_age")
    (report, _) = reports.report(everything=True).partitions
    assert not report.HasField("latency")


def test_the_end_of_a_preserved_copy_is_told_once_it_is_on_the_log() -> None:
    """Its driver puts nothing about it on the log, and hands the partition out by what it hears."""
    bench = Bench()
    copy = bench.copies[GOOD]
    preserved = PreservedCopy(
        copy=copy,
        at_target=PreservedPartition(target=GOOD, appends=AppendLog.starting_at(0, max_in_flight_bytes=1)),
        skip_from=4,
        skip_to=9,
        target_topic_id="id",
        may_fill_at=0.0,
        alone_at=0.0,
        settle=lambda *_: None,
        is_stored=lambda: True,
        fill_later=lambda _: None,
    )
    reports = reporter(bench)
    reports.preserved = {GOOD: preserved}
    preserved.give_up(7, until=5, reason="FOREIGN_WRITE", message="who")
    bench.target_writer.store_soon(GOOD)
    (before,) = [each for each in reports.report().partitions if each.partition.topic == GOOD.topic]
    assert not before.HasField("preserved")
    assert not before.needs_translation
    bench.target_writer._unstored.clear()
    (after,) = [each for each in reports.report().partitions if each.partition.topic == GOOD.topic]
    assert (after.preserved.skip_from, after.preserved.skip_to) == (4, 9)
    assert (after.needs_translation, after.preserved_until, after.position) == (True, 5, 7)
