"""`twinlog local` as a user runs it."""

import json
import signal
import subprocess
import sys

import psutil
import pytest

_COMMAND = (sys.executable, "-c", "from twinlog.cli import main; main()", "local")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_clusters_end_with_their_command(number: signal.Signals) -> None:
    command = [*_COMMAND, "north", "south", "-o", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = ""
        while not told.endswith("\n]\n"):
            line = process.stdout.readline()
            assert line, "it ended before it was ready"
            told += line
        clusters = json.loads(told)
        assert [cluster["name"] for cluster in clusters] == ["north", "south"]
        brokers = [psutil.Process(pid) for cluster in clusters for pid in cluster["pids"]]
        assert all(broker.is_running() for broker in brokers)
        process.send_signal(number)
        assert process.wait(timeout=60) == (-number if number is signal.SIGKILL else 0)
    assert psutil.wait_procs(brokers, timeout=60)[1] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("x", "--user", "alice"), "--user number 1 is not of the form NAME:PASSWORD"),
        (("x", "--brokers", "2"), "a cluster has 1 or 3 brokers, not 2"),
        (("x", "x"), "two clusters have the same name"),
        (("x", "--authorizer"), "with an authorizer clients must have names"),
    ],
)
def test_wrong_request_is_explained_with_exit_code_2(arguments: tuple[str, ...], message: str) -> None:
    answer = subprocess.run([*_COMMAND, *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert answer.returncode == 2
    assert message in answer.stderr
