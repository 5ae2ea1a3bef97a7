"""CPU time of a tree whose members come and go."""

import pytest
from bench.comparing.process_tree import CpuUsage, ProcessKey, TreeCpu, TreeMemory, process_label

ROOT, JVM, WORKER = ProcessKey(1, 10.0), ProcessKey(2, 11.0), ProcessKey(3, 12.0)


def used(own_seconds: float, reaped_seconds: float = 0.0) -> CpuUsage:
    return CpuUsage(own_seconds, reaped_seconds)


def test_the_living_are_added_up() -> None:
    assert TreeCpu().update({ROOT: used(1), JVM: used(5), WORKER: used(2)}) == 8


def test_a_child_that_ended_and_was_waited_for_counts_once_with_its_last_moments() -> None:
    tree = TreeCpu()
    tree.update({ROOT: used(1), WORKER: used(2)})
    assert tree.update({ROOT: used(1, reaped_seconds=2.5)}) == 3.5


def test_a_child_nobody_waited_for_counts_as_it_was_last_seen() -> None:
    tree = TreeCpu()
    tree.update({ROOT: used(1), WORKER: used(2)})
    assert tree.update({ROOT: used(1.5)}) == 3.5


def test_a_process_with_the_pid_of_another_is_another() -> None:
    tree = TreeCpu()
    tree.update({ROOT: used(1), WORKER: used(2)})
    again = ProcessKey(WORKER.pid, WORKER.created_at + 1)
    assert tree.update({ROOT: used(1), again: used(0.5)}) == 3.5


def test_the_total_stays_when_the_tree_has_ended() -> None:
    tree = TreeCpu()
    tree.update({ROOT: used(1, reaped_seconds=4)})
    assert tree.update({}) == 5
    assert tree.total_seconds == 5


def test_peaks_are_taken_for_each_kind_of_memory() -> None:
    first = TreeMemory(pss_bytes=100, rss_bytes=500, pss_by_process=(("java", 100),))
    second = TreeMemory(pss_bytes=200, rss_bytes=300, pss_by_process=(("java", 150), ("twinlog", 50)))
    peak = TreeMemory(pss_bytes=200, rss_bytes=500, pss_by_process=second.pss_by_process)
    assert first.peak(second) == second.peak(first) == peak


@pytest.mark.parametrize(
    ("command", "label"),
    [
        ("/usr/bin/python3 -m twinlog_source --config f", "twinlog_source"),
        ("python3 -I -S /lib/process_guard.py 3 4", "process_guard.py"),
        ("/opt/bin/java -Xmx1g -cp a.jar:b.jar org.apache.kafka.connect.mirror.MirrorMaker f", "MirrorMaker"),
        ("python3", "python3"),
        ("", "?"),
    ],
)
def test_a_process_is_called_by_what_it_runs(command: str, label: str) -> None:
    assert process_label(command.split()) == label
