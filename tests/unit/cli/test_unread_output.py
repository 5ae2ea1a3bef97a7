"""Nobody reads the output of a command to its end (`head`, `grep -q`): what that does to its exit code."""

import contextvars
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import typer

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.cli.common.call import Call
from twinlog.cli.common.failures import EXIT_UNREAD, FAILED, exiting_with, told_failures
from twinlog.cli.common.fields import Output
from twinlog.cli.copying import CopyProgress
from twinlog.cli.moves.moves import print_run
from twinlog.cli.verify.progress import LINE_EVERY_SECONDS, shown_copy
from twinlog.cli.verify.tables import tell
from twinlog.comparison.model import Difference, DifferenceKind, PartitionProof
from twinlog.errors import ConfigError, StateError
from twinlog.model import Flow, TopicPartition
from twinlog.verify.report import FlowReport

Break = Callable[[str], None]


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> Iterator[Break]:
    """Make `stdout` or `stderr` a pipe that nobody reads any more. In the end nothing is left in its buffer,
    which the interpreter would complain about at its exit."""
    streams = []

    def break_(name: str) -> None:
        reader, writer = os.pipe()
        os.close(reader)
        stream = os.fdopen(writer, "w", encoding="utf-8")
        streams.append(stream)
        monkeypatch.setattr(sys, name, stream)

    yield break_
    for stream in streams:
        stream.close()


def exit_code_of(act: Callable[[], None], failed: int = 1) -> int:
    """Of a command that does this."""

    def run() -> int:
        FAILED.set(failed)
        try:
            with told_failures():
                act()
        except typer.Exit as ended:
            return ended.exit_code
        return 0

    return contextvars.Context().run(run)


@pytest.mark.parametrize("failed", [1, 3])
@pytest.mark.parametrize("length", [10, 100_000], ids=["buffered", "larger than a buffer"])
def test_output_that_is_not_read_to_its_end_is_no_success(unread: Break, failed: int, length: int) -> None:
    unread("stdout")
    assert exit_code_of(lambda: typer.echo("x" * length), failed) == EXIT_UNREAD == 141
    typer.echo("goes nowhere, and fails nothing")


@pytest.mark.parametrize("code", [0, 1, 3])
def test_a_command_exits_with_its_answer_though_nobody_reads_it(unread: Break, code: int) -> None:
    unread("stdout")

    def act() -> None:
        with exiting_with(code):
            typer.echo("the answer")

    assert exit_code_of(act) == code


@pytest.mark.parametrize("code", [0, 1, 3])
def test_a_command_exits_with_its_answer(code: int) -> None:
    def act() -> None:
        with exiting_with(code):
            typer.echo("the answer")

    assert exit_code_of(act) == code


@pytest.mark.parametrize(
    ("error", "code"),
    [(ConfigError("no such file"), 2), (StateError("no owner", reason="X"), 3), (ZeroDivisionError(), 3)],
    ids=["wrong use", "failed", "unexpected"],
)
def test_a_command_fails_as_it_would_where_nobody_reads_why(
    unread: Break, error: Exception, code: int
) -> None:
    unread("stdout")
    unread("stderr")

    def act() -> None:
        raise error

    assert exit_code_of(act, failed=3) == code


def a_report() -> FlowReport:
    proof = PartitionProof(
        source=TopicPartition("orders", 0),
        target=TopicPartition("A.orders", 0),
        source_from=0,
        source_to=10,
        target_from=0,
        target_to=10,
    )
    proof.differences.append(Difference(kind=DifferenceKind.MISSING, source_offset=3, target_offset=3))
    return FlowReport(flow=Flow("A", "B"), began_at_ms=0, ended_at_ms=1, proofs=[proof])


@pytest.mark.parametrize("output", Output)
def test_the_reports_of_a_verification_are_written_though_nobody_reads_it(
    unread: Break, tmp_path: Path, output: Output
) -> None:
    unread("stdout")
    report_file, html_file = tmp_path / "proof.json", tmp_path / "proof.html"
    code = exit_code_of(lambda: tell(a_report(), Call(output=output), report_file, html_file), failed=3)
    assert code == 1
    assert json.loads(report_file.read_text())["verdict"] == "DIFFERENT"
    assert "DIFFERENT" in html_file.read_text()


class FullDisk:
    """A stdout that is a file on a full disk."""

    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")

    def flush(self) -> None: ...

    def isatty(self) -> bool:
        return False


def test_the_reports_of_a_verification_are_written_though_it_cannot_be_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", FullDisk())
    report_file = tmp_path / "proof.json"
    code = exit_code_of(lambda: tell(a_report(), Call(), report_file, None), failed=3)
    assert code == 3
    assert json.loads(report_file.read_text())["verdict"] == "DIFFERENT"


def test_a_verification_and_a_copy_go_on_though_nobody_reads_their_progress(
    unread: Break, monkeypatch: pytest.MonkeyPatch
) -> None:
    unread("stderr")
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    with shown_copy() as show:
        for _ in range(3):
            now += LINE_EVERY_SECONDS
            show(CopyProgress(total_offsets=10, done_offsets=1, troubles={}))


@pytest.mark.parametrize("output", Output)
@pytest.mark.parametrize(("left_behind", "code"), [([], 0), (["orders-0 is not copied"], 1)])
async def test_a_move_exits_with_its_end_though_nobody_reads_its_report(
    unread: Break, output: Output, left_behind: list[str], code: int
) -> None:
    async def events() -> AsyncIterator[pb2.RunFailoverResponse]:
        unread("stdout")
        yield pb2.RunFailoverResponse(report=pb2.MoveReport(left_behind=left_behind))

    ended = 0
    try:
        with told_failures():
            await print_run(events(), output)
    except typer.Exit as error:
        ended = error.exit_code
    assert ended == code


async def test_a_move_that_nobody_follows_has_no_end_yet(unread: Break) -> None:
    async def events() -> AsyncIterator[pb2.RunFailoverResponse]:
        unread("stdout")
        yield pb2.RunFailoverResponse(step=pb2.MoveStep(name="WAIT", message="step 1"))

    with pytest.raises(typer.Exit) as ended, told_failures():
        await print_run(events(), Output.TABLE)
    assert ended.value.exit_code == EXIT_UNREAD
