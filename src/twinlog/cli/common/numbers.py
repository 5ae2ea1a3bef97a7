"""The limits of numbers on the command line: partitions, offsets and seconds that Kafka and the services
support."""

from typing import Final

from twinlog.errors import ConfigError

MOST_PARTITION: Final = 2**31 - 1
MOST_OFFSET: Final = 2**63 - 1
MOST_SECONDS: Final = 366 * 86_400
"""A year: longer waits make no sense, and `inf` is not a time."""


def counted(count: int, word: str) -> str:
    """`1 error`, `1,200 errors`."""
    return f"1 {word}" if count == 1 else f"{count:,} {word}s"


def whole_number(text: str, most: int) -> int | None:
    """The whole number from 0 to `most` in the text; None if it is anything else."""
    if not (text.isascii() and text.isdecimal()) or len(text.lstrip("0")) > len(str(most)):
        return None
    number = int(text.lstrip("0") or "0")
    return number if number <= most else None


def offset_of(text: str, option: str) -> int:
    """The offset in an option or an argument. Raises ConfigError."""
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
    """In quotes; of a long text only the beginning."""
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}…"


_SHOWN = 80


def producer_words(producer_id: int) -> str:
    """Who wrote a batch, by its header.

    >>> producer_words(-1)
    'a producer without idempotence (id -1)'
    """
    return f"producer id {producer_id}" if producer_id >= 0 else "a producer without idempotence (id -1)"
