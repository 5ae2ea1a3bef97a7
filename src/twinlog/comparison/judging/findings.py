"""Results about the hunks of a comparison: differences, and ranges not compared.

Compares the survivors of compacted topics: no key lost, its last value equal, order kept.

Each side is compacted by itself, so some records of a key may be on one side only. A later record of the key
explains that, but only for as many records as the log has holes there: a log without holes was not compacted.
Records that both logs hold are removed from the hunks before: no later record explains their difference.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from twinlog.comparison.compare import Comparison
from twinlog.comparison.model import (
    COMPACTED_AWAY,
    Bounds,
    Difference,
    DifferenceKind,
    NotCompared,
    NotComparedReason,
    PartitionProof,
    Side,
)
from twinlog.comparison.records import Entry, differing, likeness
from twinlog.comparison.results import Hunk
from twinlog.comparison.sides import AskEnds, EndsNow, Steps, Window

# Pairs records of the source with records of the copy: keeps order and pairs similar records.

STRONG = 9
"""Likeness of two records that differ in one part."""
_MOST_CELLS = 1 << 16

ChangedPair = tuple[Entry, Entry, tuple[str, ...]]


def changed_pairs(source: Sequence[Entry], target: Sequence[Entry], *, least: int) -> list[ChangedPair]:
    """Pairs with at least this likeness and the largest sum of likeness; and their differing parts."""
    if not source or not target:
        return []
    if len(source) * len(target) <= _MOST_CELLS:
        pairs = _best(source, target, least)
    else:
        pairs = _in_step(source, target, least)
    if not pairs and len(source) == len(target) and least < STRONG and target[0].timestamp_ms is None:
        # Nothing distinguishes them from others, not even a time: pair those at the same place.
        pairs = [*zip(source, target, strict=True)]
    return [(one, other, differing(one, other)) for one, other in pairs]


def pairs_on_both_sides(hunk: Hunk, is_promised: Callable[[int], bool]) -> list[ChangedPair]:
    """Records of a hunk that both logs hold for certain, though compacted, so that only a change explains the
    difference.

    Two records are one at the promised offset; with the same key, time and all but one part equal; or, mostly
    similar, at the same distance from both matching neighbours, if these are equally far apart in both logs:
    then nothing was missing between them when they were copied.
    """
    at = {copy.offset: copy for copy in hunk.target}
    of_key_and_time: dict[tuple[bytes, int | None], Entry] = {
        (copy.key, copy.timestamp_ms): copy
        for copy in reversed(hunk.target)
        if copy.has_key and copy.timestamp_ms is not None
    }
    is_as_long = (
        hunk.source_after is not None
        and hunk.target_after is not None
        and hunk.source_after - hunk.source_before == hunk.target_after - hunk.target_before
    )
    pairs: list[ChangedPair] = []
    taken: set[int] = set()
    for entry in hunk.source:
        copy = at.get(entry.offset) if is_promised(entry.offset) else None
        if copy is None and is_as_long:
            copy = at.get(entry.offset - hunk.source_before + hunk.target_before)
            if copy is not None and not likeness(entry, copy):
                copy = None
        if copy is None:
            copy = of_key_and_time.get((entry.key, entry.timestamp_ms))
            if copy is not None and likeness(entry, copy) < STRONG:
                copy = None
        if copy is not None and copy.offset not in taken:
            taken.add(copy.offset)
            pairs.append((entry, copy, differing(entry, copy)))
    return pairs


def _best(source: Sequence[Entry], target: Sequence[Entry], least: int) -> list[tuple[Entry, Entry]]:
    width = len(target) + 1
    sums = [[0] * width for _ in range(len(source) + 1)]
    weights = [[_weight(one, other, least) for other in target] for one in source]
    for i in range(len(source) - 1, -1, -1):
        row, below, weight = sums[i], sums[i + 1], weights[i]
        for j in range(len(target) - 1, -1, -1):
            best = max(below[j], row[j + 1])
            row[j] = max(best, weight[j] + below[j + 1]) if weight[j] else best
    pairs = []
    i = j = 0
    while i < len(source) and j < len(target):
        weight_here = weights[i][j]
        if weight_here and sums[i][j] == weight_here + sums[i + 1][j + 1]:
            pairs.append((source[i], target[j]))
            i, j = i + 1, j + 1
        elif sums[i][j] == sums[i + 1][j]:
            i += 1
        else:
            j += 1
    return pairs


def _weight(source: Entry, target: Entry, least: int) -> int:
    found = likeness(source, target)
    return found if found >= least else 0


def _in_step(source: Sequence[Entry], target: Sequence[Entry], least: int) -> list[tuple[Entry, Entry]]:
    """Pairs among very many records: only those at the same place."""
    return [(one, other) for one, other in zip(source, target, strict=False) if _weight(one, other, least)]


_SCANNED_TOGETHER = 4096
_MOST_REMEMBERED = 10_000


@dataclass(slots=True)
class Findings:
    comparison: Comparison
    hunks: list[Hunk]
    """Each step removes the part that it explains."""
    differences: list[Difference] = field(default_factory=list)

    @property
    def bounds(self) -> Bounds:
        return self.comparison.bounds

    @property
    def proof(self) -> PartitionProof:
        return self.comparison.outcome.proof

    def identity(self, entry: Entry) -> Hashable:
        """Equal for equal records."""
        return entry[1:] if self.proof.timestamps_compared else entry[2:]

    def find(
        self,
        kind: DifferenceKind,
        source_offset: int | None,
        target_offset: int | None,
        changed: tuple[str, ...] = (),
    ) -> None:
        self.differences.append(
            Difference(kind=kind, source_offset=source_offset, target_offset=target_offset, changed=changed)
        )

    def not_compared(
        self,
        side: Side,
        entries: Iterable[Entry],
        reason: NotComparedReason,
        *,
        detail: str = "",
        is_harmless: bool | None = None,
    ) -> None:
        """Note records of one side as not compared, for this reason."""
        offsets = [entry.offset for entry in entries]
        if offsets:
            self.proof.not_compared.append(
                NotCompared(
                    side=side,
                    from_offset=min(offsets),
                    to_offset=max(offsets) + 1,
                    reason=reason,
                    detail=detail,
                    is_harmless=reason.is_harmless if is_harmless is None else is_harmless,
                )
            )

    def remember(self, side: Side, entry: Entry) -> None:
        """Keep the record for a search in other partitions."""
        unmatched = self.proof.unmatched
        if len(unmatched) < _MOST_REMEMBERED:
            unmatched[side, entry.offset] = self.identity(entry)

    def take_changed(self, hunk: Hunk, *, least: int) -> None:
        """Pair records of both sides with at least this likeness as changed."""
        self.take_pairs(hunk, changed_pairs(hunk.source, hunk.target, least=least))

    def take_pairs(self, hunk: Hunk, pairs: Sequence[ChangedPair]) -> None:
        """Note these pairs of records as changed."""
        for entry, copy, parts in pairs:
            self.find(DifferenceKind.CHANGED, entry.offset, copy.offset, parts)
        originals, copies = {entry.offset for entry, _, _ in pairs}, {copy.offset for _, copy, _ in pairs}
        hunk.source = [entry for entry in hunk.source if entry.offset not in originals]
        hunk.target = [entry for entry in hunk.target if entry.offset not in copies]

    def scan(self, side: Side, start: int, limit: int, note: Callable[[Entry], None]) -> Steps[None]:
        """Read a side again, and call `note` with each record."""
        window = Window(
            side=side,
            next_offset=start,
            limit=limit,
            max_open_bytes=self.comparison.max_open_bytes,
        )
        while not window.is_complete:
            yield from window.grow(_SCANNED_TOGETHER)
            for entry in window.entries:
                note(entry)
            window.entries.clear()


class LastOfKey(NamedTuple):
    """The last record of a key on one side."""

    offset: int
    is_tombstone: bool
    identity: Hashable
    """Equal for equal records."""
    holes_before: int
    """Offsets without a record, from the log's start on."""


class _Equal(NamedTuple):
    """The equal records of one side."""

    records: int
    holes_before: int
    """Before the record that comes before the first of them."""


def take_superseded(findings: Findings) -> Steps[None]:
    """Remove the records that compaction explains from the hunks. Reads both sides for the last record of
    each key; up to their present ends where those below the limits do not explain all: what was removed
    during the comparison may have been so because of records that are newer than the limits."""
    keys = {entry.key for hunk in findings.hunks for entry in (*hunk.source, *hunk.target) if entry.has_key}
    if not keys:
        return
    comparison, bounds = findings.comparison, findings.bounds
    limits = {Side.SOURCE: comparison.source.limit, Side.TARGET: comparison.target.limit}
    starts = {Side.SOURCE: bounds.source_start, Side.TARGET: bounds.target_start}
    last: dict[Side, dict[bytes, LastOfKey]] = {Side.SOURCE: {}, Side.TARGET: {}}

    only = {findings.identity(entry) for hunk in findings.hunks for entry in (*hunk.source, *hunk.target)}
    seen: dict[Side, dict[Hashable, _Equal]] = {Side.SOURCE: {}, Side.TARGET: {}}
    holes = dict.fromkeys(Side, 0)

    def scan(side: Side, start: int, limit: int) -> Steps[None]:
        of_side, of_records = last[side], seen[side]
        holes_before, next_offset = holes[side], start

        def note(entry: Entry) -> None:
            nonlocal holes_before, next_offset
            before, holes_before = holes_before, holes_before + entry.offset - next_offset
            next_offset = entry.offset + 1
            if entry.key in keys:
                identity = findings.identity(entry)
                of_side[entry.key] = LastOfKey(entry.offset, entry.is_tombstone, identity, holes_before)
                if identity in only:
                    records, first = of_records.get(identity, _Equal(0, before))
                    of_records[identity] = _Equal(records + 1, first)

        yield from findings.scan(side, start, limit, note)
        holes[side] = holes_before + max(0, limit - next_offset)

    for side, start in starts.items():
        yield from scan(side, start, limits[side])
    if bounds.target_compacted:
        findings.proof.displaced_from = _displaced_from(findings.hunks, last[Side.SOURCE], last[Side.TARGET])
    # Compaction did not remove records that both logs hold, however many later records of the key there are.
    for hunk in findings.hunks:
        findings.take_pairs(hunk, pairs_on_both_sides(hunk, comparison.outcome.offsets.is_promised))
    superseded = Superseded(
        repeated={side: _repeated(findings, side, last, seen, holes) for side in Side},
        holes=dict(holes),
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
            Side.SOURCE, superseded.only_source, NotComparedReason.TARGET_RETENTION, detail=COMPACTED_AWAY
        )


def _displaced_from(
    hunks: Iterable[Hunk], source: Mapping[bytes, LastOfKey], target: Mapping[bytes, LastOfKey]
) -> int | None:
    """The first of the source's last records of those keys that another record has on the copy at last."""
    found = (
        source[entry.key].offset
        for hunk in hunks
        for entry in hunk.target
        if entry.key in source and entry.key in target and target[entry.key].offset == entry.offset
    )
    return min(found, default=None)


def _repeated(
    findings: Findings,
    side: Side,
    last: Mapping[Side, Mapping[bytes, LastOfKey]],
    seen: Mapping[Side, Mapping[Hashable, _Equal]],
    holes: Mapping[Side, int],
) -> Mapping[bytes, tuple[int, int]]:
    """Keys of which a side has equal records: any of them may have matched, so that the holes of the other
    log are elsewhere: how many it has before the first and up to the last place of such a record. Both logs
    end with the same record of them."""
    other = Side.TARGET if side is Side.SOURCE else Side.SOURCE
    only = {
        Side.SOURCE: [entry for hunk in findings.hunks for entry in hunk.source],
        Side.TARGET: [entry for hunk in findings.hunks for entry in hunk.target],
    }
    unmatched = {entry.offset for entry in only[other]}

    def end_alike(key: bytes) -> bool:
        own, there = last[side][key], last[other].get(key)
        if there is None:
            return own.is_tombstone
        return own.identity == there.identity and there.offset not in unmatched

    found: dict[bytes, tuple[int, int]] = {}
    for entry in only[side]:
        identity = findings.identity(entry)
        if entry.has_key and seen[side][identity].records > 1 and end_alike(entry.key):
            there, kept = last[other].get(entry.key), seen[other].get(identity)
            to = holes[other] if there is None else there.holes_before
            begin, _ = found.get(entry.key, (to, to))
            found[entry.key] = min(begin, 0 if kept is None else kept.holes_before), to
    return _joined(found)


def _joined(spans: Mapping[bytes, tuple[int, int]]) -> Mapping[bytes, tuple[int, int]]:
    """Spans that overlap are one: records of one key may have moved those of the other."""
    joined: dict[bytes, tuple[int, int]] = {}
    together: list[bytes] = []
    begin = to = 0
    for key, span in sorted(spans.items(), key=lambda item: item[1]):
        if span[0] >= to:
            together, (begin, to) = [], span
        together.append(key)
        to = max(to, span[1])
        joined.update(dict.fromkeys(together, (begin, to)))
    return joined


@dataclass(frozen=True, slots=True, kw_only=True)
class Superseded:
    repeated: Mapping[Side, Mapping[bytes, tuple[int, int]]]
    """Keys of each side: compaction removed their records from the other log, between these of its holes."""
    holes: dict[Side, int]
    """Offsets without a record of each whole log that explain nothing yet."""
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
        self.holes[Side.SOURCE] -= len(copies)
        self.holes[Side.TARGET] -= len(originals)
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
        repeated = self.repeated[Side.TARGET]
        room += self._room(Side.TARGET, hunk.target, Side.SOURCE)
        found = [entry for entry in hunk.target if entry.key in repeated or self._left_source(entry, hunk)]
        return {entry.offset for entry in found[:room]}

    def _room(self, side: Side, only: Iterable[Entry], other: Side) -> int:
        """Most records of one side for which the other log has holes where equal records are."""
        found = [self.repeated[side][entry.key] for entry in only if entry.key in self.repeated[side]]
        most = max((to for _, to in found), default=0) - min((begin for begin, _ in found), default=0)
        return max(0, min(most, self.holes[other]))

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
        repeated = self.repeated[Side.SOURCE]
        room += self._room(Side.SOURCE, hunk.source, Side.TARGET)
        found = [e for e in hunk.source if e.key in repeated or self._left_target(e, hunk, copies)]
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
