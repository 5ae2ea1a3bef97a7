"""Some random lives of the whole system; `make simulate SEEDS=1000` lives more."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_TESTS = Path(__file__).parent.parent
_SEEDS_EACH = 20
_LONGEST_SECONDS = 300


@pytest.mark.parametrize("first", [1 + part * _SEEDS_EACH for part in range(3)])
def test_after_the_last_fault_everything_is_copied(first: int) -> None:
    seeds = ["--seeds", str(_SEEDS_EACH), "--from", str(first)]
    lived = subprocess.run(
        [sys.executable, "-m", "simulated.simulate", *seeds],
        cwd=_TESTS,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=_LONGEST_SECONDS,
    )
    assert lived.returncode == 0, lived.stdout + lived.stderr
