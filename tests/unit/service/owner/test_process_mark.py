"""The mark of a process: who may be called gone, and who must not be."""

import subprocess
import sys

from twinlog.service.owner.opening import is_gone, process_mark


def test_a_process_that_runs_is_not_gone() -> None:
    assert process_mark().count("/") == 3
    assert not is_gone(process_mark())
    assert not is_gone(_with_pid("1")), "it runs, and is somebody else's"


def test_a_process_that_has_ended_is_gone() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", "from twinlog.service.owner.opening import *; print(process_mark())"],
        check=True,
        capture_output=True,
        text=True,
    )
    mark = ended.stdout.strip()
    assert mark.rpartition("/")[0] == process_mark().rpartition("/")[0]
    assert is_gone(mark)


def test_what_cannot_be_judged_from_here_is_not_gone() -> None:
    host, boot, namespace, _ = process_mark().split("/")
    ended = "4194305"  # beyond the greatest process id there is
    assert is_gone(f"{host}/{boot}/{namespace}/{ended}")
    elsewhere = [f"other/{boot}/{namespace}", f"{host}/other/{namespace}", f"{host}/{boot}/1", ""]
    assert not any(is_gone(f"{place}/{ended}") for place in elsewhere)
    assert not any(is_gone(mark) for mark in (ended, ""))
    assert not any(is_gone(_with_pid(pid)) for pid in ("", "-1", "many", "9" * 30))


def _with_pid(pid: str) -> str:
    return f"{process_mark().rpartition('/')[0]}/{pid}"
