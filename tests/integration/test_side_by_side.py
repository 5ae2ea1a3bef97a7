"""`pytest -n`: what the processes find, and what becomes of them."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from twinlog.testing.brokers import eventually

_TESTS = Path(__file__).parents[1]
_CONFTEST = """
import os, pathlib, pytest, side_by_side

def pytest_addoption(parser):
    side_by_side.add_option(parser)

def pytest_configure(config):
    side_by_side.configure(config)

@pytest.fixture(scope="session")
def started(request):
    file = pathlib.Path(f"started-{os.getpid()}")
    file.touch()
    yield
    file.rename(f"ended-{os.getpid()}")
"""

_ENDLESS = """
import time

def test_endless(started):
    while True:
        time.sleep(0.01)
"""


@contextmanager
def started(directory: Path, *arguments: str, **files: str) -> Iterator[subprocess.Popen[str]]:
    """pytest on these files in two processes."""
    (directory / "conftest.py").write_text(_CONFTEST)
    (directory / "pytest.ini").touch()
    for name, text in files.items():
        (directory / f"test_{name}.py").write_text(text)
    plugins = ("-p", "no:xdist", "-p", "no:cacheprovider")
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *plugins, "-n", "2", "--basetemp=tmp", *arguments],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(_TESTS)},
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def run(directory: Path, *arguments: str, **files: str) -> tuple[int, str]:
    with started(directory, *arguments, **files) as process:
        output, _ = process.communicate(timeout=60)
        return process.returncode, output


def count(directory: Path, pattern: str) -> int:
    return len(list(directory.glob(pattern)))


def test_every_result_is_told(tmp_path: Path) -> None:
    code, output = run(
        tmp_path,
        "-rA",
        results="""
import pytest, warnings

def test_passes(started, tmp_path):
    print("what it says")
    (tmp_path / "file").touch()

def test_fails(started):
    print("before it failed")
    assert 1 + 1 == 3

@pytest.mark.xfail(reason="known")
def test_known():
    raise ValueError

@pytest.mark.skip(reason="not today")
def test_skipped(): ...

def test_warns(started):
    warnings.warn("look out")

@pytest.fixture
def broken():
    yield
    raise OSError("its end")

def test_ends_badly(broken): ...
""",
        crash="""
import os, signal

def test_before(started, tmp_path):
    (tmp_path / "file").touch()

def test_dies(started):
    os.kill(os.getpid(), signal.SIGKILL)

def test_after(started): ...
""",
    )
    assert code == 1, output
    summary = "2 failed, 5 passed, 1 skipped, 1 xfailed, 1 warning, 1 error"
    assert summary in output.splitlines()[-1]
    for told in (
        "what it says",
        "before it failed",
        "assert (1 + 1) == 3",
        "test_known - known",
        "not today",
        "UserWarning: look out",
        "ERROR test_results.py::test_ends_badly - OSError: its end",
        "FAILED test_crash.py::test_dies - its process ended: exit code -9",
    ):
        assert told in output
    assert count(tmp_path, "ended-*") == 2, "a process each, and the one that continued"
    assert count(tmp_path, "started-*") == 1, "of the process that died"


def test_no_test_is_begun_after_the_last_failure_that_is_allowed(tmp_path: Path) -> None:
    """Its parent hears of the failure while the other file's first test runs."""
    code, output = run(
        tmp_path,
        "-x",
        fails="def test_fails(): raise OSError('first')\n",
        waits="""
import os, pathlib, time

def test_waits(started, request):
    work = request.config.pluginmanager.get_plugin("side by side").work
    while not work.is_stopped:
        time.sleep(0.01)

def test_next(): pathlib.Path("begun").touch()
""",
    )
    assert code == 1, output
    assert "stopping after 1 failures" in output
    assert not (tmp_path / "begun").exists()
    assert count(tmp_path, "ended-*"), "what the tests have started is let go of"


async def test_a_run_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    """By SIGKILL, in the middle of two tests."""
    with started(tmp_path, one=_ENDLESS, two=_ENDLESS) as process:
        await eventually(lambda: count(tmp_path, "started-*") == 2)
        children = psutil.Process(process.pid).children()
        process.kill()
        await eventually(lambda: count(tmp_path, "ended-*") == 2)
        await eventually(lambda: not any(each.is_running() for each in children))
    assert process.returncode == -signal.SIGKILL


async def test_an_interrupted_run_ends_what_its_tests_have_started(tmp_path: Path) -> None:
    with started(tmp_path, one=_ENDLESS, two=_ENDLESS) as process:
        await eventually(lambda: count(tmp_path, "started-*") == 2)
        process.send_signal(signal.SIGINT)
        await eventually(lambda: process.poll() is not None)
    assert process.returncode == 2
    assert count(tmp_path, "ended-*") == 2
