"""Compares the survivors of compacted topics: no key lost, its last value equal, order kept.

Each side is compacted by itself, so some records of a key may be on one side only. A later record of the key
explains that, but only for as many records as the log has holes there: a log without holes was not compacted.
Records that both logs hold are removed from the hunks before: no later record explains their difference.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from twinlog.comparison.judging.findings import STRONG, Findings, pairs_on_both_sides
from twinlog.comparison.model import COMPACTED_AWAY, Bounds, Reason, Side
from twinlog.comparison.records import Entry, likeness
from twinlog.comparison.results import Hunk
from twinlog.comparison.sides import AskEnds, EndsNow, Steps


class LastOfKey(NamedTuple):
    """The last record of a key on one side."""

    offset: int
    is_tombstone: bool


def take_superseded(findings: Findings) -> Steps[None]:
    """Remove the records that compaction explains from the hunks. Reads both sides for the last record of
    each key; up to their present ends where those below the limits do not explain all: what was removed
    during the comparison may have been so because of records that are newer than the limits."""
    keys = {entry.key for hunk in findings.hunks for entry in (*hunk.source, *hunk.target) if entry.has_key}
    if not keys:
        return
    comparison, bounds = findings.comparison, findings.bounds
    limits = {Side.SOURCE: comparison.source.limit, Side.TARGET: comparison.target.limit}
    last: dict[Side, dict[bytes, LastOfKey]] = {Side.SOURCE: {}, Side.TARGET: {}}

    def scan(side: Side, start: int, limit: int) -> Steps[None]:
        of_side = last[side]

        def note(entry: Entry) -> None:
            if entry.key in keys:
                of_side[entry.key] = LastOfKey(entry.offset, entry.is_tombstone)

        yield from findings.scan(side, start, limit, note)

    yield from scan(Side.SOURCE, bounds.source_start, limits[Side.SOURCE])
    yield from scan(Side.TARGET, bounds.target_start, limits[Side.TARGET])
    if bounds.target_compacted:
        findings.proof.displaced_from = _displaced_from(findings.hunks, last[Side.SOURCE], last[Side.TARGET])
    # Compaction did not remove records that both logs hold, however many later records of the key there are.
    for hunk in findings.hunks:
        findings.take_pairs(hunk, pairs_on_both_sides(hunk, comparison.outcome.offsets.is_promised))
    superseded = Superseded(
        bounds=bounds,
        source=last[Side.SOURCE],
        target=last[Side.TARGET],
        source_limit=limits[Side.SOURCE],
        target_limit=limits[Side.TARGET],
    )
    if not all(superseded.explains_all(hunk) for hunk in findings.hunks):
        ends: EndsNow = yield AskEnds()
        yield from scan(Side.TARGET, limits[Side.TARGET], ends.target)
        yield from scan(Side.SOURCE, limits[Side.SOURCE], ends.source)
    for hunk in findings.hunks:
        findings.proof.superseded_records += superseded.take(hunk)
    if not bounds.source_compacted:
        # The source keeps them all: a user's deletion there loses them.
        findings.not_compared(
            Side.SOURCE, superseded.only_source, Reason.TARGET_RETENTION, detail=COMPACTED_AWAY
        )


def _displaced_from(
    hunks: Iterable[Hunk], source: Mapping[bytes, LastOfKey], target: Mapping[bytes, LastOfKey]
) -> int | None:
    """The first of the source's last records of those keys that another record has on the copy at last."""
    found = (
        source[entry.key].offset
        for hunk in hunks
        for entry in hunk.target
        if entry.key in source and target.get(entry.key) == (entry.offset, entry.is_tombstone)
    )
    return min(found, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Superseded:
    bounds: Bounds
    source: Mapping[bytes, LastOfKey]
    target: Mapping[bytes, LastOfKey]
    source_limit: int
    """Offset after the last record of the source that was read to find counterparts."""
    target_limit: int

    only_source: list[Entry] = field(default_factory=list)
    """Removed records that the source has and the copy lacks."""

    def take(self, hunk: Hunk) -> int:
        """Remove the records that compaction explains from a hunk; return their number."""
        copies, originals = self._explained(hunk)
        hunk.target = [entry for entry in hunk.target if entry.offset not in copies]
        self.only_source.extend(entry for entry in hunk.source if entry.offset in originals)
        hunk.source = [entry for entry in hunk.source if entry.offset not in originals]
        return len(copies) + len(originals)

    def explains_all(self, hunk: Hunk) -> bool:
        copies, originals = self._explained(hunk)
        return len(copies) == len(hunk.target) and len(originals) == len(hunk.source)

    def _explained(self, hunk: Hunk) -> tuple[set[int], set[int]]:
        """Offsets of the copy's and of the source's records that compaction removed from the other side."""
        copies = self._copies(hunk) if self.bounds.source_compacted else set()
        return copies, self._originals(hunk, copies) if self.bounds.target_compacted else set()

    def _copies(self, hunk: Hunk) -> set[int]:
        """Offsets of the copy's records that compaction removed from the source."""
        room = _holes(hunk.source, hunk.source_before, hunk.source_after, self.source_limit)
        return {entry.offset for entry in [e for e in hunk.target if self._left_source(e, hunk)][:room]}

    def _left_source(self, entry: Entry, hunk: Hunk) -> bool:
        if not entry.has_key:
            return False
        last = self.source.get(entry.key)
        if last is None:
            # Its tombstone was removed as well; the copy still has it.
            copied = self.target.get(entry.key)
            return copied is not None and copied.is_tombstone and copied.offset >= entry.offset
        if hunk.source_after is not None and last.offset >= hunk.source_after:
            return True
        return last.offset >= hunk.source_before and not any(
            likeness(other, entry) >= STRONG for other in hunk.source if other.key == entry.key
        )

    def _originals(self, hunk: Hunk, copies: set[int]) -> set[int]:
        """Offsets of the source's records that compaction removed from the copy."""
        room = _holes(hunk.target, hunk.target_before, hunk.target_after, self.target_limit)
        found = [entry for entry in hunk.source if self._left_target(entry, hunk, copies)]
        return {entry.offset for entry in found[:room]}

    def _left_target(self, entry: Entry, hunk: Hunk, copies: set[int]) -> bool:
        if not entry.has_key:
            return False
        last, original = self.target.get(entry.key), self.source.get(entry.key)
        if last is None:
            return original is not None and original.is_tombstone and original.offset >= entry.offset
        if not entry.is_tombstone and (original is None or original.offset <= entry.offset):
            # The value of the key on the source: only a record of somebody else can have superseded it.
            return False
        if last.offset >= (self.target_limit if hunk.target_after is None else hunk.target_after):
            return True
        # A later copy in the same place explains it, if records after the place explain that copy, and not
        # this very record.
        return last.offset in copies and self._is_behind(entry.key, hunk)

    def _is_behind(self, key: bytes, hunk: Hunk) -> bool:
        last = self.source.get(key)
        return last is not None and hunk.source_after is not None and last.offset >= hunk.source_after


def _holes(only: list[Entry], before: int, after: int | None, end: int) -> int:
    """Most offsets without a record between two places of a log."""
    return max(0, (end if after is None else after) - before - len(only))
