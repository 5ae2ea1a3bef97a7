"""Pages of long answers: the number of entries in one message, and the start of the next page. Pure.

Without a page size an answer holds as much as one message takes. A token follows when there is more.
"""

import base64
import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar, cast
from uuid import uuid4

from twinlog.errors import ConfigError
from twinlog.service.limits import MAX_MESSAGE_BYTES

PAGED_ANSWERS = 16
"""Most answers kept until their last page was requested."""
_ROOM_BYTES = 64 << 10
"""Free space in a message for the token and all but the entries."""
_ENTRY_BYTES = 8
"""Most bytes for the tag and length of one entry."""


class SizedMessage(Protocol):
    """A protobuf message."""

    def ByteSize(self) -> int: ...  # noqa: N802


MessageT = TypeVar("MessageT", bound=SizedMessage)
T = TypeVar("T")
HeadT = TypeVar("HeadT")


def checked_page_size(size: int) -> int:
    """The size as given; 0 = as many as fit. Raises ConfigError (INVALID_PAGE_SIZE) for a negative one."""
    if size < 0:
        raise ConfigError(f"page_size {size}: expected 0 or more", reason="INVALID_PAGE_SIZE")
    return size


def bad_token(token: str) -> ConfigError:
    shown = token if len(token) <= 80 else token[:80] + "…"
    return ConfigError(
        f"page_token {shown!r} is not one of this service, or too old: begin with the first page",
        reason="INVALID_PAGE_TOKEN",
    )


def page_of(entries: Iterable[MessageT], *, size: int, beside_bytes: int = 0) -> tuple[list[MessageT], bool]:
    """The first entries that fill the page, and whether there are more; at least one entry if there is any.

    `size`: most entries, 0 = any number. `beside_bytes`: size of the message without them.
    """
    room = MAX_MESSAGE_BYTES - _ROOM_BYTES - beside_bytes
    page: list[MessageT] = []
    for entry in entries:
        room -= entry.ByteSize() + _ENTRY_BYTES
        if page and (room < 0 or len(page) == size):
            return page, True
        page.append(entry)
    return page, False


Key = tuple[str | int, ...]


def page_behind(
    rows: Iterable[T],
    after: Key | None,
    *,
    key: Callable[[T], Key],
    message: Callable[[T], MessageT],
    size: int,
    beside_bytes: int = 0,
) -> tuple[list[MessageT], str]:
    """The page behind the row with the key `after`, and the token of the next one; `rows` are in the order of
    their keys. Rows that come and go between two pages move no other."""
    shown: list[Key] = []

    def told(row: T) -> MessageT:
        shown.append(key(row))
        return message(row)

    left = (told(row) for row in rows if after is None or key(row) > after)
    page, more = page_of(left, size=size, beside_bytes=beside_bytes)
    return page, _encoded(shown[len(page) - 1]) if more else ""


def _encoded(key: Key) -> str:
    return base64.urlsafe_b64encode(json.dumps(key, separators=(",", ":")).encode()).decode()


def key_of(token: str, kinds: Sequence[type]) -> Key | None:
    """The key that `page_behind` put into a token; None for the first page. Raises ConfigError
    (INVALID_PAGE_TOKEN)."""
    if not token:
        return None
    try:
        parts = json.loads(base64.urlsafe_b64decode(token.encode()))
    except (ValueError, RecursionError):
        raise bad_token(token) from None
    if not isinstance(parts, list) or [type(part) for part in parts] != list(kinds):
        raise bad_token(token)
    return tuple(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptAnswer(Generic[T, HeadT]):
    """A whole answer as of the request for its first page."""

    subject: object
    """The subject of the question, such as the flow. A token of another subject is refused."""
    rows: Sequence[T]
    head: HeadT
    """The fields on every page."""


@dataclass(slots=True)
class KeptAnswers(Generic[T, HeadT]):
    """Answers that cost a look at clusters: later pages come from the same look. For one event loop.

    Keeps only answers of more than one page, and of these the `most` newest.
    """

    most: int = PAGED_ANSWERS
    new_id: Callable[[], str] = field(default=lambda: uuid4().hex)
    _kept: OrderedDict[str, KeptAnswer[T, HeadT]] = field(default_factory=OrderedDict)

    def at(self, token: str, *, subject: object) -> tuple[KeptAnswer[T, HeadT], int]:
        """The answer of a token, and the first row of its page.

        Raises ConfigError (INVALID_PAGE_TOKEN).
        """
        name, _, number = token.partition(":")
        answer = self._kept.get(name)
        if answer is None or answer.subject != subject or not _is_number(number):
            raise bad_token(token)
        first = int(number)
        if first >= len(answer.rows):
            raise bad_token(token)
        return answer, first

    def next_token(self, answer: KeptAnswer[T, HeadT], token: str, *, shown: int) -> str:
        """The token of the page after row `shown`; "" after the last row.

        `token`: of the current page, "" for the first.
        """
        if shown >= len(answer.rows):
            return ""
        name = token.partition(":")[0]
        if not name:
            name = self.new_id()
            self._kept[name] = answer
            while len(self._kept) > self.most:
                self._kept.popitem(last=False)
        return f"{name}:{shown}"


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18


async def every(method: Callable[..., Awaitable[T]], request: Any, rows: str, **how: float) -> T:
    """The answer of a method with the rows of all its pages, if it has any; `rows` is their path in it."""
    asked = type(request)()
    asked.CopyFrom(request)
    whole: Any = await method(asked, **how)
    while getattr(whole, "next_page_token", ""):
        asked.page_token = whole.next_page_token
        page: Any = await method(asked, **how)
        _rows(whole, rows).extend(_rows(page, rows))
        whole.next_page_token = page.next_page_token
    return cast("T", whole)


def _rows(message: Any, path: str) -> Any:
    for name in path.split("."):
        message = getattr(message, name)
    return message
