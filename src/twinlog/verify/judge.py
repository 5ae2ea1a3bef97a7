"""What each hunk is: differences by kind, what compaction explains, and what is not compared.

A record of both sides, at other places, is ORDER; one of the copy that the source has once is a DUPLICATE;
two that are mostly equal are one, CHANGED; the rest is MISSING and FOREIGN. Before that is set aside what
retention took, the ledger of gaps knows, compaction removed, or was not copied yet.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from twinlog.errors import TwinlogError
from twinlog.verify.comparing.compare import Comparison
from twinlog.verify.comparing.entries import Entry
from twinlog.verify.comparing.hunk import Hunk
from twinlog.verify.comparing.kept_offsets import Place
from twinlog.verify.comparing.sides import Steps, Window
from twinlog.verify.model import (
    COMPACTED_AWAY,
    EMPTY_COPY,
    NO_POSITION,
    Bounds,
    Difference,
    Kind,
    KnownGap,
    NotCompared,
    PartitionProof,
    Range,
    Reason,
    Side,
)
from twinlog.verify.pairing import STRONG, changed_pairs
from twinlog.verify.runs import merged, merged_ranges
from twinlog.verify.superseded import LastOfKey, Superseded

_SCANNED_TOGETHER = 4096
_NEAR_OFFSETS = 20_000
"""So far back a duplicate is looked for before the whole source is read once more."""
_MOST_REMEMBERED = 10_000
_NEAR_END = 64
"""Records of the copy, behind as many as differ, among which a changed one is looked for at the end of a
range."""
END = 1 << 63


def judge(comparison: Comparison) -> Steps[PartitionProof]:
    """To be run after `compare`; reads on where a hunk needs it. The proof with everything in it.

    Who drives it may throw a TwinlogError where it wants to read: what was found until then stays found.
    """
    yield from _Judge(comparison).run()
    return comparison.outcome.proof


@dataclass(slots=True)
class _Judge:
    comparison: Comparison
    found: list[Difference] = field(default_factory=list)
    hunks: list[Hunk] = field(default_factory=list)

    @property
    def bounds(self) -> Bounds:
        return self.comparison.bounds

    def run(self) -> Steps[None]:
        proof = self.comparison.outcome.proof
        self.comparison.end()
        self.hunks = [self._below_goals(hunk) for hunk in self.comparison.outcome.hunks]
        self._take_known_gaps()
        self._take_order()
        self._take_lost()
        if self.bounds.source_compacted or self.bounds.target_compacted:
            try:
                yield from self._take_superseded()
            except TwinlogError as error:
                # Compaction may explain all of them.
                self.comparison.outcome.proof.not_read(error, goal=self.bounds.source_goal)
                self.hunks = []
        yield from self._take_duplicates()
        for hunk in self.hunks:
            self._take_changed(hunk, least=1)
            self._take_rest(hunk)
        proof.differences = [*merged(self.found), *self._shifted()]
        proof.differences.sort(key=_place)
        proof.not_compared = merged_ranges(proof.not_compared)

    def _shifted(self) -> list[Difference]:
        """Records at other offsets than promised, unless a difference right before them explains it."""
        offsets = self.comparison.outcome.offsets
        if not offsets.runs:
            return []
        sources = {each.source_offset for each in self.found}
        targets = {each.target_offset for each in self.found}
        return offsets.differences(
            Place(hunk.source_after, hunk.target_after)
            for hunk in self.comparison.outcome.hunks
            if _is_in(sources, hunk.source_before, hunk.source_after)
            or _is_in(targets, hunk.target_before, hunk.target_after)
        )

    def _below_goals(self, hunk: Hunk) -> Hunk:
        bounds = self.bounds
        within = [entry for entry in hunk.source if entry.offset < bounds.source_goal]
        hunk.is_beyond = bounds.tail_is_free and (hunk.source_after is None or within != hunk.source)
        hunk.source = within
        if not bounds.tail_is_free:
            hunk.target = [entry for entry in hunk.target if entry.offset < bounds.target_goal]
        elif hunk.equal_until > bounds.source_goal:
            hunk.target = []
        return hunk

    def _take_known_gaps(self) -> None:
        for gap in self.bounds.gaps:
            taken = self._take_source(gap)
            self._not_compared(
                Side.SOURCE, taken, Reason.KNOWN_GAP, detail=gap.reason, is_harmless=gap.acknowledged
            )

    def _take_source(self, gap: KnownGap) -> list[Entry]:
        """Unless the copy has earlier records of the range: it was copied again since."""
        begin, end = gap.from_offset, gap.to_offset
        taken: list[Entry] = []
        for hunk in self.hunks:
            if hunk.equal_until > begin and not gap.is_joined:
                continue
            taken += [entry for entry in hunk.source if begin <= entry.offset < end]
            hunk.source = [entry for entry in hunk.source if not begin <= entry.offset < end]
        return taken

    def _take_order(self) -> None:
        if not any(hunk.source for hunk in self.hunks):
            return
        places: defaultdict[object, deque[int]] = defaultdict(deque)
        for hunk in self.hunks:
            for entry in hunk.target:
                places[self._identity(entry)].append(entry.offset)
        taken = set()
        for hunk in self.hunks:
            left = []
            for entry in hunk.source:
                elsewhere = places.get(self._identity(entry))
                if not elsewhere:
                    left.append(entry)
                    continue
                copy = elsewhere.popleft()
                taken.add(copy)
                self._find(Kind.ORDER, entry.offset, copy)
            hunk.source = left
        for hunk in self.hunks:
            hunk.target = [entry for entry in hunk.target if entry.offset not in taken]

    def _identity(self, entry: Entry) -> Hashable:
        return entry[1:] if self.comparison.outcome.proof.timestamps_compared else entry[2:]

    def _take_lost(self) -> None:
        """What retention took of one side while the other has it."""
        bounds = self.bounds
        for hunk in self.hunks:
            source_gone = _touches(self.comparison.source.lost, hunk.source_before, hunk.source_after)
            target_gone = _touches(self.comparison.target.lost, hunk.target_before, hunk.target_after)
            if source_gone or target_gone:
                # What is behind the hunk belongs together, so its last records do.
                self._take_last(hunk, STRONG if self.comparison.outcome.proof.timestamps_compared else 1)
            if source_gone and hunk.target:
                gone, hunk.target = self._parted(hunk.target, self.comparison.source.lost)
                self._not_compared(Side.TARGET, gone, Reason.SOURCE_RETENTION)
            if target_gone and hunk.source:
                gone, hunk.source = self._parted(hunk.source, self.comparison.target.lost)
                self._not_compared(Side.SOURCE, gone, Reason.TARGET_RETENTION)
            if hunk.is_head and bounds.head_is_free:
                # Also where the copy has nothing of the range yet.
                self._take_last(hunk, STRONG)
                hunk.target = []
            if hunk.is_beyond:
                del hunk.target[len(hunk.source) + _NEAR_END :]
                self._take_changed(hunk, least=STRONG)
                hunk.target = []
            if hunk.is_head and hunk.source_after is not None and bounds.begins_anywhere:
                begin = (Range(0, bounds.target_start),)
                gone, hunk.source = self._parted(hunk.source, begin)
                self._not_compared(Side.SOURCE, gone, Reason.BEFORE_FIRST_COPY)
            if (
                hunk.is_head
                and bounds.begins_anywhere
                and self.comparison.target.limit == bounds.target_start
            ):
                self._take_before_nothing(hunk)

    def _take_before_nothing(self, hunk: Hunk) -> None:
        """Nothing says where an empty copy has begun."""
        copied_until = self.comparison.position or 0
        before = [entry for entry in hunk.source if entry.offset < copied_until]
        hunk.source = [entry for entry in hunk.source if entry.offset >= copied_until]
        self._not_compared(
            Side.SOURCE, before, Reason.BEFORE_FIRST_COPY, detail=EMPTY_COPY, is_harmless=False
        )

    def _parted(self, entries: list[Entry], lost: Sequence[Range]) -> tuple[list[Entry], list[Entry]]:
        """What the other side lost, and what it must still have: where offsets are promised, they tell which
        is which. An empty range is a place where a log was cut off, or is another one."""
        offsets = self.comparison.outcome.offsets
        if any(each.from_offset == each.to_offset for each in lost):
            return entries, []
        end = max((each.to_offset for each in lost), default=0)
        gone = [entry for entry in entries if entry.offset < end or not offsets.is_promised(entry.offset)]
        left = [entry for entry in entries if entry.offset >= end and offsets.is_promised(entry.offset)]
        return gone, left

    def _take_last(self, hunk: Hunk, least: int) -> None:
        """Pair a hunk that has records which are not compared: only its last ones may be the same,
        changed."""
        both = min(len(hunk.source), len(hunk.target))
        before = hunk.source[: len(hunk.source) - both], hunk.target[: len(hunk.target) - both]
        hunk.source, hunk.target = hunk.source[len(before[0]) :], hunk.target[len(before[1]) :]
        self._take_changed(hunk, least=least)
        hunk.source, hunk.target = before[0] + hunk.source, before[1] + hunk.target

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
            self.comparison.outcome.proof.superseded_records += superseded.take(hunk)
        if not self.bounds.source_compacted:
            # The source keeps them all: who deletes them there loses them.
            self._not_compared(
                Side.SOURCE, superseded.only_source, Reason.TARGET_RETENTION, detail=COMPACTED_AWAY
            )

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
        if self.bounds.source_log_start is not None:
            begin = min(begin, self.bounds.source_log_start)
        places = [hunk.source_before for hunk in self.hunks if hunk.target]
        near, behind = max(begin, min(places) - _NEAR_OFFSETS), min(max(places) + 1, end)
        try:
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
        except TwinlogError as error:
            # They differ all the same: what is not found is FOREIGN.
            self.comparison.outcome.proof.not_read(error, goal=self.bounds.source_goal)
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
        with_timestamps = self.comparison.outcome.proof.timestamps_compared
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
        pairs = changed_pairs(hunk.source, hunk.target, least=least)
        for entry, copy, parts in pairs:
            self._find(Kind.CHANGED, entry.offset, copy.offset, parts)
        originals, copies = {entry.offset for entry, _, _ in pairs}, {copy.offset for _, copy, _ in pairs}
        hunk.source = [entry for entry in hunk.source if entry.offset not in originals]
        hunk.target = [entry for entry in hunk.target if entry.offset not in copies]

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
        unmatched = self.comparison.outcome.proof.unmatched
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
            self.comparison.outcome.proof.not_compared.append(
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
