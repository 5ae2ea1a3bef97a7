"""Java's `SimpleDateFormat` as far as it is numbers, in UTC, for Connect's `TimestampRouter`. Pure."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from twinlog.errors import ConfigError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MS = int((datetime(1583, 1, 1, tzinfo=UTC) - _EPOCH).total_seconds()) * 1000
"""Java counts earlier days by the Julian calendar."""
_LAST_MS = int((datetime(9999, 12, 31, tzinfo=UTC) - _EPOCH).total_seconds()) * 1000
_PIECES = re.compile(r"'(?:[^']|'')*'|([A-Za-z])\1*|[^A-Za-z']+|'")
_NUMBERS: dict[str, Callable[[datetime], int]] = {
    "y": lambda at: at.year,
    "M": lambda at: at.month,
    "d": lambda at: at.day,
    "D": lambda at: at.timetuple().tm_yday,
    "H": lambda at: at.hour,
    "m": lambda at: at.minute,
    "s": lambda at: at.second,
    "S": lambda at: at.microsecond // 1000,
}
_MOST_NUMBERS_OF_A_MONTH = 2
"""`MMM` is its name."""


@dataclass(frozen=True, slots=True)
class JavaDateFormat:
    pieces: tuple[tuple[str, int], ...]
    """(a letter of the pattern, how many digits at least), or (text, 0)."""

    def of(self, timestamp_ms: int) -> str:
        """Raises ValueError for a moment before 1583 or after 9999."""
        if not _FIRST_MS <= timestamp_ms < _LAST_MS:
            raise ValueError(f"the timestamp {timestamp_ms} is not of the years 1583 to 9999")
        at = _EPOCH + timedelta(milliseconds=timestamp_ms)
        return "".join(_number(letter, digits, at) if digits else letter for letter, digits in self.pieces)


def _number(letter: str, digits: int, at: datetime) -> str:
    number = _NUMBERS[letter](at)
    # Java cuts a year to two digits only where exactly two are asked for.
    return f"{number % 100 if letter == 'y' and digits == 2 else number:0{digits}}"


def java_date_format(pattern: str) -> JavaDateFormat:
    """Raises ConfigError for what is not numbers and text: names, weeks and zones."""
    pieces: list[tuple[str, int]] = []
    for found in _PIECES.finditer(pattern):
        text, letter = found[0], found[1]
        if letter is not None:
            if letter not in _NUMBERS or (letter == "M" and len(text) > _MOST_NUMBERS_OF_A_MONTH):
                raise ConfigError(
                    f"{text!r} is not written as Java does; use {', '.join(_NUMBERS)} as numbers, and text"
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
