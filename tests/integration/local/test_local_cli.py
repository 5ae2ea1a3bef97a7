"""`twinlog local` as a user runs it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from twinlog.testing.brokers import eventually

Run = Callable[..., "subprocess.CompletedProcess[str]"]

_COMMAND = (sys.executable, "-c", "from twinlog.cli import main; main()", "local")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A state directory of the test's own, so that a developer's clusters are not seen nor ended."""
    return {**os.environ, "XDG_STATE_HOME": str(tmp_path)}


@pytest.fixture
def run(environment: dict[str, str]) -> Iterator[Run]:
    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*_COMMAND, *arguments], env=environment, capture_output=True, text=True, timeout=120, check=False
        )

    yield call
    call("down", "--all")


async def test_detached_clusters_are_shown_end_one_by_one_and_with_their_owner(run: Run) -> None:
    started = run("up", "north", "south", "--detach", "-o", "json")
    assert started.returncode == 0, started.stderr
    shown = json.loads(run("status", "-o", "json").stdout)
    assert shown == json.loads(started.stdout)
    assert [cluster["name"] for cluster in shown] == ["north", "south"]
    pids = [cluster["brokers"][0]["pid"] for cluster in shown]
    assert all(psutil.pid_exists(pid) for pid in pids)

    again = run("up", "south")
    assert again.returncode == 1
    assert "cluster south runs already: `twinlog local down south` ends it" in again.stderr

    assert run("down", "north").stdout == "north is down\n"
    assert [psutil.pid_exists(pid) for pid in pids] == [False, True]
    table = run("status").stdout
    assert "south" in table
    assert shown[1]["bootstrap_servers"] in table
    assert "north" not in table

    broker = psutil.Process(pids[1])
    owner = broker.parent()
    assert owner is not None
    owner.kill()
    await eventually(lambda: not broker.is_running())
    assert run("status", "-o", "json").stdout == "[]\n"
    assert run("up", "south", "--detach").returncode == 0
    assert run("down", "--all").stdout == "south is down\n"
    assert run("status", "-o", "json").stdout == "[]\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_clusters_in_the_foreground_end_by_a_signal(
    environment: dict[str, str], run: Run, number: signal.Signals
) -> None:
    command = [*_COMMAND, "up", "solo"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert "in the foreground until Ctrl-C; with --detach" in process.stderr.readline()
        said = []
        while "ready" not in (line := process.stdout.readline()):
            assert line, "it ended before it was ready"
            said.append(line)
        (cluster,) = json.loads(run("status", "-o", "json").stdout)
        assert any(cluster["bootstrap_servers"] in line for line in said)
        process.send_signal(number)
        assert process.wait(timeout=60) == 0
    assert not psutil.pid_exists(cluster["brokers"][0]["pid"])
    assert json.loads(run("status", "-o", "json").stdout) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("up", "x", "--user", "alice"), "--user number 1 is not of the form NAME:PASSWORD"),
        (("up", "x", "--brokers", "2"), "a cluster has 1 or 3 brokers, not 2"),
        (("up", "x", "x"), "two clusters have the same name"),
        (("up", "x", "--authorizer"), "with an authorizer clients must have names"),
        (("down",), "name the clusters to end, or give --all"),
    ],
)
def test_wrong_request_is_explained_with_exit_code_2(
    run: Run, arguments: tuple[str, ...], message: str
) -> None:
    answer = run(*arguments)
    assert answer.returncode == 2
    assert message in answer.stderr
