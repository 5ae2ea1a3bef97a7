"""A guarded process ends with its owner, whatever ends the owner."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from twinlog.local.processes.process import GuardedProcess, ProcessError
from twinlog.testing.brokers import eventually

_OWNER = """
import os, sys, time
from pathlib import Path
from twinlog.local.processes.process import GuardedProcess
process = GuardedProcess(["sh", "-c", "sleep 300 & echo $! > " + sys.argv[1] + "; wait"])
if sys.argv[2] == "forks":
    looks = os.fork()
    if looks == 0:
        process.poll()  # That must end nothing.
        os._exit(0)
    os.waitpid(looks, 0)
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
grandchild = Path(sys.argv[1])
while not (grandchild.exists() and grandchild.read_text()):
    time.sleep(0.01)
print(process.pid, flush=True)
time.sleep(300)
"""

_WORKS = """
import time
while time.process_time() < 0.1:
    pass
print("done", flush=True)
time.sleep(300)
"""


def _gone(*pids: int) -> bool:
    return not any(psutil.pid_exists(pid) for pid in pids)


def _open_descriptors() -> int:
    return psutil.Process().num_fds()


@pytest.fixture
def owner(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A Python process that owns a shell, which started a sleep in a session of its own; and these two
    pids.
    """
    kind = getattr(request, "param", "plain")
    grandchild_file = tmp_path / "grandchild"
    command = [sys.executable, "-c", _OWNER, str(grandchild_file), kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        pids = [child, int(grandchild_file.read_text())]
        yield process, pids
        os.killpg(process.pid, signal.SIGKILL)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("owner", ["plain", "forks"], indirect=True)
async def test_kill_9_of_the_owner_ends_all_it_started(
    owner: tuple[subprocess.Popen[str], list[int]],
) -> None:
    process, pids = owner
    assert not _gone(pids[0])
    process.kill()
    await eventually(lambda: _gone(*pids))


def test_exit_code_and_output_are_passed_on(tmp_path: Path) -> None:
    process = GuardedProcess(["sh", "-c", "echo told; exit 7"], output=tmp_path / "log")
    assert process.wait(timeout_seconds=60) == 7
    assert (tmp_path / "log").read_text() == "told\n"


async def test_its_work_and_memory_are_measured_while_it_runs(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with GuardedProcess([sys.executable, "-c", _WORKS], output=log) as process:
        await eventually(lambda: log.read_text() == "done\n")
        assert process.cpu_seconds() > 0.05  # counted in ticks
        assert process.resident_bytes() > 1 << 20
    with pytest.raises(ProcessError, match="has ended"):
        process.cpu_seconds()


async def test_stop_asks_first_and_kills_after_the_grace(tmp_path: Path) -> None:
    polite = GuardedProcess(["sleep", "60"])
    assert polite.stop(grace_seconds=60) == 128 + signal.SIGTERM
    log = tmp_path / "log"
    stubborn = GuardedProcess(["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done"], output=log)
    await eventually(lambda: log.read_text() == "ready\n")
    assert stubborn.stop(grace_seconds=0.2) == 128 + signal.SIGKILL


def test_a_paused_process_has_stopped_and_stop_wakes_it() -> None:
    process = GuardedProcess(["sleep", "60"])
    process.pause()
    assert psutil.Process(process.pid).status() == psutil.STATUS_STOPPED
    assert process.stop(grace_seconds=60) == 128 + signal.SIGTERM


def test_signals_after_the_end_are_harmless() -> None:
    process = GuardedProcess(["true"])
    assert process.wait(timeout_seconds=60) == 0
    process.send_signal(signal.SIGTERM)
    assert process.stop(grace_seconds=1) == 0


def test_what_cannot_be_run_is_named() -> None:
    with pytest.raises(ProcessError, match="cannot run no-such-program: No such file"):
        GuardedProcess(["no-such-program"])


def test_no_descriptors_leak() -> None:
    before, starts = _open_descriptors(), 10
    for _ in range(starts):
        GuardedProcess(["true"]).wait(timeout_seconds=60)
        with pytest.raises(ProcessError):
            GuardedProcess(["no-such-program"])
    # What else runs in this process may open or close one meanwhile.
    assert _open_descriptors() < before + starts
