"""States in colour, for terminals: green is as it should be, yellow waits, red needs somebody. Pure."""

import re
from collections.abc import Mapping
from typing import Final

_GREEN, _YELLOW, _RED, _PLAIN = "\x1b[32m", "\x1b[33m", "\x1b[31m", "\x1b[0m"
_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    _GREEN: ("RUNNING", "SERVING", "ALIVE", "READY", "EXACT", "PRESERVED", "UP_TO_DATE", "EQUAL", "PROVEN"),
    _YELLOW: (
        *("PAUSED", "PAUSE", "WAITING", "BACKOFF", "FLOOR", "ACTIVE_ON_TARGET", "FENCE", "MOVE", "LIMIT"),
        *("BEFORE_START", "NOT_READY", "UNKNOWN", "INCOMPLETE"),
    ),
    _RED: (
        *("FAULTED", "STALLED", "DOWN", "NOT_SERVING", "SILENT", "GAPS", "DIFFERS", "DIFFERENT", "FOREIGN"),
        *("NO_SYNC", "NOT_REPLICATED", "TOO_OLD", "PAST_END", "SOURCE_UNREADABLE", "TARGET_UNREADABLE"),
        "SHARED_COPY",
    ),
}
_COLOURS: Final = {word: colour for colour, words in _WORDS.items() for word in words}
_WORD: Final = re.compile(rf"(?<![\w.-])(?:{'|'.join(sorted(_COLOURS, key=len, reverse=True))})(?![\w.-])")


def toned(line: str) -> str:
    """The line with its states in colour; names of topics and groups stay plain.

    >>> toned("orders-0  FAULTED")
    'orders-0  \\x1b[31mFAULTED\\x1b[0m'
    """
    return _WORD.sub(lambda found: f"{_COLOURS[found.group()]}{found.group()}{_PLAIN}", line)
