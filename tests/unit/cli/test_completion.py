"""`twinlog completion`: a shell asks the command line, and gets what fits."""

import os
import subprocess
import sys

import pytest


def answer(*arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "twinlog", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.slow  # a process of its own, as a shell starts it
def test_each_shell_gets_a_script_that_asks_twinlog(shell: str) -> None:
    script = answer("completion", shell)
    assert "_TWINLOG_COMPLETE" in script
    assert f"complete_{shell}" in script


@pytest.mark.slow  # a process of its own, as a shell starts it
def test_bash_completes_the_beginning_of_a_command_and_of_an_option() -> None:
    asked = {"_TWINLOG_COMPLETE": "complete_bash", "COMP_CWORD": "1", "COMP_WORDS": "twinlog partit"}
    assert answer(**asked).split() == ["partitions"]
    asked |= {"COMP_CWORD": "2", "COMP_WORDS": "twinlog partitions --trou"}
    assert answer(**asked).split() == ["--trouble"]
