"""Which tests run in the same process."""

from itertools import chain

from shared_work import SharedWork, groups_of


def test_the_tests_of_a_file_run_in_one_process_in_the_order_of_the_files() -> None:
    assert groups_of(["tests/e2e/b.py::x", "tests/e2e/a.py::x", "tests/e2e/b.py::y[a::b]"]) == [[0, 2], [1]]


def test_files_that_share_what_is_slow_to_start_run_in_one_process() -> None:
    shared = ["tests/e2e/one_run/a.py::x", "tests/e2e/other.py::x", "tests/e2e/one_run/b.py::x"]
    assert groups_of(shared) == [[0, 2], [1]]


def test_many_unit_tests_of_a_file_are_split() -> None:
    groups = groups_of([f"tests/unit/a.py::x[{number}]" for number in range(100)])
    assert [len(group) for group in groups] == [40, 40, 20]
    assert list(chain(*groups)) == list(range(100))


def test_each_group_is_taken_once() -> None:
    work = SharedWork([f"tests/e2e/{number}.py::x" for number in range(3_000)], slots=2)
    taken = iter(work.take, None)
    assert list(taken) == list(range(3_000))


def test_the_test_that_each_process_is_in_is_known() -> None:
    work = SharedWork(["a.py::x", "b.py::x"], slots=2)
    with work.marked_as_running(0, 0), work.marked_as_running(1, 1):
        assert (work.running(0), work.running(1)) == (0, 1)
    assert (work.running(0), work.running(1)) == (None, None)
    work.stop()
    assert work.is_stopped
