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


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script_that_asks_twinlog(shell: str) -> None:
    script = answer("completion", shell)
    assert "_TWINLOG_COMPLETE" in script
    assert f"complete_{shell}" in script


def test_bash_completes_the_beginning_of_a_command_and_of_an_option() -> None:
    asked = {"_TWINLOG_COMPLETE": "complete_bash", "COMP_CWORD": "1", "COMP_WORDS": "twinlog partit"}
    assert answer(**asked).split() == ["partitions"]
    asked |= {"COMP_CWORD": "2", "COMP_WORDS": "twinlog partitions --trou"}
    assert answer(**asked).split() == ["--trouble"]


def test_an_error_of_a_command_writes_control_characters_out() -> None:
    done = twinlog("explain", "topic", "x", "--config", "/nowhere/\x1b]0;owned\x07")
    assert done.returncode == 2
    assert r"\x1b]0;" in done.stderr
    assert "\x1b" not in done.stderr + done.stdout


def test_completion_shows_what_the_help_shows() -> None:
    asked = {"_TWINLOG_COMPLETE": "complete_bash", "COMP_CWORD": "2"}
    assert answer(**asked, COMP_WORDS="twinlog state im").split() == ["import"]
    assert answer(**asked, COMP_WORDS="twinlog partitions --flo").split() == []
