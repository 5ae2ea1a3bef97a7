"""Which children of `twinlog run` are started, started again, and ended."""

import signal
import subprocess
import sys

import pytest

from twinlog.backoff import Backoff, Jitter
from twinlog.supervisor.supervisor import PROBE, ChildEnd, Supervision

_KILLED = 128 + signal.SIGKILL
_BY_SIGTERM = 128 + signal.SIGTERM


def _supervision(*names: str) -> Supervision:
    def backoff() -> Backoff:
        return Backoff(initial_seconds=1, max_seconds=4, random=lambda: 1.0, jitter=Jitter.NONE)

    supervision = Supervision(names=names or ("one", "two"), new_backoff=backoff, grace_seconds=10)
    assert supervision.to_start(0) == [*supervision.names, PROBE]
    return supervision


def _ended(supervision: Supervision, name: str, exit_code: int, now: float) -> ChildEnd:
    end = supervision.ended(name, exit_code, now)
    assert end is not None
    return end


def test_a_child_that_dies_is_started_again_after_growing_waits_and_the_others_stay() -> None:
    supervision = _supervision()
    now, events = 0.5, []
    for wait_seconds in (1, 2, 4, 4):
        events.append(_ended(supervision, "one", 1, now).event)
        assert supervision.running == ["two", PROBE]
        assert supervision.wait_seconds(now) == wait_seconds
        assert supervision.to_start(now + wait_seconds - 0.1) == []
        now += wait_seconds
        assert supervision.to_start(now) == ["one"]
    assert events == ["service_ended", "service_ended", "service_keeps_crashing", "service_keeps_crashing"]


def test_a_child_that_ran_for_long_starts_with_a_fresh_backoff() -> None:
    supervision = _supervision()
    for now in (1, 5, 10):
        supervision.ended("one", _KILLED, now)
        supervision.to_start(now + 4)
    end = _ended(supervision, "one", _KILLED, 14 + 60)
    assert (end.values["crashes_in_a_row"], end.values["restart_in_seconds"]) == (1, 1)
    assert "memory" in end.values["cause"]


def test_a_refused_configuration_ends_the_run_only_before_all_have_served() -> None:
    supervision = _supervision()
    assert _ended(supervision, "one", 2, 1).event == "service_refused_to_start"
    assert supervision.signals(1) == [("two", signal.SIGTERM), (PROBE, signal.SIGTERM)]
    supervision.ended(PROBE, _BY_SIGTERM, 1)
    supervision.ended("two", 0, 2)
    assert (supervision.is_over, supervision.exit_code) == (True, 2)

    supervision = _supervision()
    assert supervision.ended(PROBE, 0, 1) is None
    assert supervision.has_served
    assert _ended(supervision, "one", 2, 1).event == "service_ended"
    assert not supervision.is_stopping


def test_a_probe_that_fails_is_started_again_and_one_that_has_seen_all_is_not() -> None:
    supervision = _supervision()
    supervision.ended(PROBE, 1, 0)
    assert not supervision.has_served
    assert supervision.to_start(1) == [PROBE]
    supervision.ended(PROBE, 0, 2)
    assert supervision.to_start(1e9) == []
    assert supervision.wait_seconds(3) is None


def test_a_stop_asks_each_once_and_kills_what_still_runs() -> None:
    supervision = _supervision()
    supervision.stop(5)
    assert [number for _, number in supervision.signals(5)] == [signal.SIGTERM] * 3
    assert supervision.signals(6) == []
    assert supervision.wait_seconds(6) == 9
    for name in ("one", PROBE):
        supervision.ended(name, _BY_SIGTERM, 6)
    assert (supervision.is_over, supervision.exit_code) == (False, 0)
    assert supervision.signals(15) == [("two", signal.SIGKILL)]
    assert _ended(supervision, "two", _KILLED, 15).values["killed"]
    assert (supervision.is_over, supervision.exit_code) == (True, 1)


@pytest.mark.parametrize(("exit_code", "of_run"), [(0, 0), (_BY_SIGTERM, 0), (1, 1), (_KILLED, 1)])
def test_a_stop_is_clean_when_each_child_ended_by_itself(exit_code: int, of_run: int) -> None:
    supervision = _supervision("one")
    supervision.stop(1)
    supervision.ended(PROBE, _BY_SIGTERM, 2)
    supervision.ended("one", exit_code, 2)
    assert (supervision.is_over, supervision.exit_code) == (True, of_run)


def test_a_child_that_waits_for_its_start_is_not_started_after_the_stop() -> None:
    supervision = _supervision("one")
    supervision.ended("one", 1, 1)
    supervision.stop(1)
    supervision.ended(PROBE, _BY_SIGTERM, 1)
    assert supervision.to_start(1e9) == []
    assert (supervision.is_over, supervision.exit_code) == (True, 0)


def test_a_second_signal_kills_at_once() -> None:
    """Unless it comes so soon after the first that it is the same request: of `timeout`, for example."""
    supervision = _supervision("one")
    assert not supervision.stop(1)
    assert not supervision.stop(1.5)
    assert supervision.signals(1.5) == [("one", signal.SIGTERM), (PROBE, signal.SIGTERM)]
    assert supervision.stop(2)
    assert supervision.signals(2) == [("one", signal.SIGKILL), (PROBE, signal.SIGKILL)]
    for name in ("one", PROBE):
        supervision.ended(name, _KILLED, 2)
    assert (supervision.is_over, supervision.exit_code) == (True, 1)


def test_a_defect_of_the_supervisor_waits_for_no_child() -> None:
    defect = """
from twinlog.supervisor.children import Children, Program
with Children() as children:
    children.start(Program(name="one", module="http.server", arguments=("0", "--bind", "127.0.0.1")))
    raise RuntimeError("a defect")
"""
    ended = subprocess.run(
        [sys.executable, "-c", defect], capture_output=True, text=True, check=False, timeout=60
    )
    assert (ended.returncode, "RuntimeError: a defect" in ended.stderr) == (1, True)
