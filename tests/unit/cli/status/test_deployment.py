"""`twinlog status` names the deployment that answered, and says when it is not the one meant."""

import pytest

from twinlog.cli.status.rows import ServiceRow
from twinlog.cli.status.view import deployment_lines
from twinlog.service.answering_process import AnsweringProcess

OURS, THEIRS = "/etc/ours.properties", "/etc/theirs.properties"


def rows(*files: str, hosts: tuple[str, ...] = ("vm", "vm")) -> list[ServiceRow]:
    names = ("source", "checkpoint")
    return [
        ServiceRow(name=name, endpoint="h:1", config=file, host=host)
        for name, file, host in zip(names, files, hosts, strict=True)
    ]


def lines(services: list[ServiceRow], asked_file: str | None = OURS) -> list[str]:
    return deployment_lines(services, asked_file=asked_file, own_host="vm")


def test_one_deployment_is_one_line() -> None:
    assert lines(rows(OURS, OURS)) == [f"deployment: {OURS} on vm"]


def test_what_answers_at_the_default_ports_may_be_somebody_elses() -> None:
    assert lines(rows(THEIRS, THEIRS), None) == [f"deployment: {THEIRS} on vm (asked without --config FILE)"]


def test_services_of_another_file_are_not_taken_for_those_of_the_file_that_was_given() -> None:
    assert lines(rows(THEIRS, THEIRS)) == [
        f"deployment: {THEIRS} on vm",
        f"the services at the addresses in {OURS} run with another properties file",
    ]
    away = rows(THEIRS, THEIRS, hosts=("pod", "pod"))
    assert lines(away) == [f"deployment: {THEIRS} on pod"], "paths of two machines are not compared"


def test_services_of_two_files_are_no_deployment() -> None:
    told = lines(rows(OURS, THEIRS))
    assert told[:2] == [f"deployment: {OURS} on vm (source)", f"deployment: {THEIRS} on vm (checkpoint)"]
    assert "different deployments" in told[2]


def test_one_file_on_several_hosts_is_one_deployment() -> None:
    assert lines(rows(OURS, OURS, hosts=("vm", "pod"))) == [
        f"deployment: {OURS} on vm (source)",
        f"deployment: {OURS} on pod (checkpoint)",
    ]


def test_what_does_not_answer_or_does_not_tell_names_nothing() -> None:
    assert lines(rows("", ""), None) == []
    assert lines(rows("", OURS)) == [f"deployment: {OURS} on vm"]


def test_a_process_is_told_in_metadata_whatever_its_file_is_called() -> None:
    process = AnsweringProcess(host="vm", pid=7, config="/tmp/größe und\n.properties")
    assert process.metadata().isascii()
    assert process.metadata().isprintable()
    assert AnsweringProcess.of_metadata(process.metadata()) == process


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"host": "a", "pid": "x", "config": ""}'])
def test_what_another_version_tells_is_no_process(text: str) -> None:
    assert AnsweringProcess.of_metadata(text) is None
