"""What each hunk is: differences by kind, what compaction explains, and what is not compared.

A record of both sides, at other places, is ORDER; one of the copy that the source has once is a DUPLICATE;
two that are mostly equal are one, CHANGED; the rest is MISSING and FOREIGN. Before that is set aside what
retention took, the ledger of gaps knows, compaction removed, or was not copied yet.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field

from twinlog.verify.compare import Comparison, Hunk
from twinlog.verify.entries import Entry
from twinlog.verify.kept_offsets import Place
from twinlog.verify.model import (
    NO_POSITION,
    Bounds,
    Difference,
    Kind,
    NotCompared,
    PartitionProof,
    Range,
    Reason,
    Side,
)
from twinlog.verify.pairing import STRONG, changed_pairs
from twinlog.verify.runs import merged, merged_ranges
from twinlog.verify.sides import Steps, Window
from twinlog.verify.superseded import LastOfKey, Superseded

_SCANNED_TOGETHER = 4096
_NEAR_OFFSETS = 20_000
"""So far back a duplicate is looked for before the whole source is read once more."""
_MOST_REMEMBERED = 10_000
END = 1 << 63


def judge(comparison: Comparison) -> Steps[PartitionProof]:
    """To be run after `compare`; reads on where a hunk needs it. The proof with everything in it."""
    yield from _Judge(comparison).run()
    return comparison.proof


@dataclass(slots=True)
class _Judge:
    comparison: Comparison
    found: list[Difference] = field(default_factory=list)
    hunks: list[Hunk] = field(default_factory=list)

    @property
    def bounds(self) -> Bounds:
        return self.comparison.bounds

    def run(self) -> Steps[None]:
        proof = self.comparison.proof
        self.comparison.end()
        self.hunks = [self._below_goals(hunk) for hunk in self.comparison.hunks]
        self._take_known_gaps()
        self._take_order()
        self._take_lost()
        if self.bounds.source_compacted or self.bounds.target_compacted:
            yield from self._take_superseded()
        yield from self._take_duplicates()
        for hunk in self.hunks:
            self._take_changed(hunk, least=1)
            self._take_rest(hunk)
        proof.differences = [*merged(self.found), *self._shifted()]
        proof.differences.sort(key=_place)
        proof.not_compared = merged_ranges(proof.not_compared)

    def _shifted(self) -> list[Difference]:
        """Records at other offsets than promised, unless a difference right before them explains it."""
        offsets = self.comparison.offsets
        if not offsets.runs:
            return []
        sources = {each.source_offset for each in self.found}
        targets = {each.target_offset for each in self.found}
        return offsets.differences(
            Place(hunk.source_after, hunk.target_after)
            for hunk in self.comparison.hunks
            if _is_in(sources, hunk.source_before, hunk.source_after)
            or _is_in(targets, hunk.target_before, hunk.target_after)
        )

    def _below_goals(self, hunk: Hunk) -> Hunk:
        bounds = self.bounds
        hunk.source = [entry for entry in hunk.source if entry.offset < bounds.source_goal]
        hunk.target = [entry for entry in hunk.target if entry.offset < bounds.target_goal]
        return hunk

    def _take_known_gaps(self) -> None:
        for gap in self.bounds.gaps:
            taken = self._take_source(gap.from_offset, gap.to_offset)
            self._not_compared(
                Side.SOURCE, taken, Reason.KNOWN_GAP, detail=gap.reason, is_harmless=gap.acknowledged
            )

    def _take_source(self, begin: int, end: int) -> list[Entry]:
        taken: list[Entry] = []
        for hunk in self.hunks:
            taken += [entry for entry in hunk.source if begin <= entry.offset < end]
            hunk.source = [entry for entry in hunk.source if not begin <= entry.offset < end]
        return taken

    def _take_order(self) -> None:
        places: defaultdict[object, list[tuple[Hunk, Entry]]] = defaultdict(list)
        for hunk in self.hunks:
            for entry in hunk.target:
                places[self._identity(entry)].append((hunk, entry))
        for hunk in self.hunks:
            left = []
            for entry in hunk.source:
                elsewhere = places.get(self._identity(entry))
                if not elsewhere:
                    left.append(entry)
                    continue
                other, copy = elsewhere.pop(0)
                other.target.remove(copy)
                self._find(Kind.ORDER, entry.offset, copy.offset)
            hunk.source = left

    def _identity(self, entry: Entry) -> Hashable:
        return entry[1:] if self.comparison.proof.timestamps_compared else entry[2:]

    def _take_lost(self) -> None:
        """What retention took of one side while the other has it."""
        bounds = self.bounds
        for hunk in self.hunks:
            source_gone = _touches(self.comparison.source.lost, hunk.source_before, hunk.source_after)
            target_gone = _touches(self.comparison.target.lost, hunk.target_before, hunk.target_after)
            if source_gone or target_gone:
                self._take_changed(hunk, least=STRONG)
            if source_gone and hunk.target:
                self._not_compared(Side.TARGET, hunk.target, Reason.SOURCE_RETENTION)
                hunk.target = []
            if target_gone and hunk.source:
                self._not_compared(Side.SOURCE, hunk.source, Reason.TARGET_RETENTION)
                hunk.source = []
            if hunk.is_head and bounds.head_is_free:
                # Also where the copy has nothing of the range yet.
                hunk.target = []
            if hunk.is_head and hunk.source_after is not None and bounds.begins_anywhere:
                self._not_compared(Side.SOURCE, hunk.source, Reason.BEFORE_FIRST_COPY)
                hunk.source = []

    def _take_superseded(self) -> Steps[None]:
        keys = {entry.key for hunk in self.hunks for entry in (*hunk.source, *hunk.target) if entry.has_key}
        if not keys:
            return
        last: dict[Side, dict[bytes, LastOfKey]] = {}
        for side, start, limit in (
            (Side.SOURCE, self.bounds.source_start, self.comparison.source.limit),
            (Side.TARGET, self.bounds.target_start, self.comparison.target.limit),
        ):
            of_side: dict[bytes, LastOfKey] = {}
            last[side] = of_side

            def note(entry: Entry, of_side: dict[bytes, LastOfKey] = of_side) -> None:
                if entry.key in keys:
                    of_side[entry.key] = LastOfKey(entry.offset, entry.is_tombstone)

            yield from self._scan(side, start, limit, note)
        superseded = Superseded(bounds=self.bounds, source=last[Side.SOURCE], target=last[Side.TARGET])
        for hunk in self.hunks:
            self.comparison.proof.superseded_records += superseded.take(hunk)

    def _take_duplicates(self) -> Steps[None]:
        wanted: dict[object, list[int]] = {
            self._identity(entry): [] for hunk in self.hunks for entry in hunk.target
        }
        if not wanted:
            return

        def note(entry: Entry) -> None:
            offsets = wanted.get(self._identity(entry))
            if offsets is not None:
                offsets.append(entry.offset)

        begin, end = self.bounds.source_start, self.comparison.source.limit
        places = [hunk.source_before for hunk in self.hunks if hunk.target]
        near, behind = max(begin, min(places) - _NEAR_OFFSETS), min(max(places) + 1, end)
        yield from self._scan(Side.SOURCE, near, behind, note)
        # What is mostly equal to the record in its place is that one, changed: worth no reading of all.
        changed = {
            self._identity(copy)
            for hunk in self.hunks
            for _, copy, _ in changed_pairs(hunk.source, hunk.target, least=STRONG)
        }
        if not all(offsets or identity in changed for identity, offsets in wanted.items()):
            yield from self._scan(Side.SOURCE, begin, near, note)
            yield from self._scan(Side.SOURCE, behind, end, note)
        for hunk in self.hunks:
            left = []
            for entry in hunk.target:
                offsets = wanted[self._identity(entry)]
                if not offsets:
                    left.append(entry)
                    continue
                earlier = [offset for offset in offsets if offset < hunk.source_before]
                self._find(Kind.DUPLICATE, max(earlier) if earlier else min(offsets), entry.offset)
            hunk.target = left

    def _scan(self, side: Side, start: int, limit: int, note: Callable[[Entry], None]) -> Steps[None]:
        with_timestamps = self.comparison.proof.timestamps_compared
        window = Window(
            side=side,
            next_offset=start,
            limit=limit,
            with_timestamps=with_timestamps,
            max_open_bytes=self.comparison.max_open_bytes,
        )
        while not window.is_complete:
            yield from window.grow(_SCANNED_TOGETHER)
            for entry in window.entries:
                note(entry)
            window.entries.clear()

    def _take_changed(self, hunk: Hunk, *, least: int) -> None:
        for entry, copy, parts in changed_pairs(hunk.source, hunk.target, least=least):
            hunk.source.remove(entry)
            hunk.target.remove(copy)
            self._find(Kind.CHANGED, entry.offset, copy.offset, parts)

    def _take_rest(self, hunk: Hunk) -> None:
        position, bounds = self.comparison.position, self.bounds
        source_after, target_after = hunk.source_after, hunk.target_after
        if not bounds.may_grow:
            # Behind this part comes the next one.
            source_after = bounds.source_goal if source_after is None else source_after
            target_after = bounds.target_goal if target_after is None else target_after
        for entry in hunk.source:
            if hunk.is_tail and (position is None or entry.offset >= position):
                detail = NO_POSITION if position is None else ""
                self._not_compared(Side.SOURCE, [entry], Reason.NOT_COPIED_YET, detail=detail)
            else:
                self._find(Kind.MISSING, entry.offset, target_after)
                self._remember(Side.SOURCE, entry)
        for entry in hunk.target:
            self._find(Kind.FOREIGN, source_after, entry.offset)
            self._remember(Side.TARGET, entry)

    def _remember(self, side: Side, entry: Entry) -> None:
        unmatched = self.comparison.proof.unmatched
        if len(unmatched) < _MOST_REMEMBERED:
            unmatched[side, entry.offset] = self._identity(entry)

    def _find(
        self, kind: Kind, source_offset: int | None, target_offset: int | None, changed: tuple[str, ...] = ()
    ) -> None:
        self.found.append(
            Difference(kind=kind, source_offset=source_offset, target_offset=target_offset, changed=changed)
        )

    def _not_compared(
        self,
        side: Side,
        entries: Iterable[Entry],
        reason: Reason,
        *,
        detail: str = "",
        is_harmless: bool | None = None,
    ) -> None:
        offsets = [entry.offset for entry in entries]
        if offsets:
            self.comparison.proof.not_compared.append(
                NotCompared(
                    side=side,
                    from_offset=min(offsets),
                    to_offset=max(offsets) + 1,
                    reason=reason,
                    detail=detail,
                    is_harmless=reason.is_harmless if is_harmless is None else is_harmless,
                )
            )


def _is_in(offsets: Iterable[int | None], begin: int, end: int | None) -> bool:
    return any(offset is not None and begin <= offset and (end is None or offset < end) for offset in offsets)


def _place(difference: Difference) -> tuple[int, int]:
    """The end of a log comes last."""
    source, target = difference.source_offset, difference.target_offset
    return (END if source is None else source, END if target is None else target)


def _touches(lost: Iterable[Range], before: int, after: int | None) -> bool:
    """Whether records were lost between two places of a log."""
    return any(each.to_offset >= before and (after is None or each.from_offset <= after) for each in lost)
