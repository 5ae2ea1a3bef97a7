"""Java's `SimpleDateFormat` as far as it is numbers, in UTC, for Connect's `TimestampRouter`. Pure."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from twinlog.errors import ConfigError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CYCLE_YEARS = 400
_CYCLE_MS = 146_097 * 86_400_000
"""So long the calendar takes to repeat itself: Python knows no year after 9999."""
_PIECES = re.compile(r"'(?:[^']|'')*'|([A-Za-z])\1*|[^A-Za-z']+|'")
_NUMBERS: dict[str, Callable[[datetime], int]] = {
    "M": lambda at: at.month,
    "d": lambda at: at.day,
    "D": lambda at: at.timetuple().tm_yday,
    "H": lambda at: at.hour,
    "m": lambda at: at.minute,
    "s": lambda at: at.second,
    "S": lambda at: at.microsecond // 1000,
}
_LETTERS = ("y", *_NUMBERS)
_MOST_NUMBERS_OF_A_MONTH = 2
"""`MMM` is its name."""


@dataclass(frozen=True, slots=True)
class JavaDateFormat:
    pieces: tuple[tuple[str, int], ...]
    """(a letter of the pattern, how many digits at least), or (text, 0)."""

    def of(self, timestamp_ms: int) -> str:
        """Java counts the days before 1583 otherwise; Kafka has no such timestamps."""
        cycles, rest_ms = divmod(timestamp_ms, _CYCLE_MS)
        at = _EPOCH + timedelta(milliseconds=rest_ms)
        year = at.year + cycles * _CYCLE_YEARS
        return "".join(
            _number(letter, digits, year, at) if digits else letter for letter, digits in self.pieces
        )


def _number(letter: str, digits: int, year: int, at: datetime) -> str:
    if letter == "y":
        # Java cuts a year to two digits only where exactly two are asked for.
        return f"{year % 100 if digits == 2 else year:0{digits}}"
    return f"{_NUMBERS[letter](at):0{digits}}"


def java_date_format(pattern: str) -> JavaDateFormat:
    """Raises ConfigError for what is not numbers and text: names, weeks and zones."""
    pieces: list[tuple[str, int]] = []
    for found in _PIECES.finditer(pattern):
        text, letter = found[0], found[1]
        if letter is not None:
            if letter not in _LETTERS or (letter == "M" and len(text) > _MOST_NUMBERS_OF_A_MONTH):
                raise ConfigError(
                    f"{text!r} is not written as Java does; use {', '.join(_LETTERS)} as numbers, and text"
                    " in quotes"
                )
            pieces.append((letter, len(text)))
        elif text == "'":
            raise ConfigError("has a quote that does not end")
        elif text.startswith("'"):
            pieces.append((text[1:-1].replace("''", "'") or "'", 0))
        else:
            pieces.append((text, 0))
    return JavaDateFormat(tuple(pieces))
