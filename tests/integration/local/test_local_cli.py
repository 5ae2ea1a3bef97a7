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

from twinlog import properties
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import NewTopic
from twinlog.testing.brokers import eventually, retry_admin

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
    owner_of(broker).kill()
    await eventually(lambda: not broker.is_running())
    assert run("status", "-o", "json").stdout == "[]\n"
    assert run("up", "south", "--detach").returncode == 0
    assert run("down", "--all").stdout == "south is down\n"
    assert run("status", "-o", "json").stdout == "[]\n"


async def test_a_broker_that_dies_harms_no_other_cluster_and_keeps_its_data(run: Run) -> None:
    started = json.loads(run("up", "north", "south", "--detach", "-o", "json").stdout)
    north, south = (cluster["brokers"][0]["pid"] for cluster in started)
    servers = started[0]["bootstrap_servers"]
    async with open_cluster("north", {"bootstrap.servers": servers}) as cluster:
        await retry_admin(
            lambda: cluster.create_topics([NewTopic(name="kept", partition_count=1, replication_factor=1)])
        )
    psutil.Process(north).kill()

    def told() -> bool:
        shown = json.loads(run("status", "-o", "json").stdout)
        return [cluster["brokers"][0]["state"] for cluster in shown] == ["died", "running"]

    await eventually(told)
    assert psutil.pid_exists(south)
    assert "broker 1 of north died; its data are kept: `twinlog local start north`" in run("status").stdout
    assert run("start", "north").stdout == "north runs\n"
    assert await topics_of(servers) == {"kept"}

    stopped = run("stop", "north")
    assert stopped.stdout == "north is stopped; `twinlog local start north` starts it on its data\n"
    shown = json.loads(run("status", "-o", "json").stdout)
    assert [(each["brokers"][0]["state"], each["brokers"][0]["pid"]) for each in shown] == [
        ("stopped", None),
        ("running", south),
    ]
    assert run("start", "north", "south").stdout == "north runs\nsouth runs\n"
    assert await topics_of(servers) == {"kept"}
    assert psutil.pid_exists(south)
    assert run("start", "nowhere").returncode == 1


async def topics_of(servers: str) -> set[str]:
    async with open_cluster("north", {"bootstrap.servers": servers}) as cluster:
        return set(await cluster.list_topics())


def owner_of(broker: psutil.Process) -> psutil.Process:
    """Above the guard of the broker."""
    guard = broker.parent()
    assert guard is not None
    owner = guard.parent()
    assert owner is not None
    return owner


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_clusters_in_the_foreground_end_by_a_signal(
    environment: dict[str, str], run: Run, number: signal.Signals
) -> None:
    command = [*_COMMAND, "up", "solo"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
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


def test_secured_cluster_tells_where_its_client_file_is(run: Run) -> None:
    arguments = ("--tls", "--sasl", "SCRAM-SHA-512", "--user", "alice:wonder", "--authorizer")
    started = run("up", "safe", "--detach", "-o", "json", *arguments)
    assert started.returncode == 0, started.stderr
    (cluster,) = json.loads(started.stdout)
    assert cluster["security_protocol"] == "SASL_SSL"
    file = Path(cluster["client_file"])
    assert file.stat().st_mode & 0o077 == 0
    settings = properties.parse(file.read_bytes(), file=str(file)).entries
    assert settings["bootstrap.servers"].value == cluster["bootstrap_servers"]
    assert settings["sasl.mechanism"].value == "SCRAM-SHA-512"
    assert Path(settings["ssl.truststore.location"].value).is_file()
    assert "wonder" not in started.stdout


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


@pytest.mark.parametrize("command", [("local", "up", "x"), ("demo",)])
def test_a_cache_that_cannot_be_written_is_named_with_the_remedy(
    environment: dict[str, str], tmp_path: Path, command: tuple[str, ...]
) -> None:
    occupied = tmp_path / "occupied"
    occupied.touch()
    answer = subprocess.run(
        [sys.executable, "-m", "twinlog", *command],
        env={**environment, "XDG_CACHE_HOME": str(occupied)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert answer.returncode in (1, 2)
    said = "".join((answer.stdout + answer.stderr).split())
    assert f"cannotkeepKafka'sfilesin{occupied}" in said
    assert "SetXDG_CACHE_HOME" in said
    assert "Traceback" not in said


def test_down_names_what_does_not_run(run: Run) -> None:
    answer = run("down", "nowhere")
    assert answer.returncode == 1
    assert "no cluster nowhere runs" in answer.stderr


def test_broker_that_does_not_start_is_explained_when_detached(run: Run) -> None:
    answer = run("up", "odd", "--detach", "--property", "log.segment.bytes=many")
    assert answer.returncode == 1
    assert "log.segment.bytes" in answer.stderr
    assert json.loads(run("status", "-o", "json").stdout) == []
