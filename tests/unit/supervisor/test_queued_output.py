"""Output that nobody reads for a while: nothing waits for the reader, and what was dropped is told."""

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.supervisor.log_lines import LogLines
from twinlog.supervisor.queued_output import Line, LineWriter, QueuedStream, WaitingLines, queued_output
from twinlog.supervisor.streams import write_line
from twinlog.testing.fakes.clock import FakeClock

FOR_EVER = 60.0
"""Nothing waits for so long: the reader is there."""


@given(
    st.lists(st.one_of(st.integers(1, 400), st.none()), max_size=60),
    st.integers(min_value=sys.getsizeof(b""), max_value=30_000),
)
def test_waiting_lines_are_bounded_in_order_and_those_that_are_missing_are_counted_at_their_place(
    steps: list[int | None], most_bytes: int
) -> None:
    """A number puts a line of this length, None takes one."""
    waiting = WaitingLines(most_bytes=most_bytes)
    put = 0
    found: list[Line | int | None] = []
    for step in steps:
        if step is None:
            found.append(waiting.take())
        else:
            waiting.put((put, b"x" * step))
            put += 1
    left: list[Line | int] = []
    while (each := waiting.take()) is not None:
        left.append(each)
    assert sum(sys.getsizeof(each[1]) for each in left if not isinstance(each, int)) <= most_bytes
    number = missing = 0
    for each in (*found, *left):
        if isinstance(each, int):
            number += each
            missing += each
        elif each is not None:
            assert each[0] == number, "in order, and nothing else is missing before it"
            number += 1
    assert number == put
    if most_bytes >= sum(sys.getsizeof(b"x" * (step or 0)) for step in steps):
        assert missing == 0


def test_a_line_that_fits_is_not_dropped() -> None:
    size = sys.getsizeof(b"abc")
    waiting = WaitingLines(most_bytes=2 * size)
    for number in range(4):
        waiting.put((number, b"abc"))
    assert [waiting.take() for _ in range(4)] == [(0, b"abc"), (1, b"abc"), 2, None]
    waiting.put((9, b"abc"))
    assert waiting.take() == (9, b"abc")


@dataclass
class Pipe:
    """A pipe with a QueuedStream at its writing end, and room for one line that is not read."""

    reader: IO[bytes]
    writer: LineWriter
    stream: QueuedStream

    def read_lines(self) -> list[str]:
        """To its end."""
        return self.reader.read().decode().splitlines()


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as read, os.fdopen(writer, "w", encoding="utf-8") as written:
        lines = LineWriter(most_bytes=200_000)
        yield Pipe(read, lines, QueuedStream(written, lines))
        # The thread must not write to a descriptor that is closed, and soon another file.
        read.close()
        lines.close(timeout_seconds=FOR_EVER)


def test_nothing_waits_for_a_reader_that_stands_still(pipe: Pipe) -> None:
    """Without a queue, the first write would never end: no pipe has room for it."""
    for number in range(1_000):
        write_line(pipe.stream, f"{number} " + "x" * 2_000)
    assert not pipe.writer.close(timeout_seconds=0.0)


def test_a_reader_that_comes_back_gets_what_waited_in_order_and_is_told_how_much_is_missing(
    pipe: Pipe,
) -> None:
    log = LogLines(pipe.stream, format="console", clock=FakeClock())
    pipe.stream.tell_dropped(log.dropped)
    for number in range(1_000):
        write_line(pipe.stream, f"{number} " + "x" * 2_000)
    read: list[str] = []
    while not read or "log_lines_dropped" not in read[-1]:
        read.append(pipe.reader.readline().decode())
    numbers = [int(line.split()[0]) for line in read[:-1]]
    assert numbers == list(range(len(numbers)))
    assert f"lines={1_000 - len(numbers)} " in read[-1]
    write_line(pipe.stream, "the next one")
    assert pipe.reader.readline() == b"the next one\n"
    pipe.writer.close(timeout_seconds=FOR_EVER)


def test_a_reader_that_is_gone_loses_lines_and_fails_nothing(pipe: Pipe) -> None:
    pipe.reader.close()
    for _ in range(3):
        write_line(pipe.stream, "x" * 100_000)
    assert pipe.writer.close(timeout_seconds=FOR_EVER)


def test_a_pipe_that_another_process_has_made_non_blocking_loses_nothing(pipe: Pipe) -> None:
    os.set_blocking(pipe.stream.fileno(), False)
    write_line(pipe.stream, "x" * 150_000)
    assert pipe.reader.readline() == b"x" * 150_000 + b"\n"
    pipe.writer.close(timeout_seconds=FOR_EVER)


def test_stdout_and_stderr_of_one_pipe_keep_their_order_and_are_written_before_the_end() -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as read:
        with (
            os.fdopen(writer, "w") as out,
            os.fdopen(os.dup(writer), "w") as err,
            queued_output(out, err) as (stdout, stderr),
        ):
            for number in range(100):
                write_line(stderr if number % 3 else stdout, str(number))
        assert read.read().split() == [b"%d" % number for number in range(100)]


def test_stdout_does_not_wait_for_the_reader_of_stderr() -> None:
    (reader, writer), (unread, full) = os.pipe(), os.pipe()
    with (
        os.fdopen(reader, "rb") as read,
        os.fdopen(writer, "w") as out,
        os.fdopen(full, "w") as err,
        queued_output(out, err) as (stdout, stderr),
    ):
        write_line(stderr, "x" * 1_000_000)
        write_line(stdout, "ready: …")
        assert read.readline().decode() == "ready: …\n"
        os.close(unread)


def test_a_character_that_the_encoding_of_a_stream_does_not_have_is_written_out() -> None:
    reader, writer = os.pipe()
    with (
        os.fdopen(reader, "rb") as read,
        os.fdopen(writer, "w", encoding="ascii") as out,
        queued_output(out, out) as (stdout, _),
    ):
        write_line(stdout, "größe")
        assert read.readline() == b"gr\\xf6\\xdfe\n"
