"""Services as forks of one process that has loaded their modules. Each is a program of its own to everybody
who looks at it, and none outlives who asked for it."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from twinlog.local.processes.process import PIPE, GuardedProcess, ProcessError
from twinlog.supervisor.child import Child, ChildEnd, ChildProcess, ChildSpec
from twinlog.supervisor.fork_server import Order
from twinlog.supervisor.forked import ForkServer, Starter, open_starter
from twinlog.testing.brokers import eventually

MODULE = "forked_service"
LOAD_SECONDS = 60.0
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks of a loaded process: Linux only")

_TELLS = """
import json, os, sys, threading
print(json.dumps([sys.argv[1:], __name__, open("/proc/self/cmdline").read().rstrip("\\0").split("\\0"),
                  threading.active_count(), forked_service.app.loaded_by != os.getpid()]))
raise SystemExit(3)
"""
_RUNS = """
import signal, subprocess, sys, time
def drain(*_):
    print("drained", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, drain)
below = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("up", below.pid, flush=True)
time.sleep(600)
"""
_FAILS = "raise ValueError('broken')"
_OWNS = """
import asyncio, json, os, sys
from twinlog.supervisor.fork_server import Order
from twinlog.supervisor.forked import ForkServer
async def main():
    server = ForkServer([sys.argv[1]], environment=dict(os.environ))
    assert await server.ready(timeout_seconds=60)
    fork = await server.fork(Order(sys.argv[1], ()))
    _, below = fork.stdout.readline().split()
    print(json.dumps([fork.pid, int(below), server.pid]), flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


def make_service(directory: Path, script: str, *, loads: str = "") -> dict[str, str]:
    """A package that does this when it is run, and the environment in which it is found."""
    package = directory / MODULE
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "app.py").write_text(f"import os\nloaded_by = os.getpid()\n{loads}\n")
    (package / "__main__.py").write_text(f"import {MODULE}.app\n{script}\n")
    return {**os.environ, "PYTHONPATH": str(directory)}


@asynccontextmanager
async def opened(environment: dict[str, str]) -> AsyncIterator[ForkServer]:
    server = ForkServer([MODULE], environment=environment)
    try:
        assert await server.ready(timeout_seconds=LOAD_SECONDS)
        yield server
    finally:
        server.close()


def spec_of(environment: dict[str, str], *arguments: str) -> ChildSpec:
    return ChildSpec(
        name="service",
        command=(sys.executable, "-m", MODULE, *arguments),
        environment=environment,
        order=Order(MODULE, arguments),
    )


def starter(server: ForkServer, told: list[str] | None = None, *, fork_seconds: float = 600.0) -> Starter:
    """Patient, where a test is not about that: a busy machine is no failure."""
    return Starter(server, tell=([] if told is None else told).append, fork_seconds=fork_seconds)


async def begun(server: ForkServer, environment: dict[str, str], *arguments: str) -> "Run":
    return Run(await starter(server)(spec_of(environment, *arguments)))


class Run:
    """A child, as the supervisor runs one."""

    def __init__(self, process: ChildProcess) -> None:
        self.lines: list[str] = []
        self.stop = asyncio.Event()
        self.child = Child(process, on_line=self.lines.append)

    async def ended(self) -> ChildEnd:
        return await self.child.run(self.stop, grace_seconds=30.0)

    async def below(self) -> psutil.Process:
        """What the service has started, once it says so."""
        await eventually(lambda: bool(self.lines))
        return psutil.Process(int(self.lines[0].split()[1]))


def gone(*processes: psutil.Process) -> Callable[[], bool]:
    return lambda: not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in processes)


async def test_a_fork_is_a_program_of_its_own(tmp_path: Path) -> None:
    environment = make_service(tmp_path, _TELLS)
    async with opened(environment) as server:
        run = await begun(server, environment, "--config", "a b.properties")
        end = await run.ended()
    assert (end.exit_code, end.killed) == (3, False)
    arguments, name, shown, threads, was_loaded = json.loads(run.lines[0])
    assert arguments == ["--config", "a b.properties"]
    assert shown == [sys.executable, "-m", MODULE, *arguments]
    assert (name, threads, was_loaded) == ("__main__", 1, True)


async def test_a_fork_is_told_to_stop_and_takes_along_what_it_has_started(tmp_path: Path) -> None:
    environment = make_service(tmp_path, _RUNS)
    async with opened(environment) as server:
        run = await begun(server, environment)
        async with asyncio.TaskGroup() as group:
            ended = group.create_task(run.ended())
            below = await run.below()
            guard = psutil.Process(run.child.pid).parent()
            assert guard is not None
            run.stop.set()
        assert gone(below, guard)(), "nothing of it is left when its end is told"
        assert (ended.result().exit_code, run.lines[-1]) == (0, "drained")


async def test_a_fork_that_fails_says_why(tmp_path: Path) -> None:
    environment = make_service(tmp_path, _FAILS)
    async with opened(environment) as server:
        run = await begun(server, environment)
        end = await run.ended()
        assert end.exit_code == 1
        assert run.lines[-1] == "ValueError: broken"


async def test_a_fork_that_is_killed_is_seen_and_another_one_runs(tmp_path: Path) -> None:
    environment = make_service(tmp_path, _RUNS)
    async with opened(environment) as server:
        first = await begun(server, environment)
        async with asyncio.TaskGroup() as group:
            ended = group.create_task(first.ended())
            below = await first.below()
            os.kill(first.child.pid, signal.SIGKILL)
        assert ended.result().exit_code == 128 + signal.SIGKILL
        await eventually(gone(below))
        second = await begun(server, environment)
        async with asyncio.TaskGroup() as group:
            ended = group.create_task(second.ended())
            await second.below()
            second.stop.set()
        assert ended.result().exit_code == 0


async def test_forks_end_with_their_server_and_programs_take_their_place(tmp_path: Path) -> None:
    environment = make_service(tmp_path, _RUNS)
    async with opened(environment) as server:
        start = starter(server)
        run = Run(await start(spec_of(environment)))
        async with asyncio.TaskGroup() as group:
            ended = group.create_task(run.ended())
            below = await run.below()
            os.kill(server.pid, signal.SIGKILL)
        assert ended.result().exit_code == 128 + signal.SIGKILL
        await eventually(gone(below))
        await eventually(lambda: not server.running)
        program = Run(await start(spec_of(environment)))
        async with asyncio.TaskGroup() as group:
            ended = group.create_task(program.ended())
            await program.below()
            program.stop.set()
        assert ended.result().exit_code == 0


_MAY_NOT_FORK = """
import resource
resource.setrlimit(resource.RLIMIT_NPROC, (0, resource.getrlimit(resource.RLIMIT_NPROC)[1]))
# The limit does not count for root.
os.getuid() or os.setuid(65534)
"""


async def test_a_fork_for_which_there_is_no_room_ends_no_other_and_a_program_takes_its_place(
    tmp_path: Path,
) -> None:
    environment = make_service(tmp_path, _RUNS, loads=_MAY_NOT_FORK)
    told: list[str] = []
    async with opened(environment) as server:
        for _ in range(2):
            with pytest.raises(ProcessError, match=f"{MODULE} was not forked: Resource temporarily"):
                await server.fork(Order(MODULE, ()), timeout_seconds=600.0)
        assert server.answers
        # The program loads the same module, and may start nothing: that is an end which it can tell of.
        run = Run(await starter(server, told)(spec_of(environment)))
        assert (await run.ended()).exit_code != 0
        assert len(told) == 1
        assert server.answers


async def test_a_fork_server_that_does_not_answer_holds_nobody_up_and_is_asked_no_more(
    tmp_path: Path,
) -> None:
    environment = make_service(tmp_path, _RUNS)
    told: list[str] = []
    async with opened(environment) as server:
        os.kill(server.pid, signal.SIGSTOP)
        start = starter(server, told, fork_seconds=0.5)
        async with asyncio.TaskGroup() as group:
            # All wait at the same time, and whatever else the loop has to do is done meanwhile.
            starting = [group.create_task(start(spec_of(environment))) for _ in range(2)]
        assert [said for said in told if "does not answer" in said] == told
        assert len(told) == 2
        runs = [Run(task.result()) for task in starting]
        runs.append(Run(await start(spec_of(environment))))
        assert len(told) == 2
        os.kill(server.pid, signal.SIGCONT)
        async with asyncio.TaskGroup() as group:
            ended = [group.create_task(run.ended()) for run in runs]
            for run in runs:
                await run.below()
                run.stop.set()
        assert [task.result().exit_code for task in ended] == [0, 0, 0]
        # The orders that nobody waits for any longer are not carried out, or not for long.
        await eventually(lambda: not psutil.Process(server.pid).children())


async def test_a_stop_does_not_wait_until_the_modules_are_loaded(tmp_path: Path) -> None:
    loading = tmp_path / "loading"
    loads = f"import pathlib, time\npathlib.Path({str(loading)!r}).touch()\ntime.sleep(3600)"
    environment = make_service(tmp_path, _RUNS, loads=loads)
    stop = asyncio.Event()

    async def run_until_stopped() -> None:
        async with open_starter([MODULE], environment, stop=stop, tell=print):
            await stop.wait()

    async with asyncio.TaskGroup() as group:
        running = group.create_task(run_until_stopped())
        await eventually(loading.exists)
        stop.set()
        await eventually(running.done)


async def test_a_signal_to_all_processes_does_not_end_the_server_before_its_forks(tmp_path: Path) -> None:
    """As of a service manager that stops a whole control group."""
    environment = make_service(tmp_path, _RUNS)
    async with opened(environment) as server:
        run = await begun(server, environment)
        async with asyncio.TaskGroup() as group:
            ended = group.create_task(run.ended())
            await run.below()
            # Its guard, too, which passes it on.
            for process in [psutil.Process(server.pid), *psutil.Process(server.pid).children()]:
                process.send_signal(signal.SIGTERM)
        assert ended.result().exit_code == 0
        assert server.running


async def test_a_module_that_starts_a_thread_is_not_forked(tmp_path: Path) -> None:
    loads = "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()"
    environment = make_service(tmp_path, _TELLS, loads=loads)
    server = ForkServer([MODULE], environment=environment)
    try:
        assert not await server.ready(timeout_seconds=LOAD_SECONDS)
        with pytest.raises(ProcessError, match="was not forked"):
            await server.fork(Order(MODULE, ()))
    finally:
        server.close()


async def test_forks_do_not_outlive_who_asked_for_them(tmp_path: Path) -> None:
    environment = make_service(tmp_path, _RUNS)
    owner = GuardedProcess([sys.executable, "-c", _OWNS, MODULE], env=environment, output=PIPE)
    try:
        line = await asyncio.to_thread(owner.stdout.readline)
        family = [psutil.Process(pid) for pid in json.loads(line)]
        os.kill(owner.pid, signal.SIGKILL)
        await eventually(gone(*family))
    finally:
        owner.kill()
