"""What Twinlog leaves of scripted histories is what it left before: what MirrorMaker 2 and applications read,
and its own records.

A difference is a change of behaviour: look at it, and record again (see record_histories) if it is wanted.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulated.histories import HISTORIES

_TESTS = Path(__file__).parent.parent
_GOLDEN = _TESTS / "golden" / "histories"
_ALL_SECONDS = 600


@pytest.fixture(scope="session")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of them, lived in a process of their own: sets of strings have one order there."""
    directory = tmp_path_factory.mktemp("histories")
    subprocess.run(
        [sys.executable, "-m", "simulated.record_histories", str(directory)],
        cwd=_TESTS,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        check=True,
        timeout=_ALL_SECONDS,
    )
    return directory


@pytest.mark.parametrize("name", HISTORIES)
def test_a_history_leaves_what_it_left_before(name: str, lived: Path) -> None:
    assert (lived / f"{name}.txt").read_text() == (_GOLDEN / f"{name}.txt").read_text()


def test_there_is_no_record_of_a_history_that_is_gone() -> None:
    assert {path.stem for path in _GOLDEN.iterdir()} == set(HISTORIES)
