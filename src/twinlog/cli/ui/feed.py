"""What all browsers are told: tables of rows, and what changed in each turn. Pure.

Invariant: the memory does not grow with the number of browsers, nor with how slowly they read. All share the
encoded frames; one that is further behind than `KEPT_FRAMES` gets a snapshot.
"""

import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

KEPT_FRAMES = 30

Row = Mapping[str, Any] | Sequence[Any]


@dataclass(slots=True)
class FeedTable:
    """Rows by key, and which of them changed since they were taken last."""

    rows: dict[str, Row] = field(default_factory=dict)
    _changed: set[str] = field(default_factory=set)
    _removed: set[str] = field(default_factory=set)

    def put(self, key: str, row: Row) -> None:
        if self.rows.get(key) != row:
            self.rows[key] = row
            self._changed.add(key)
            self._removed.discard(key)

    def remove(self, key: str) -> None:
        if self.rows.pop(key, None) is not None:
            self._removed.add(key)
            self._changed.discard(key)

    def replace(self, rows: Mapping[str, Row]) -> None:
        """These, and no others."""
        for key in [key for key in self.rows if key not in rows]:
            self.remove(key)
        for key, row in rows.items():
            self.put(key, row)

    def take(self) -> dict[str, Any] | None:
        """What changed since the last call; None when nothing did."""
        if not self._changed and not self._removed:
            return None
        taken = {
            "changed": {key: self.rows[key] for key in sorted(self._changed)},
            "removed": sorted(self._removed),
        }
        self._changed.clear()
        self._removed.clear()
        return taken


class Feed:
    """Tables by name, and the frames of the last turns. A frame is an event of an SSE stream."""

    def __init__(self, names: Sequence[str], *, in_snapshots_only: Sequence[str] = ()) -> None:
        """`in_snapshots_only`: what browsers carry forward themselves from the rows of other tables."""
        self._in_snapshots_only = frozenset(in_snapshots_only)
        self.tables = {name: FeedTable() for name in names}
        self.turn = 0
        self._frames: deque[bytes] = deque(maxlen=KEPT_FRAMES)
        self._snapshot: tuple[int, bytes] = (-1, b"")

    def __getitem__(self, name: str) -> FeedTable:
        return self.tables[name]

    def next_turn(self) -> bool:
        """Encode what changed. False when nothing did."""
        changes = {name: taken for name, table in self.tables.items() if (taken := table.take()) is not None}
        for name in self._in_snapshots_only:
            changes.pop(name, None)
        if not changes:
            return False
        self.turn += 1
        self._frames.append(_frame("delta", self.turn, changes))
        return True

    def since(self, turn: int) -> list[bytes]:
        """The frames after `turn`; a snapshot when they are gone. Negative: a snapshot."""
        missed = self.turn - turn
        if turn < 0 or missed > len(self._frames) or missed < 0:
            return [self.snapshot()]
        return list(self._frames)[len(self._frames) - missed :]

    def snapshot(self) -> bytes:
        """Everything as of the last turn, encoded once for all who ask in a turn."""
        if self._snapshot[0] != self.turn:
            rows = {name: table.rows for name, table in self.tables.items()}
            self._snapshot = (self.turn, _frame("snapshot", self.turn, rows))
        return self._snapshot[1]


def _frame(event: str, turn: int, document: Any) -> bytes:
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return f"event: {event}\nid: {turn}\ndata: {text}\n\n".encode()
