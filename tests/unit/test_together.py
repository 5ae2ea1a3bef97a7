import subprocess
import sys
from pathlib import Path

import together

_TEST = """
import os
from pathlib import Path
import pytest

@pytest.mark.parametrize("number", range(6))
def test_it(number):
    name = Path(__file__).stem
    (Path.cwd() / f"{name} {number}").write_text(str(os.getpid()))
"""
_CONFTEST = """
from together import Together

def pytest_xdist_make_scheduler(config, log):
    return Together(config, log)
"""


def test_tests_of_a_file_and_of_files_that_share_run_in_one_process(tmp_path: Path) -> None:
    """Else each process of a run starts what they share."""
    (tmp_path / "conftest.py").write_text(_CONFTEST)
    for name in ("e2e/one_run/test_a", "e2e/one_run/test_b", "simulated/test_c", "simulated/test_d"):
        file = tmp_path / "tests" / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(_TEST)
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-n",
            "2",
            "--rootdir",
            ".",
            "-p",
            "no:cacheprovider",
            "tests",
        ],
        cwd=tmp_path,
        env={"PYTHONPATH": str(Path(together.__file__).parent)},
        check=True,
    )
    by_file = {
        name: {(tmp_path / f"test_{name} {number}").read_text() for number in range(6)} for name in "abcd"
    }
    assert by_file["a"] == by_file["b"]
    assert {len(processes) for processes in by_file.values()} == {1}
    assert len(set.union(*by_file.values())) == 2
