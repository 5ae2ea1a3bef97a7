"""Java's `SimpleDateFormat`, in UTC and English, for the names of topics."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from twinlog.errors import ConfigError, WireFormatError

_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
           "November", "December")  # fmt: skip
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_TOKEN = re.compile(r"''|'((?:[^']|'')*)'|([a-zA-Z])\2*|[^a-zA-Z']+")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TEXT_FROM = 3
"""As many `M` make the name of a month, shortened; one more is the whole name."""


@dataclass(frozen=True, slots=True)
class DateFormat:
    written: str
    parts: tuple[str | tuple[str, int], ...]
    """Text, or (letter, how often it stands there)."""

    def of(self, timestamp_ms: int) -> str:
        """Raises WireFormatError (RECORD_NOT_TRANSFORMED) for a time outside the years 1 to 9999."""
        try:
            at = _EPOCH + timedelta(milliseconds=timestamp_ms)
        except OverflowError as error:
            raise WireFormatError(
                f"the timestamp {timestamp_ms} lies outside the years 1 to 9999",
                reason="RECORD_NOT_TRANSFORMED",
            ) from error
        return "".join(
            part if isinstance(part, str) else _LETTERS[part[0]](at, part[1]) for part in self.parts
        )


def parse_date_format(text: str) -> DateFormat:
    """Raises ConfigError for a letter that has no meaning, and for a quote that does not end."""
    parts: list[str | tuple[str, int]] = []
    position = 0
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            raise ConfigError("has a quote (') that does not end")
        position = token.end()
        letter = token[2]
        if letter:
            if letter not in _LETTERS:
                raise ConfigError(f"has the letter {letter!r}, which has no meaning in a date format")
            parts.append((letter, len(token[0])))
        elif token[0] == "''":
            parts.append("'")
        else:
            parts.append(token[0] if token[1] is None else token[1].replace("''", "'"))
    return DateFormat(text, tuple(parts))


def _number(of: Callable[[datetime], int]) -> Callable[[datetime, int], str]:
    return lambda at, count: str(of(at)).zfill(count)


def _year(of: Callable[[datetime], int]) -> Callable[[datetime, int], str]:
    return lambda at, count: str(of(at) % 100).zfill(2) if count == 2 else str(of(at)).zfill(count)


def _month(at: datetime, count: int) -> str:
    if count < _TEXT_FROM:
        return str(at.month).zfill(count)
    name = _MONTHS[at.month - 1]
    return name[:3] if count == _TEXT_FROM else name


def _day_name(at: datetime, count: int) -> str:
    name = _DAYS[at.weekday()]
    return name if count > _TEXT_FROM else name[:3]


def _from_sunday(at: datetime) -> int:
    return at.isoweekday() % 7


def _week_year(at: datetime) -> int:
    """The year of the week in which a day lies; the week of the first of January is the first."""
    to_saturday = timedelta(days=6 - _from_sunday(at))
    return (at + to_saturday).year if at.month == 12 and at.day > 25 and at.year < 9999 else at.year


def _week(at: datetime) -> int:
    if _week_year(at) > at.year:
        return 1
    day = at.timetuple().tm_yday - 1
    return (day + _from_sunday(at - timedelta(days=day))) // 7 + 1


def _week_of_month(at: datetime) -> int:
    return (at.day - 1 + _from_sunday(at - timedelta(days=at.day - 1))) // 7 + 1


_LETTERS: Mapping[str, Callable[[datetime, int], str]] = {
    "G": lambda _at, _count: "AD",
    "y": _year(lambda at: at.year),
    "Y": _year(_week_year),
    "M": _month,
    "L": _month,
    "w": _number(_week),
    "W": _number(_week_of_month),
    "D": _number(lambda at: at.timetuple().tm_yday),
    "d": _number(lambda at: at.day),
    "F": _number(lambda at: (at.day - 1) // 7 + 1),
    "E": _day_name,
    "u": _number(lambda at: at.isoweekday()),
    "a": lambda at, _count: "AM" if at.hour < 12 else "PM",
    "H": _number(lambda at: at.hour),
    "k": _number(lambda at: at.hour or 24),
    "K": _number(lambda at: at.hour % 12),
    "h": _number(lambda at: at.hour % 12 or 12),
    "m": _number(lambda at: at.minute),
    "s": _number(lambda at: at.second),
    "S": _number(lambda at: at.microsecond // 1000),
    "z": lambda _at, count: "UTC" if count <= _TEXT_FROM else "Coordinated Universal Time",
    "Z": lambda _at, _count: "+0000",
    "X": lambda _at, _count: "Z",
}
"""What each letter stands for: `java.text.SimpleDateFormat`, the table "Date and Time Patterns"."""
