"""Java properties files, against what java.util.Properties itself reads."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.errors import ConfigError
from twinlog.properties import Property, parse

Golden = Callable[[str], list[dict[str, Any]]]


def values(content: bytes) -> dict[str, str]:
    return {key: prop.value for key, prop in parse(content, file="f").entries.items()}


def test_every_file_reads_as_java_reads_it(golden: Golden) -> None:
    vectors = golden("java_properties")
    assert any(vector["properties"] is None for vector in vectors)
    for vector in vectors:
        content = bytes.fromhex(vector["file"])
        try:
            found: dict[str, str] | None = values(content)
        except ConfigError:
            found = None
        assert found == vector["properties"], content


def test_each_key_knows_the_line_it_begins_on() -> None:
    parsed = parse(b"# a comment\n\na = 1\\\n  2\n\nb = 3\r\rc = 4", file="f")
    assert {key: prop.line for key, prop in parsed.entries.items()} == {"a": 3, "b": 6, "c": 8}


def test_the_later_of_two_equal_keys_wins_and_the_earlier_is_told() -> None:
    parsed = parse(b"a=1\nb=2\na=3\na=4", file="f")
    assert parsed.entries["a"] == Property(key="a", value="4", line=4)
    assert [(prop.value, prop.line) for prop in parsed.overridden] == [("1", 1), ("3", 3)]


@pytest.mark.parametrize(
    ("content", "line", "text"),
    [
        (b"a = 1\npassword = x\\u12g4", 2, "four hexadecimal digits"),
        (b"password = \\u12", 1, "four hexadecimal digits"),
        (b"\xef\xbb\xbfclusters = A", 1, "byte-order mark"),
    ],
)
def test_what_cannot_be_read_names_file_and_line_and_no_value(content: bytes, line: int, text: str) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        parse(content, file="mm2.properties")
    assert str(caught.value).startswith(f"mm2.properties:{line}: ")
    assert "12" not in str(caught.value)


def test_utf_8_when_asked_for() -> None:
    assert parse("a = é".encode(), file="f", encoding="utf-8").entries["a"].value == "é"
    with pytest.raises(ConfigError, match="f:2: a byte that is not utf-8"):
        parse(b"b = 1\na = \xe9", file="f", encoding="utf-8")


def test_repr_shows_no_value() -> None:
    assert "hunter2" not in repr(parse(b"password = hunter2\npassword = hunter23", file="f"))


def escaped(text: str) -> str:
    """As Properties.store escapes: every character that means something, and all that is not Latin-1."""
    special = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}
    units = text.encode("utf-16-be")
    chars = [chr(int.from_bytes(units[i : i + 2], "big")) for i in range(0, len(units), 2)]
    return "".join(
        special.get(char)
        or (f"\\u{ord(char):04x}" if ord(char) > 0xFF else f"\\{char}" if char in "=: #!\\" else char)
        for char in chars
    )


TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.dictionaries(TEXT.filter(bool), TEXT, max_size=5))
def test_what_is_written_is_read(entries: dict[str, str]) -> None:
    content = "\n".join(f"{escaped(key)}={escaped(value)}" for key, value in entries.items())
    assert values(content.encode("latin-1")) == entries
