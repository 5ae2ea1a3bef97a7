"""How long an answer is waited for: from whatever happened last on its connection."""

from twinlog.kafka.protocol.reach import LONGEST_THROTTLE_SECONDS, SLOWEST_BYTES_PER_SECOND, Patience

TIMEOUT = 15.0
ENOUGH = int(SLOWEST_BYTES_PER_SECOND * TIMEOUT)


def test_an_answer_is_waited_for_from_when_its_request_was_sent() -> None:
    patience = Patience(TIMEOUT)
    assert patience.left_seconds(103.0, sent_at=100.0, moved_bytes=0) == 12.0
    assert patience.left_seconds(115.0, sent_at=100.0, moved_bytes=ENOUGH - 1) == 0.0


def test_the_time_of_a_queued_request_runs_from_the_answer_before_it() -> None:
    patience = Patience(TIMEOUT)
    patience.answered(110.0, moved_bytes=0, throttle_ms=0)
    assert patience.left_seconds(115.0, sent_at=100.0, moved_bytes=0) == 10.0


def test_the_time_that_a_broker_throttles_is_not_its_time_to_answer() -> None:
    patience = Patience(TIMEOUT)
    patience.answered(100.0, moved_bytes=0, throttle_ms=20_000)
    patience.answered(101.0, moved_bytes=0, throttle_ms=1_000)
    assert patience.throttled_until == 120.0
    assert patience.left_seconds(125.0, sent_at=100.0, moved_bytes=0) == 10.0


def test_a_throttle_has_an_end_whatever_a_broker_says() -> None:
    patience = Patience(TIMEOUT)
    patience.answered(0.0, moved_bytes=0, throttle_ms=86_400_000)
    assert patience.throttled_until == LONGEST_THROTTLE_SECONDS


def test_a_slow_way_is_waited_for_while_bytes_move_and_no_longer() -> None:
    patience = Patience(TIMEOUT)
    assert patience.left_seconds(15.0, sent_at=0.0, moved_bytes=ENOUGH) == TIMEOUT
    assert patience.left_seconds(30.0, sent_at=0.0, moved_bytes=2 * ENOUGH) == TIMEOUT
    assert patience.left_seconds(45.0, sent_at=0.0, moved_bytes=2 * ENOUGH + 100) == 0.0
