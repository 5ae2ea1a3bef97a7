"""Some random lives of the whole system; `make simulate SEEDS=1000` lives more."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_TESTS = Path(__file__).parent.parent
_SEEDS_EACH = 100
_OF_TWO_FILES = 4
_LONGEST_SECONDS = 1_800
_ALONE = (4, 14)


@pytest.mark.parametrize("first", [1, 1 + _SEEDS_EACH])
def test_after_the_last_fault_everything_is_copied(first: int) -> None:
    _lives(first, _SEEDS_EACH)


@pytest.mark.parametrize("first", [1, 1 + _OF_TWO_FILES])
def test_two_files_that_copy_a_topic_both_ways_leave_everything_on_both_clusters_once(first: int) -> None:
    _lives(first, _OF_TWO_FILES if first == 1 else _SEEDS_EACH, "--two-files")


def test_a_seed_repeats_itself_alone_and_among_other_lives() -> None:
    """Every request, in its order, and every byte of every log, wherever objects are in memory."""
    among_others = _lives(_ALONE[0], _ALONE[-1] - _ALONE[0] + 1)
    for seed in _ALONE:
        assert _lives(seed, 1)[0] in among_others


def _lives(first: int, count: int, *more: str) -> list[str]:
    lived = subprocess.run(
        [
            sys.executable,
            "-m",
            "simulated.simulate",
            "--seeds",
            f"{count}",
            "--from",
            f"{first}",
            "--digests",
            *more,
        ],
        cwd=_TESTS,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=_LONGEST_SECONDS,
    )
    assert lived.returncode == 0, lived.stdout + lived.stderr
    return lived.stdout.splitlines()
