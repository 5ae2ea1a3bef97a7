"""The command line as a process of its own: what a shell, or a terminal, gets from it."""

import os
import subprocess
import sys

import pytest


def twinlog(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "twinlog", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def answer(*arguments: str, **environment: str) -> str:
    done = twinlog(*arguments, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_bash_completes_the_beginning_of_a_command_and_of_an_option() -> None:
    asked = {"_TWINLOG_COMPLETE": "complete_bash", "COMP_CWORD": "1", "COMP_WORDS": "twinlog partit"}
    assert answer(**asked).split() == ["partitions"]
    asked |= {"COMP_CWORD": "2", "COMP_WORDS": "twinlog partitions --trou"}
    assert answer(**asked).split() == ["--trouble"]
    hidden = asked | {"COMP_WORDS": "twinlog partitions --flo"}
    assert answer(**hidden).split() == [], "as in the help"


def test_an_error_of_a_command_writes_control_characters_out() -> None:
    done = twinlog("explain", "topic", "x", "--config", "/nowhere/\x1b]0;owned\x07")
    assert done.returncode == 2
    assert r"\x1b]0;" in done.stderr
    assert "\x1b" not in done.stderr + done.stdout


def unread(*arguments: str, errors_too: bool) -> tuple[int, str]:
    """Exit code and stderr of a command whose stdout, or both, nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "twinlog", *arguments],
            stdout=writer,
            stderr=writer if errors_too else subprocess.PIPE,
            text=True,
            check=False,
            timeout=300,
        )
    finally:
        os.close(writer)
    return done.returncode, done.stderr or ""


@pytest.mark.parametrize("errors_too", [False, True])
def test_output_that_nobody_reads_is_no_success_and_no_traceback(errors_too: bool) -> None:
    assert unread("verify", "--schema", errors_too=errors_too) == (141, "")


def test_a_command_without_standard_streams_works() -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$0" -m twinlog verify --schema >&- 2>&-', sys.executable],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, "")
