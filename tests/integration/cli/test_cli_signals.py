"""Signals while the command line is still being loaded."""

import signal
import subprocess
import sys

import pytest

_LOADS_FOR_EVER = """
import importlib.abc, sys, time
import twinlog.__main__

class Slow(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "twinlog.cli":
            print("loading", flush=True)
            time.sleep(600)

sys.meta_path.insert(0, Slow())
twinlog.__main__.main()
"""


@pytest.mark.parametrize(
    ("command", "number", "exit_code"),
    [
        ("run", signal.SIGTERM, 0),
        ("status", signal.SIGINT, 130),
        ("status", signal.SIGTERM, -signal.SIGTERM),
    ],
)
def test_a_signal_ends_it_without_a_word(command: str, number: signal.Signals, exit_code: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _LOADS_FOR_EVER, command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "loading\n"
        process.send_signal(number)
        try:
            assert process.wait(timeout=40) == exit_code
        finally:
            process.kill()
        assert process.stderr.read() == ""
