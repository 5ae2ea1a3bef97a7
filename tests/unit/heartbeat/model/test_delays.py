"""What the beats of one flow prove."""

import pytest

from twinlog.model import Flow
from twinlog_heartbeat.model.delays import Blocker, DelayTracker, PathState

A_TO_B = Flow("A", "B")


def tracker() -> DelayTracker:
    return DelayTracker(flow=A_TO_B, started_ms=0, silent_after_ms=5_000)


def test_nothing_is_known_before_the_first_beat() -> None:
    report = tracker().report(1_000)
    assert (report.state, report.reason) == (PathState.UNKNOWN, "STARTING")
    assert (report.last_delay_ms, report.max_delay_ms, report.age_ms) == (None, None, None)


def test_a_beat_that_arrives_gives_the_delay_and_proves_the_path() -> None:
    beats = tracker()
    beats.on_emitted()
    beats.on_observed(emitted_ms=1_000, seen_ms=1_040, own=True)
    report = beats.report(1_500)
    assert (report.state, report.reason, report.message) == (PathState.ALIVE, "", "")
    assert (report.last_delay_ms, report.max_delay_ms, report.age_ms) == (40, 40, 500)
    assert (report.emitted, report.observed) == (1, 1)


def test_the_maximum_covers_the_last_minute_only() -> None:
    beats = tracker()
    beats.on_observed(emitted_ms=0, seen_ms=900, own=True)
    beats.on_observed(emitted_ms=30_000, seen_ms=30_300, own=True)
    beats.on_observed(emitted_ms=31_000, seen_ms=31_050, own=True)
    assert beats.report(31_100).max_delay_ms == 900
    assert beats.report(61_000).max_delay_ms == 300
    assert beats.report(91_040).max_delay_ms == 50
    assert beats.report(200_000).max_delay_ms is None
    assert beats.report(200_000).last_delay_ms == 50


def test_the_age_grows_and_the_path_falls_silent_when_beats_stop_arriving() -> None:
    beats = tracker()
    for second in range(10):
        beats.on_emitted()
        if second < 3:
            beats.on_observed(emitted_ms=second * 1000, seen_ms=second * 1000 + 20, own=True)
    assert beats.report(7_000).state is PathState.ALIVE
    report = beats.report(9_000)
    assert (report.state, report.reason, report.age_ms) == (PathState.SILENT, "HEARTBEAT_MISSING", 7_000)
    assert "none has reached B for 7 s" in report.message
    beats.on_observed(emitted_ms=9_000, seen_ms=9_030, own=True)
    assert beats.report(9_100).state is PathState.ALIVE


def test_a_path_that_never_worked_is_silent_after_the_patience() -> None:
    beats = tracker()
    beats.on_emitted()
    assert beats.report(5_000).state is PathState.UNKNOWN
    assert beats.report(5_001).state is PathState.SILENT


def test_a_source_that_refuses_beats_is_a_reason_and_not_silence() -> None:
    beats = tracker()
    missing = Blocker(reason="TOPIC_UNAUTHORIZED", message="an ACL for the topic is missing")
    beats.on_write_blocker(missing, at_ms=1_000)
    report = beats.report(60_000)
    assert (report.state, report.reason) == (PathState.UNKNOWN, "TOPIC_UNAUTHORIZED")


def test_an_old_error_is_forgotten_once_another_process_writes_the_beats() -> None:
    """This one lost the flow after its last write had failed, so it does not write again."""
    beats = tracker()
    beats.on_emitted()
    beats.on_write_blocker(Blocker(reason="KAFKA_TIMEOUT", message="A did not answer"), at_ms=1_500)
    beats.on_observed(emitted_ms=1_400, seen_ms=1_600, own=True)
    assert beats.report(1_700).reason == "KAFKA_TIMEOUT", "it was on its way before the write failed"
    beats.on_observed(emitted_ms=2_000, seen_ms=2_010, own=True)
    report = beats.report(2_500)
    assert (report.state, report.reason) == (PathState.ALIVE, "")
    report = beats.report(60_000)
    assert (report.state, report.reason) == (PathState.SILENT, "HEARTBEAT_MISSING")


def test_an_error_stands_while_only_beats_of_other_flows_arrive() -> None:
    beats = tracker()
    beats.on_write_blocker(Blocker(reason="TOPIC_UNAUTHORIZED", message="no"), at_ms=1_500)
    beats.on_observed(emitted_ms=2_000, seen_ms=2_010, own=False)
    assert beats.report(60_000).reason == "TOPIC_UNAUTHORIZED"


def test_beats_of_others_prove_the_path_while_our_own_cannot_be_written() -> None:
    beats = tracker()
    beats.on_observed(emitted_ms=100, seen_ms=150, own=False)
    assert beats.report(200).state is PathState.UNKNOWN
    beats.on_write_blocker(Blocker(reason="TOPIC_UNAUTHORIZED", message="no"), at_ms=500)
    beats.on_observed(emitted_ms=1_000, seen_ms=990, own=False)
    report = beats.report(1_500)
    assert (report.state, report.reason, report.last_delay_ms) == (PathState.ALIVE, "TOPIC_UNAUTHORIZED", 0)


def test_a_target_that_cannot_be_read_is_a_reason_and_heals() -> None:
    beats = tracker()
    beats.on_emitted()
    beats.on_watch_blocker(Blocker(reason="KAFKA_UNAVAILABLE", message="no broker can be reached"))
    assert beats.report(60_000).reason == "KAFKA_UNAVAILABLE"
    beats.on_watch_blocker(None)
    assert beats.report(60_000).state is PathState.SILENT


def test_a_copy_that_may_not_be_read_is_a_reason_and_heals() -> None:
    beats = tracker()
    beats.on_emitted()
    beats.on_read_blocker(Blocker(reason="TOPIC_UNAUTHORIZED", message="an ACL for the topic is missing"))
    beats.on_watch_blocker(None)
    report = beats.report(60_000)
    assert (report.state, report.reason) == (PathState.UNKNOWN, "TOPIC_UNAUTHORIZED")
    beats.on_read_blocker(None)
    assert beats.report(60_000).state is PathState.SILENT


def test_a_beat_copied_again_counts_but_does_not_bring_an_old_delay_back() -> None:
    beats = tracker()
    beats.on_observed(emitted_ms=10_000, seen_ms=10_010, own=True)
    beats.on_observed(emitted_ms=2_000, seen_ms=10_020, own=True)
    report = beats.report(10_100)
    assert (report.observed, report.last_delay_ms, report.age_ms) == (2, 10, 100)


def test_a_beat_from_before_the_clock_was_set_back_keeps_no_cut_path_alive() -> None:
    beats = tracker()
    beats.on_emitted()
    beats.on_observed(emitted_ms=1_000_000, seen_ms=1_000_100, own=True, steady_ms=500_000)
    report = beats.report(400_000 + 5_001, steady_ms=500_000 + 5_001)
    assert (report.state, report.reason) == (PathState.SILENT, "HEARTBEAT_MISSING")
    assert report.age_ms == 5_101


@pytest.mark.parametrize("back_ms", [2_000, 600_000])
@pytest.mark.parametrize("delay_ms", [40, 3_000])
def test_delays_are_measured_on_after_the_clock_was_set_back(back_ms: int, delay_ms: int) -> None:
    beats = tracker()
    beats.on_observed(emitted_ms=1_000_000, seen_ms=1_000_000 + delay_ms, own=True, steady_ms=delay_ms)
    for second in range(1, 100):
        now_ms = 1_000_000 + second * 1000 - back_ms
        steady_ms = second * 1000 + delay_ms + 7
        beats.on_observed(emitted_ms=now_ms, seen_ms=now_ms + delay_ms + 7, own=True, steady_ms=steady_ms)
        report = beats.report(now_ms + delay_ms + 7, steady_ms=steady_ms)
        assert (report.state, report.last_delay_ms) == (PathState.ALIVE, delay_ms + 7)
    assert report.max_delay_ms == delay_ms + 7


def test_a_clock_ahead_of_the_writers_makes_no_path_silent() -> None:
    """As on a process on standby: its flow's beats are those of the owner, on another host."""
    beats = tracker()
    for second in range(100):
        beats.on_observed(emitted_ms=second * 1000, seen_ms=second * 1000 + 6_000, own=True)
        assert beats.report(second * 1000 + 6_900).state is PathState.ALIVE
    assert beats.report(99_000 + 6_000 + 5_001).state is PathState.SILENT


def test_a_writer_whose_clock_was_set_back_makes_no_path_silent() -> None:
    """Its delays are not known until its clock comes as far again."""
    beats = tracker()
    beats.on_observed(emitted_ms=600_000, seen_ms=600_040, own=True)
    for second in range(1, 100):
        now_ms = 600_040 + second * 1000
        beats.on_observed(emitted_ms=second * 1000, seen_ms=now_ms, own=True)
        report = beats.report(now_ms + 900)
        assert (report.state, report.last_delay_ms) == (PathState.ALIVE, 40)
