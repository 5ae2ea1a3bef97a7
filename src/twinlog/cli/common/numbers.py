"""What numbers of commands may be: partitions, offsets and seconds that Kafka and the services can hold."""

from typing import Final

from twinlog.errors import ConfigError

MOST_PARTITION: Final = 2**31 - 1
MOST_OFFSET: Final = 2**63 - 1
MOST_SECONDS: Final = 366 * 86_400
"""A year: nobody waits longer, and `inf` is no time."""


def whole_number(text: str, most: int) -> int | None:
    """The number from 0 up to `most` that the text is; None: it is another one, or none."""
    if not (text.isascii() and text.isdecimal()) or len(text.lstrip("0")) > len(str(most)):
        return None
    number = int(text.lstrip("0") or "0")
    return number if number <= most else None


def offset_of(text: str, option: str) -> int:
    """An offset that an option or an argument names. Raises ConfigError."""
    return _bounded(text, MOST_OFFSET, "an offset", option)


def partition_of(text: str, option: str) -> int:
    """Raises ConfigError."""
    return _bounded(text, MOST_PARTITION, "a partition", option)


def _bounded(text: str, most: int, what: str, option: str) -> int:
    number = whole_number(text, most)
    if number is None:
        raise ConfigError(f"{shortened(text)} is not {what} from 0 to {most}", metadata={"key": option})
    return number


def shortened(text: str) -> str:
    """In quotes; of what is too long for a line only the beginning."""
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}…"


_SHOWN = 80
