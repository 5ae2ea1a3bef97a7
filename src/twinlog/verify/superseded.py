"""Compacted topics are compared as what survives: no key lost, its last value equal, order kept.

Each side is compacted by itself, so records of a key may be on one side only. A later record of the key
explains that, but only as many as the log has holes there: a log without holes was not compacted.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from twinlog.verify.comparing.entries import Entry, likeness
from twinlog.verify.comparing.hunk import Hunk
from twinlog.verify.model import Bounds
from twinlog.verify.pairing import STRONG


class LastOfKey(NamedTuple):
    """The last record of a key on one side."""

    offset: int
    is_tombstone: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Superseded:
    bounds: Bounds
    source: Mapping[bytes, LastOfKey]
    target: Mapping[bytes, LastOfKey]

    only_source: list[Entry] = field(default_factory=list)
    """What was taken that the source has, and the copy has not."""

    def take(self, hunk: Hunk) -> int:
        """Take out of a hunk what compaction explains; how many records that were."""
        copies = self._copies(hunk) if self.bounds.source_compacted else set()
        originals = self._originals(hunk, copies) if self.bounds.target_compacted else set()
        hunk.target = [entry for entry in hunk.target if entry.offset not in copies]
        self.only_source.extend(entry for entry in hunk.source if entry.offset in originals)
        hunk.source = [entry for entry in hunk.source if entry.offset not in originals]
        return len(copies) + len(originals)

    def _copies(self, hunk: Hunk) -> set[int]:
        """Offsets of records of the copy that compaction took from the source."""
        room = _holes(hunk.source, hunk.source_before, hunk.source_after, self.bounds.source_goal)
        return {entry.offset for entry in [e for e in hunk.target if self._left_source(e, hunk)][:room]}

    def _left_source(self, entry: Entry, hunk: Hunk) -> bool:
        if not entry.has_key:
            return False
        last = self.source.get(entry.key)
        if last is None:
            # Its tombstone went as well; the copy has that still.
            copied = self.target.get(entry.key)
            return copied is not None and copied.is_tombstone and copied.offset >= entry.offset
        if hunk.source_after is not None and last.offset >= hunk.source_after:
            return True
        return last.offset >= hunk.source_before and not any(
            likeness(other, entry) >= STRONG for other in hunk.source if other.key == entry.key
        )

    def _originals(self, hunk: Hunk, copies: set[int]) -> set[int]:
        """Offsets of records of the source that compaction took from the copy."""
        room = _holes(hunk.target, hunk.target_before, hunk.target_after, self.bounds.target_goal)
        found = [entry for entry in hunk.source if self._left_target(entry, hunk, copies)]
        return {entry.offset for entry in found[:room]}

    def _left_target(self, entry: Entry, hunk: Hunk, copies: set[int]) -> bool:
        if not entry.has_key:
            return False
        last = self.target.get(entry.key)
        if last is None:
            original = self.source.get(entry.key)
            return original is not None and original.is_tombstone and original.offset >= entry.offset
        if hunk.target_after is not None and last.offset >= hunk.target_after:
            return True
        # A later copy in the same place explains it, if that is explained by what comes behind the place, and
        # not by this very record.
        return last.offset in copies and self._is_behind(entry.key, hunk)

    def _is_behind(self, key: bytes, hunk: Hunk) -> bool:
        last = self.source.get(key)
        return last is not None and hunk.source_after is not None and last.offset >= hunk.source_after


def _holes(only: list[Entry], before: int, after: int | None, end: int) -> int:
    """How many offsets have no record between two places of a log, at most."""
    return max(0, (end if after is None else after) - before - len(only))
