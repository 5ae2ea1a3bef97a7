"""The server's half of a watch: items by key, every change numbered, resumable by an opaque token.

A watcher without a token gets a snapshot, then changes. One with a token gets the changes after it.
Guarantee: at least once, in the order of the changes. All watchers share one bounded history, so a slow
watcher costs no memory: its place is lost (RESUME_TOKEN_EXPIRED) and it starts again from a snapshot.

Events are watched with every change. Of states (`conflate`) only the last change of each key is kept, so that
a slow watcher gets the newest state of each and never falls behind.
"""

import asyncio
import struct
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Hashable
from contextlib import aclosing
from dataclasses import dataclass
from itertools import takewhile
from typing import Generic, TypeVar

from opentelemetry.metrics import Meter

from twinlog.errors import ConfigError
from twinlog.service.errors_wire import ExhaustedError, ResumeTokenExpiredError
from twinlog.service.runtime import wait_for_any, wait_or_stop
from twinlog.telemetry import instruments
from twinlog.telemetry.metrics.service import WATCH_DROPPED, WATCH_STREAM_ACTIVE

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

PROGRESS_SECONDS = 10.0

_PLACES_OF_PEERS = 50
"""Places beyond those for everybody: people who leave watches open must not block the service's peers."""
_TOKEN_VERSION = 1
_TOKEN = struct.Struct(">B16sQ")
"""version, first 16 bytes of the history's id, sequence of the last change that the holder has seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotItem(Generic[K, V]):
    """An item of the initial snapshot. Its token is empty: a snapshot resumes from its start."""

    key: K
    item: V
    token: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotEnd(Generic[K]):
    """The snapshot is complete; `marks` are those set so far, in order."""

    marks: tuple[K, ...]
    token: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed(Generic[K, V]):
    """An item is new or differs."""

    key: K
    item: V
    token: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed(Generic[K, V]):
    """An item was removed; `item` is its last state."""

    key: K
    item: V
    token: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Marked(Generic[K]):
    """A mark was set (a flow's selection is complete)."""

    mark: K
    token: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Nothing changed for a while; the token is fresh."""

    token: bytes


Change = Changed[K, V] | Removed[K, V] | Marked[K]
Event = SnapshotItem[K, V] | SnapshotEnd[K] | Changed[K, V] | Removed[K, V] | Marked[K] | Progress


class ResumableRegistry(Generic[K, V]):
    """Items by key, marks, and the last `history_size` changes. For one event loop.

    Invariants:
    - A. a change's sequence is one more than that of the change before it, whatever its kind;
    - B. applying all changes after a token to the state at that token gives the present state;
    - C. an equal `put`, a `remove` of a missing item and a repeated `mark` are no changes;
    - D. with `conflate`, a change of a key replaces the one before it in the history; applying the rest gives
      the same state.
    """

    def __init__(
        self,
        *,
        history_id: str,
        meter: Meter,
        rpc_method: str,
        history_size: int = 10_000,
        max_watchers: int = 100,
        conflate: bool = False,
    ) -> None:
        """`history_id` names this history (the process's instance id): tokens of another one are refused. The
        streams are counted under `rpc_method` ("twinlog.api….WatchTopics")."""
        self._history_id = history_id.encode()[:16].ljust(16, b"\0")
        self._items: dict[K, V] = {}
        self._marks: dict[K, None] = {}
        self._changes: OrderedDict[int, Change[K, V]] = OrderedDict()
        """By sequence; complete after `_forgotten`."""
        self._history_size = history_size
        self._last_change: dict[K, int] | None = {} if conflate else None
        self._sequence = 0
        self._forgotten = 0
        self._changed = asyncio.Event()
        self._max_watchers = max_watchers
        self._watchers = 0
        self._attributes = {"rpc.method": rpc_method}
        self._active = instruments.up_down_counter(meter, WATCH_STREAM_ACTIVE)
        self._dropped = instruments.counter(meter, WATCH_DROPPED)

    # --------------------------------------------------------------------------------------- the owner's side

    def put(self, key: K, item: V) -> bool:
        """Add or replace. False when the equal item is there already."""
        if key in self._items and self._items[key] == item:
            return False
        self._items[key] = item
        self._record(Changed(key=key, item=item, token=self._next_token()))
        return True

    def remove(self, key: K) -> bool:
        """False when there is no such item."""
        if key not in self._items:
            return False
        item = self._items.pop(key)
        self._record(Removed(key=key, item=item, token=self._next_token()))
        return True

    def mark(self, mark: K) -> bool:
        """Set a mark permanently. False when it is set already."""
        if mark in self._marks:
            return False
        self._marks[mark] = None
        self._record(Marked(mark=mark, token=self._next_token()))
        return True

    def items(self) -> dict[K, V]:
        """A copy, in the order in which the keys were first put."""
        return dict(self._items)

    def marks(self) -> tuple[K, ...]:
        return tuple(self._marks)

    @property
    def token(self) -> bytes:
        """The token of the present state: a watch continues from there."""
        return _TOKEN.pack(_TOKEN_VERSION, self._history_id, self._sequence)

    # ------------------------------------------------------------------------------------- the watchers' side

    @property
    def watchers(self) -> int:
        """The number of open watches."""
        return self._watchers

    async def watch(
        self,
        token: bytes,
        *,
        stop: asyncio.Event,
        selects: Callable[[K], bool] = lambda _key: True,
        progress_seconds: float = PROGRESS_SECONDS,
        is_peer: bool = False,
    ) -> AsyncGenerator[Event[K, V], None]:
        """Yield the snapshot (empty token) or the changes after the token, then every change until `stop`.

        `selects` is called with each key and mark; some places are kept for peers (`is_peer`). Raises
        ResumeTokenExpiredError, ExhaustedError (TOO_MANY_WATCHERS), and ConfigError for bytes that are no
        token.
        """
        batches = self.watch_batches(
            token, stop=stop, selects=selects, progress_seconds=progress_seconds, is_peer=is_peer
        )
        async with aclosing(batches):
            async for batch in batches:
                for event in batch:
                    yield event

    async def watch_batches(
        self,
        token: bytes,
        *,
        stop: asyncio.Event,
        selects: Callable[[K], bool] = lambda _key: True,
        progress_seconds: float = PROGRESS_SECONDS,
        pause_seconds: float = 0.0,
        is_peer: bool = False,
    ) -> AsyncGenerator[list[Event[K, V]], None]:
        """Like `watch`, with simultaneous events in one list, then a pause of `pause_seconds`, so that events
        of the pause share a list too. A list is never empty."""
        if self._watchers >= self._max_watchers + (_PLACES_OF_PEERS if is_peer else 0):
            raise ExhaustedError(
                f"{self._watchers} watchers are connected already; end some, or watch less often",
                reason="TOO_MANY_WATCHERS",
                metadata={"max_watchers": str(self._max_watchers)},
            )
        self._watchers += 1
        self._active.add(1, self._attributes)
        try:
            if token:
                seen = self._sequence_of(token)
            else:
                seen = self._sequence
                yield self._snapshot(selects)
            # Changes that the watcher did not select say nothing to it, however many there are.
            now = asyncio.get_running_loop().time
            silent_since = now()
            while not stop.is_set():
                changed = self._changed
                changes, seen = self._after(seen), self._sequence
                selected = [
                    each for each in changes if selects(each.mark if isinstance(each, Marked) else each.key)
                ]
                left_seconds = max(0.0, silent_since + progress_seconds - now())
                if selected:
                    yield [*selected]
                    silent_since = now()
                    if pause_seconds:
                        await wait_or_stop(stop, pause_seconds)
                elif not await wait_for_any(changed, stop, seconds=left_seconds):
                    yield [Progress(token=self.token)]
                    silent_since = now()
        except ResumeTokenExpiredError:
            self._dropped.add(1, self._attributes)
            raise
        finally:
            self._watchers -= 1
            self._active.add(-1, self._attributes)

    def _snapshot(self, selects: Callable[[K], bool]) -> list[Event[K, V]]:
        items = [SnapshotItem(key=key, item=item) for key, item in self._items.items() if selects(key)]
        marks = tuple(mark for mark in self._marks if selects(mark))
        return [*items, SnapshotEnd(marks=marks, token=self.token)]

    def _after(self, sequence: int) -> list[Change[K, V]]:
        if sequence < self._forgotten:
            raise ResumeTokenExpiredError(
                f"{self._sequence - sequence} changes have passed since this token, the history begins after"
                f" {self._forgotten} of {self._sequence}: start again without a token"
            )
        newer = list(takewhile(lambda number: number > sequence, reversed(self._changes)))
        return [self._changes[number] for number in reversed(newer)]

    def _sequence_of(self, token: bytes) -> int:
        if len(token) != _TOKEN.size or token[0] != _TOKEN_VERSION:
            raise ConfigError(
                "resume_token: these bytes are not a resume token of this service",
                reason="INVALID_RESUME_TOKEN",
                metadata={"field": "resume_token"},
            )
        _, history_id, sequence = _TOKEN.unpack(token)
        if history_id != self._history_id or sequence > self._sequence:
            raise ResumeTokenExpiredError(
                "the token is of another history (the service has restarted): start again without a token"
            )
        return int(sequence)

    def _next_token(self) -> bytes:
        self._sequence += 1
        return self.token

    def _record(self, change: Change[K, V]) -> None:
        if self._last_change is not None and not isinstance(change, Marked):
            replaced = self._last_change.pop(change.key, None)
            if replaced is not None:
                self._changes.pop(replaced, None)
            self._last_change[change.key] = self._sequence
        self._changes[self._sequence] = change
        if len(self._changes) > self._history_size:
            self._forgotten, forgotten = self._changes.popitem(last=False)
            if self._last_change is not None and isinstance(forgotten, Removed):
                self._last_change.pop(forgotten.key, None)
        self._changed.set()
        self._changed = asyncio.Event()
