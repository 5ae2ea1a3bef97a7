r"""Makes text from other programs safe for a terminal.

Ids of groups, client ids and metadata can contain any characters, among them the sequences by which a
terminal clears its screen, sets its title, or shows other text than was written.
"""

import re
from collections.abc import Sequence
from typing import TextIO

_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}
_DIRECTIONS = {
    code: f"\\u{code:04x}" for code in (0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}
"""Marks that make a terminal write from right to left."""
_SHOWN = {**_CONTROLS, **_DIRECTIONS}
_IN_JSON = {code: f"\\u{code:04x}" for code in _SHOWN if code >= 0x20}
_COLOUR = re.compile("(\x1b\\[[0-9;]*m)")
_HARMLESS = re.compile(
    "(?:[^\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]|\x1b\\[[0-9;]*m)*+"
)
"""Text, and sequences that change a colour."""


def printable(text: str) -> str:
    r"""The text with its control characters written out; line ends and tabs stay.

    >>> print(printable("a\x1b[2Jb"))
    a\x1b[2Jb
    """
    return text.translate(_SHOWN)


def listed(names: Sequence[str], most: int = 10, *, count: int | None = None) -> str:
    """The first of these names, or of the `count` whose first they are.

    >>> listed(["a", "b", "c"], 2), listed(["a", "b"], count=5)
    ('a, b and 1 more', 'a, b and 3 more')
    """
    shown = names[:most]
    more = (len(names) if count is None else count) - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more > 0 else "")


def printable_json(document: str) -> str:
    """A JSON document with the control characters that JSON allows escaped; its meaning is the same."""
    return document.translate(_IN_JSON)


class PrintableStream:
    """A text stream that passes colours and escapes every other control sequence."""

    def __init__(self, stream: TextIO) -> None:
        self.unfiltered = stream

    def write(self, text: str) -> int:
        if _HARMLESS.fullmatch(text) is None:
            text = "".join(
                part if number % 2 else printable(part)  # every second part is a colour
                for number, part in enumerate(_COLOUR.split(text))
            )
        return self.unfiltered.write(text)

    def __getattr__(self, name: str) -> object:
        return getattr(self.unfiltered, name)
