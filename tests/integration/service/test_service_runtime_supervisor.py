"""The supervisor of `twinlog run`: children are started again, and end in order."""

import asyncio
import io
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from twinlog.clock import SystemClock
from twinlog.service.waiting import Backoff
from twinlog.supervisor.child import ChildSpec
from twinlog.supervisor.log_lines import LogLines
from twinlog.supervisor.supervisor import Supervisor
from twinlog.testing.brokers import PATIENCE_SECONDS, eventually

_SERVES = "import time; print('up', flush=True); time.sleep(600)"


# The handler may run inside a flush of the same stream, which refuses another one.
_DRAINS = """
import os, signal, sys, time
def drain(*_):
    os.write(1, b"drained\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, drain)
print("up", flush=True)
time.sleep(600)
"""


_IGNORES_SIGTERM = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
time.sleep(600)
"""
_CRASHES = "import sys; print('ValueError: broken', flush=True); sys.exit(1)"
_REFUSES = "import sys; print('mm2.properties:3: key: wrong', file=sys.stderr, flush=True); sys.exit(2)"
_FAILS_TO_STOP = _DRAINS.replace("sys.exit(0)", "sys.exit(1)")


def _child(name: str, script: str) -> ChildSpec:
    return ChildSpec(name=name, command=(sys.executable, "-c", script), environment=dict(os.environ))


@dataclass
class Run:
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    stream: io.StringIO = field(default_factory=io.StringIO)
    serving: list[bool] = field(default_factory=list)

    def events(self, name: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.stream.getvalue().splitlines()]
        return [line for line in lines if line["event"] == name]

    def printed(self, text: str) -> int:
        return sum(line["line"] == text for line in self.events("output"))


async def _never_serving(stop: asyncio.Event) -> bool:
    await stop.wait()
    return False


async def _serving_at_once(stop: asyncio.Event) -> bool:
    return True


async def _supervise(
    run: Run,
    children: Sequence[ChildSpec],
    scenario: Callable[[], Awaitable[None]],
    *,
    wait_until_serving: Callable[[asyncio.Event], Awaitable[bool]] = _never_serving,
    grace_seconds: float = 10.0,
) -> int:
    supervisor = Supervisor(
        children,
        log=LogLines(run.stream, format="json", clock=SystemClock()),
        clock=SystemClock(),
        new_backoff=lambda: Backoff(initial_seconds=0.05, max_seconds=0.1, random=lambda: 1.0),
        grace_seconds=grace_seconds,
        wait_until_serving=wait_until_serving,
        on_serving=lambda: run.serving.append(True),
    )
    async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as group:
        running = group.create_task(supervisor.run(run.stop), name="supervisor")
        await scenario()
        run.stop.set()
    return running.result()


async def test_children_drain_at_the_stop_and_the_exit_is_0() -> None:
    run = Run()

    async def scenario() -> None:
        await eventually(lambda: run.printed("up") == 2)

    assert await _supervise(run, [_child("one", _DRAINS), _child("two", _DRAINS)], scenario) == 0
    assert run.printed("drained") == 2


async def test_a_child_that_had_not_come_to_handling_signals_ends_cleanly() -> None:
    run = Run()

    async def scenario() -> None:
        await eventually(lambda: run.printed("up") == 1)

    assert await _supervise(run, [_child("one", _SERVES)], scenario) == 0


async def test_a_child_that_does_not_end_is_killed_and_the_exit_is_1() -> None:
    run = Run()

    async def scenario() -> None:
        await eventually(lambda: run.printed("up") == 2)

    children = [_child("stuck", _IGNORES_SIGTERM), _child("good", _DRAINS)]
    assert await _supervise(run, children, scenario, grace_seconds=0.5) == 1
    ends = {event["name"]: event for event in run.events("service_stopped")}
    assert ends["stuck"]["killed_after_seconds"] == 0.5
    assert ends["good"]["exit_code"] == 0


async def test_a_child_that_fails_while_stopping_makes_the_exit_1() -> None:
    run = Run()

    async def scenario() -> None:
        await eventually(lambda: run.printed("up") == 1)

    assert await _supervise(run, [_child("one", _FAILS_TO_STOP)], scenario) == 1


async def test_a_killed_child_is_started_again_and_the_others_stay() -> None:
    run = Run()

    async def scenario() -> None:
        await eventually(lambda: run.printed("up") == 2)
        pids = {event["name"]: event["pid"] for event in run.events("service_started")}
        os.kill(pids["victim"], signal.SIGKILL)
        await eventually(lambda: run.printed("up") == 3)

    assert await _supervise(run, [_child("victim", _DRAINS), _child("other", _DRAINS)], scenario) == 0
    started = [event["name"] for event in run.events("service_started")]
    assert sorted(started) == ["other", "victim", "victim"]
    (ended,) = run.events("service_ended")
    assert (ended["name"], ended["exit_code"]) == ("victim", 128 + signal.SIGKILL)


async def test_a_child_that_keeps_crashing_is_reported_with_the_cause_and_tried_again() -> None:
    run = Run()

    async def scenario() -> None:
        await eventually(lambda: len(run.events("service_keeps_crashing")) >= 2)

    assert await _supervise(run, [_child("bad", _CRASHES), _child("good", _DRAINS)], scenario) == 0
    report = run.events("service_keeps_crashing")[0]
    assert (report["name"], report["cause"], report["crashes_in_a_row"]) == ("bad", "ValueError: broken", 3)


async def test_a_child_that_refuses_its_configuration_ends_the_run_with_2() -> None:
    run = Run()

    async def scenario() -> None:
        await run.stop.wait()

    assert await _supervise(run, [_child("bad", _REFUSES), _child("good", _DRAINS)], scenario) == 2
    assert run.printed("mm2.properties:3: key: wrong") == 1
    assert run.serving == []


async def test_after_all_have_served_a_refusal_is_tried_again() -> None:
    run = Run()

    async def scenario() -> None:
        await eventually(lambda: len(run.events("service_ended")) >= 2)

    code = await _supervise(run, [_child("bad", _REFUSES)], scenario, wait_until_serving=_serving_at_once)
    assert code == 0
    assert run.serving == [True]
