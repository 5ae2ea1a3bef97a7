"""Where no beats may be written, the ends of the source's logs tell the delay, and the report says so."""

from twinlog.model import Flow
from twinlog_heartbeat.model.delays import FRESH_MS, Basis, Blocker, DelayTracker, LogEnds, PathState

READ_ONLY = Blocker(reason="TOPIC_UNAUTHORIZED", message="an ACL for the topic is missing")


def tracker() -> DelayTracker:
    found = DelayTracker(flow=Flow("A", "B"), started_ms=0, silent_after_ms=5_000)
    found.on_write_blocker(READ_ONLY, at_ms=0)
    return found


def test_a_copy_that_keeps_up_is_alive_and_as_late_as_its_newest_record_was() -> None:
    beats = tracker()
    assert beats.lacks_beats(60_000)
    assert beats.report(60_000).state is PathState.UNKNOWN
    beats.on_log_ends(LogEnds(read_ms=60_000, waiting_since_ms=None, copied_delay_ms=70))
    report = beats.report(61_000)
    assert (report.state, report.last_delay_ms, report.basis) == (PathState.ALIVE, 70, Basis.LOG_ENDS)
    assert report.reason == "TOPIC_UNAUTHORIZED"
    assert "computed from the ends of A's logs" in report.message
    assert READ_ONLY.message in report.message
    assert (report.max_delay_ms, report.age_ms) == (None, None)


def test_the_delay_grows_while_a_record_waits_and_the_path_falls_silent() -> None:
    beats = tracker()
    beats.on_log_ends(LogEnds(read_ms=60_000, waiting_since_ms=58_000, copied_delay_ms=70))
    report = beats.report(60_000)
    assert (report.state, report.last_delay_ms) == (PathState.ALIVE, 2_000)
    report = beats.report(63_001)
    assert (report.state, report.last_delay_ms, report.basis) == (PathState.SILENT, 5_001, Basis.LOG_ENDS)


def test_what_was_read_long_ago_says_nothing() -> None:
    beats = tracker()
    beats.on_log_ends(LogEnds(read_ms=60_000, waiting_since_ms=None, copied_delay_ms=70))
    assert beats.report(60_000 + FRESH_MS).basis is Basis.LOG_ENDS
    report = beats.report(60_001 + FRESH_MS)
    assert (report.state, report.basis) == (PathState.UNKNOWN, Basis.HEARTBEATS)
    assert report.reason == "TOPIC_UNAUTHORIZED"


def test_a_cluster_that_is_away_is_told_and_no_delay() -> None:
    beats = tracker()
    beats.on_log_ends(LogEnds(read_ms=60_000, waiting_since_ms=None, copied_delay_ms=70))
    report = beats.report(60_000, away=Blocker(reason="KAFKA_TIMEOUT", message="B"))
    assert (report.state, report.reason) == (PathState.UNKNOWN, "KAFKA_TIMEOUT")


def test_beats_are_believed_as_soon_as_there_are_any() -> None:
    beats = tracker()
    beats.on_log_ends(LogEnds(read_ms=60_000, waiting_since_ms=None, copied_delay_ms=70))
    beats.on_observed(emitted_ms=60_000, seen_ms=60_300, own=False)
    report = beats.report(60_400)
    assert (report.last_delay_ms, report.basis) == (300, Basis.HEARTBEATS)
    assert not beats.lacks_beats(60_400)
    beats.on_emitted()
    assert not beats.lacks_beats(99_000)


def test_what_nobody_wrote_since_the_start_has_no_delay_and_is_no_silence() -> None:
    beats = tracker()
    beats.on_log_ends(LogEnds(read_ms=60_000, waiting_since_ms=None, copied_delay_ms=None))
    report = beats.report(60_000)
    assert (report.state, report.last_delay_ms, report.basis) == (PathState.ALIVE, None, Basis.LOG_ENDS)
