"""No name of a group, a topic or a client reaches the terminal as anything but text."""

import io
import json

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from twinlog.cli.common.fields import Column, table_lines
from twinlog.printable import PrintableStream, printable, printable_json
from twinlog.telemetry.logging import configure_logging

HOSTILE = "g\x1b[2J\x1b]0;title\x07\x9b31mx\r\x00\u202eevil"
CONTROLS = {*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0)), "\u202e"} - {"\n"}


@given(st.text())
def test_printable_text_has_no_control_characters_and_ordinary_text_stays(text: str) -> None:
    shown = printable(text)
    assert not (CONTROLS - {"\t"}) & set(shown)
    assert printable(shown) == shown


@pytest.mark.parametrize("width", [None, 80, 30])
def test_a_table_writes_control_characters_out(width: int | None) -> None:
    lines = table_lines(
        [Column(title="group"), Column(title="lag", right=True)], [[HOSTILE, "1"]], width=width
    )
    assert not CONTROLS & set("".join(lines))
    assert r"\x1b[2J" in "".join(lines).replace("\n", "")


@given(st.text())
def test_a_json_document_stays_the_same_document(text: str) -> None:
    document = printable_json(json.dumps({text: [text]}, ensure_ascii=False))
    assert json.loads(document) == {text: [text]}
    assert not CONTROLS & set(document)


def test_a_stream_lets_colours_pass_and_nothing_else() -> None:
    out = io.StringIO()
    PrintableStream(out).write("\x1b[1;31mred\x1b[0m \x1b[2J \x1b[31" + HOSTILE + "\n")
    assert out.getvalue() == "\x1b[1;31mred\x1b[0m \\x1b[2J \\x1b[31" + printable(HOSTILE) + "\n"


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_log_line_writes_them_out(log_stream: io.StringIO, form: str) -> None:
    configure_logging(service="source", version="1", format=form, level="info", stream=log_stream)
    structlog.stdlib.get_logger("twinlog.x").info("group_seen", group=HOSTILE)
    line = log_stream.getvalue()
    assert "group_seen" in line
    assert "\x1b[2J" not in line
    assert not {"\x07", "\x9b", "\r", "\u202e"} & set(line)
