"""The results of a comparison so far: the number of equal records, the hunks for `judge`, and the ranges not
compared."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from twinlog.batches.header import Batch
from twinlog.comparison.align import MOST_WINDOW, SETTLED_RUN, KeptOffsets, Pair
from twinlog.comparison.model import (
    NO_POSITION,
    Bounds,
    KnownGap,
    NotCompared,
    NotComparedReason,
    PartitionProof,
    Side,
)
from twinlog.comparison.records import Entry
from twinlog.comparison.sides import Window


@dataclass(slots=True, kw_only=True)
class Hunk:
    """Records of only one side, between two places where both sides match."""

    source: list[Entry]
    target: list[Entry]
    source_before: int
    """Offset after the last matching record, or the beginning of the range."""
    target_before: int
    source_after: int | None
    """Offset of the next matching record; None without one."""
    target_after: int | None
    is_head: bool = False
    equal_until: int = 0
    """Offset after the last record of the source that was found equal before."""
    is_beyond: bool = False
    """It continues beyond the compared range."""

    @property
    def is_tail(self) -> bool:
        return self.target_after is None


@dataclass(slots=True, kw_only=True)
class Results:
    bounds: Bounds
    hunks: list[Hunk] = field(default_factory=list)
    proof: PartitionProof = field(init=False)
    offsets: KeptOffsets = field(init=False)
    equal_until: int = field(init=False)
    """Offset after the last record of the source that was found equal."""

    def __post_init__(self) -> None:
        bounds = self.bounds
        self.equal_until = bounds.equal_until
        self.offsets = KeptOffsets(bounds.offsets_kept_from, bounds.offsets_kept_until)
        self.proof = PartitionProof(
            source=bounds.source,
            target=bounds.target,
            source_from=bounds.source_start,
            source_to=bounds.source_start,
            target_from=bounds.target_start,
            target_to=bounds.target_start,
            target_compacted=bounds.target_compacted,
            offsets_promised=bounds.has_all_offsets,
        )

    @property
    def is_empty(self) -> bool:
        """Whether there are no results yet, so the next ones are the beginning of the range."""
        return not self.proof.records and not self.hunks

    # ------------------------------------------------------------------------------------ what is equal

    def add_equal_batches(self, source: Batch, target: Batch) -> None:
        begin, other = source.header.base_offset, target.header.base_offset
        count = source.header.record_count
        self.offsets.note(begin, other, count)
        self.equal_until = source.header.next_offset
        if begin < self.bounds.source_goal:
            self.proof.records += count
            self.proof.unopened_records += count
        else:
            self.proof.records_after_goal += count
        if begin != other:
            self.proof.same_offsets = False

    def add_equal_records(self, source: Sequence[int], target: Sequence[int]) -> None:
        """Consecutive records on both sides, by their offsets."""
        self.offsets.note(source[0], target[0], len(source))
        if source != target:
            self.proof.same_offsets = False
        self._count(bisect_left(source, self.bounds.source_goal), len(source))
        self.equal_until = source[-1] + 1

    def _count(self, below_goal: int, records: int) -> None:
        self.proof.records += below_goal
        self.proof.records_after_goal += records - below_goal

    # ------------------------------------------------------------------------------------ what is not

    def add_windows(
        self, source: Window, target: Window, begins: Pair, pairs: Sequence[Pair], cut: Pair
    ) -> None:
        """Both windows up to the cut: `pairs` match, and the records between them become hunks. `begins`: the
        windows' first offsets."""
        is_head = self.is_empty
        at = (0, 0)
        for pair in [*pairs, None]:
            end = pair or cut
            if end != at:
                self.hunks.append(
                    Hunk(
                        source=source.entries[at[0] : end[0]],
                        target=target.entries[at[1] : end[1]],
                        source_before=source.behind(at[0], begins[0]),
                        target_before=target.behind(at[1], begins[1]),
                        source_after=source.entries[end[0]].offset if pair else None,
                        target_after=target.entries[end[1]].offset if pair else None,
                        is_head=is_head and at == (0, 0),
                        equal_until=source.behind(at[0], self.equal_until),
                    )
                )
            if pair:
                at = pair[0] + 1, pair[1] + 1
                offset, place = source.entries[pair[0]].offset, target.entries[pair[1]].offset
                self.offsets.note(offset, place)
                if offset != place:
                    self.proof.same_offsets = False
        if pairs:
            self.equal_until = source.entries[pairs[-1][0]].offset + 1
        goal = self.bounds.source_goal
        self._count(sum(source.entries[pair[0]].offset < goal for pair in pairs), len(pairs))

    def add_tail(self, rest: Window, begins: Pair) -> None:
        """The rest of one side after the other has ended."""
        if rest.entries:
            is_source = rest.side is Side.SOURCE
            self.hunks.append(
                Hunk(
                    source=rest.entries if is_source else [],
                    target=[] if is_source else rest.entries,
                    source_before=begins[0],
                    target_before=begins[1],
                    source_after=None,
                    target_after=None,
                    is_head=self.is_empty,
                    equal_until=self.equal_until,
                )
            )
        if not rest.is_complete:
            self._add_not_compared(
                rest.side,
                rest.next_offset,
                rest.limit,
                NotComparedReason.TOO_DIFFERENT,
                f"more than {MOST_WINDOW} consecutive records are on one side only",
            )

    # ------------------------------------------------------------------------------------ not compared

    def add_known_gap(self, gap: KnownGap, from_offset: int) -> None:
        """The gap from this offset on."""
        self.proof.not_compared.append(
            NotCompared(
                side=Side.SOURCE,
                from_offset=from_offset,
                to_offset=gap.to_offset,
                reason=NotComparedReason.KNOWN_GAP,
                detail=gap.reason,
                is_harmless=gap.acknowledged,
            )
        )

    def add_too_different(self, from_offset: int) -> None:
        """The source from this offset on: its counterpart on the target cannot be determined."""
        detail = f"among {MOST_WINDOW} records, no {SETTLED_RUN} in a row are equal on both sides"
        self._add_not_compared(
            Side.SOURCE, from_offset, self.bounds.source_goal, NotComparedReason.TOO_DIFFERENT, detail
        )

    def add_lag(self, from_offset: int, position: int | None) -> None:
        """The source from this offset on is not copied yet."""
        detail = NO_POSITION if position is None else ""
        self._add_not_compared(
            Side.SOURCE, from_offset, self.bounds.source_goal, NotComparedReason.NOT_COPIED_YET, detail
        )

    def _add_not_compared(
        self, side: Side, from_offset: int, to_offset: int, reason: NotComparedReason, detail: str
    ) -> None:
        self.proof.not_compared.append(
            NotCompared(side=side, from_offset=from_offset, to_offset=to_offset, reason=reason, detail=detail)
        )
