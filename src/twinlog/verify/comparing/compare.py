"""The pass over both logs of one partition: what is equal is counted, what is not becomes hunks.

Records are compared in order. Two batches whose headers agree and whose bytes behind them are equal are equal
unopened; a batch of another codec is decompressed, other batches are cut into records. At a mismatch both
sides are read on in growing windows and aligned by their longest common subsequence, until enough records in
a row belong together again; what lies between is a hunk, for `judge`.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from twinlog.batches.codec import MAX_OPEN_BYTES
from twinlog.verify.comparing.align import Pair, align
from twinlog.verify.comparing.equality import are_equal, equal_run
from twinlog.verify.comparing.hunk import Hunk
from twinlog.verify.comparing.kept_offsets import KeptOffsets
from twinlog.verify.comparing.rejoin import (
    MOST_WINDOW,
    SETTLED_RUN,
    aligned,
    aligning_tokens,
    decided,
    settled_run,
)
from twinlog.verify.comparing.sides import Cursor, Extend, Extended, Steps, Window
from twinlog.verify.model import NO_POSITION, Bounds, NotCompared, PartitionProof, Reason, Side

FIRST_WINDOW = 64


@dataclass(slots=True, kw_only=True)
class Comparison:
    """One partition, or a range of it, while it is compared; complete when `compare` has returned."""

    bounds: Bounds
    max_open_bytes: int = MAX_OPEN_BYTES
    hunks: list[Hunk] = field(default_factory=list)
    source: Cursor = field(init=False)
    target: Cursor = field(init=False)
    position: int | None = field(init=False)
    proof: PartitionProof = field(init=False)
    offsets: KeptOffsets = field(init=False)
    _equal_until: int = 0
    """Offset behind the last record of the source that was found equal."""

    def __post_init__(self) -> None:
        bounds = self.bounds
        self._equal_until = bounds.equal_until
        self.offsets = KeptOffsets(bounds.offsets_kept_from, bounds.offsets_kept_until)
        self.source = Cursor(
            side=Side.SOURCE,
            offset=bounds.source_start,
            limit=bounds.source_limit,
            max_open_bytes=self.max_open_bytes,
            lost=[*bounds.source_lost],
        )
        self.target = Cursor(
            side=Side.TARGET,
            offset=bounds.target_start,
            limit=bounds.target_limit,
            max_open_bytes=self.max_open_bytes,
            lost=[*bounds.target_lost],
        )
        self.position = bounds.position
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

    def compare(self) -> Steps[None]:
        """Raises WireFormatError for a batch that is damaged: what was compared before stands."""
        source, target, bounds = self.source, self.target, self.bounds
        while True:
            self._note()
            if (
                source.at >= bounds.source_goal
                and target.at >= bounds.target_goal
                and not self._is_open_ended
            ):
                return
            source_has = yield from source.fill()
            target_has = yield from target.fill()
            if not target_has and source.at < bounds.source_goal:
                if (yield from self._extend()):
                    continue
                break
            if not source_has or not target_has:
                break
            if not source.is_open and not target.is_open and self._pass_equal_batches():
                continue
            if not source.is_open:
                source.open()
            if not target.is_open:
                target.open()
            if (
                source.is_open
                and target.is_open
                and not self._pass_equal_records()
                and not (yield from self._pass_known_gap())
            ):
                yield from self._resync()
        yield from self._finish()
        self._note()

    @property
    def _is_open_ended(self) -> bool:
        """What stands between the last record of the range and the next one belongs to the range."""
        return self.bounds.tail_is_free and self._equal_until <= self.bounds.source_goal

    def end(self) -> None:
        """No more is compared: say what was."""
        self.proof.source_hash, self.proof.target_hash = self.source.hash.hex, self.target.hash.hex

    def _note(self) -> None:
        self.proof.source_to = max(self.proof.source_to, min(self.source.at, self.bounds.source_goal))
        self.proof.target_to = max(self.proof.target_to, self.target.at)
        self.proof.continues_at = self.source.at, self.target.at
        self.proof.equal_until = self._equal_until
        self.source.hash.take(self.proof.source_to)
        self.target.hash.take(self.proof.target_to)

    def _extend(self) -> Steps[bool]:
        if not self.bounds.may_grow:
            return False
        answer: Extended = yield Extend()
        self.position = answer.position
        if answer.target_limit <= self.target.limit:
            return False
        self.target.limit = answer.target_limit
        return True

    def _pass_equal_batches(self) -> bool:
        source, target = self.source.batches[0], self.target.batches[0]
        begins = source.header.base_offset, target.header.base_offset
        goal = self.bounds.source_goal
        if begins[0] < goal <= source.header.last_offset:
            return False  # only some of its records count
        if not self.offsets.fits(*begins) or not are_equal(source, target, self.max_open_bytes):
            return False
        self.source.pass_batch()
        self.target.pass_batch()
        count = source.header.record_count
        self.offsets.note(*begins, count)
        self._equal_until = source.header.next_offset
        if begins[0] < goal:
            self.proof.records += count
            self.proof.unopened_records += count
        else:
            self.proof.records_after_goal += count
        if source.header.base_offset != target.header.base_offset:
            self.proof.same_offsets = False
        return True

    def _pass_equal_records(self) -> bool:
        """Whether all records that are open on both sides are equal; those before the first that differs are
        passed."""
        source, target = self.source, self.target
        first, other = source.index, target.index
        count = min(len(source.offsets) - first, len(target.offsets) - other)
        equal = equal_run(source.bodies, first, target.bodies, other, count)
        if target.own_timestamps:
            self.proof.timestamps_compared = False
        else:
            equal = equal_run(source.timestamps, first, target.timestamps, other, equal)
        if equal:
            equal = self.offsets.fitting(
                source.offsets[first : first + equal], target.offsets[other : other + equal]
            )
        if equal:
            self.offsets.note(source.offsets[first], target.offsets[other], equal)
            if source.offsets[first : first + equal] != target.offsets[other : other + equal]:
                self.proof.same_offsets = False
            below_goal = bisect_left(source.offsets, self.bounds.source_goal, first, first + equal) - first
            self.proof.records += below_goal
            self.proof.records_after_goal += equal - below_goal
            source.pass_records(equal)
            target.pass_records(equal)
            self._equal_until = source.offset
        return equal == count

    def _pass_known_gap(self) -> Steps[bool]:
        """Whether a long range that the ledger knows is not on the target was passed: the copy continues
        behind it. It may hold more records than a window."""
        at = self.source.at
        gap = next((gap for gap in self.bounds.gaps if gap.from_offset <= at < gap.to_offset), None)
        if gap is None or gap.to_offset - at <= FIRST_WINDOW or gap.to_offset >= self.bounds.source_goal:
            return False
        source = Window(side=Side.SOURCE, next_offset=gap.to_offset, limit=self.source.limit)
        target = Window(side=Side.TARGET, next_offset=self.target.offset, limit=self.target.limit)
        yield from source.grow(FIRST_WINDOW)
        yield from target.grow(FIRST_WINDOW)
        wanted = min(SETTLED_RUN, len(source.entries), len(target.entries))
        if not wanted or settled_run(align(*aligning_tokens(source, target)), wanted) is None:
            return False
        self.proof.not_compared.append(
            NotCompared(
                side=Side.SOURCE,
                from_offset=at,
                to_offset=gap.to_offset,
                reason=Reason.KNOWN_GAP,
                detail=gap.reason,
                is_harmless=gap.acknowledged,
            )
        )
        self.source.seek(gap.to_offset)
        return True

    def _resync(self) -> Steps[None]:
        source = self._window(Side.SOURCE, self.source.offset, self.source.limit)
        target = self._window(Side.TARGET, self.target.offset, self.target.limit)
        is_head = self._is_head
        has_more_before = is_head and self._may_begin_anywhere and not self._is_compacted
        size = FIRST_WINDOW
        while True:
            yield from source.grow(size)
            yield from target.grow(size)
            pairs = aligned(source, target, self.offsets, has_more_before=has_more_before)
            last_source = pairs[-1][0] if pairs else -1
            if (
                target.is_complete
                and last_source + 1 < len(source.entries)
                and source.entries[last_source + 1].offset < self.bounds.source_goal
                and (yield from self._extend())
            ):
                target.limit = self.target.limit
                continue
            cut = decided(source, target, pairs, size=size, is_compacted=self._is_compacted)
            if cut is not None:
                break
            size *= 4
        self._take(source, target, pairs, cut, is_head=is_head)

    @property
    def _may_begin_anywhere(self) -> bool:
        bounds = self.bounds
        return bool(bounds.head_is_free or bounds.begins_anywhere or bounds.source_lost or bounds.target_lost)

    @property
    def _is_head(self) -> bool:
        return not self.proof.records and not self.hunks

    @property
    def _is_compacted(self) -> bool:
        return self.bounds.source_compacted or self.bounds.target_compacted

    def _take(
        self, source: Window, target: Window, pairs: Sequence[Pair], cut: Pair, *, is_head: bool
    ) -> None:
        """Make hunks of what does not belong together before the cut, and continue behind it."""
        self.source.lost += source.lost
        self.target.lost += target.lost
        self.proof.timestamps_compared &= not target.own_timestamps
        at = (0, 0)
        taken = [pair for pair in pairs if pair[0] < cut[0] and pair[1] < cut[1]]
        for pair in [*taken, None]:
            end = pair or cut
            if end != at:
                self.hunks.append(
                    Hunk(
                        source=source.entries[at[0] : end[0]],
                        target=target.entries[at[1] : end[1]],
                        source_before=_behind(source, at[0], self.source.offset),
                        target_before=_behind(target, at[1], self.target.offset),
                        source_after=source.entries[end[0]].offset if pair else None,
                        target_after=target.entries[end[1]].offset if pair else None,
                        is_head=is_head and at == (0, 0),
                        equal_until=_behind(source, at[0], self._equal_until),
                    )
                )
            if pair:
                at = pair[0] + 1, pair[1] + 1
                offset, place = source.entries[pair[0]].offset, target.entries[pair[1]].offset
                self.offsets.note(offset, place)
                if offset != place:
                    self.proof.same_offsets = False
        if taken:
            self._equal_until = source.entries[taken[-1][0]].offset + 1
        goal = self.bounds.source_goal
        below_goal = sum(source.entries[pair[0]].offset < goal for pair in taken)
        self.proof.records += below_goal
        self.proof.records_after_goal += len(taken) - below_goal
        is_lost = not taken and cut == (len(source.entries), len(target.entries))
        self.source.seek(_continuation(source, cut[0], self.source.offset))
        self.target.seek(_continuation(target, cut[1], self.target.offset))
        if is_lost and not (source.is_complete or target.is_complete):
            self._give_up()

    def _give_up(self) -> None:
        goal = self.bounds.source_goal
        self.proof.not_compared.append(
            NotCompared(
                side=Side.SOURCE,
                from_offset=self.source.at,
                to_offset=goal,
                reason=Reason.TOO_DIFFERENT,
                detail=f"no {SETTLED_RUN} of {MOST_WINDOW} records in a row belong together",
            )
        )
        self.source.seek(max(goal, self.source.limit))
        self.target.seek(self.target.limit)

    def _finish(self) -> Steps[None]:
        """One side has no more: the rest of the other is a hunk, or lag."""
        source, target, bounds = self.source, self.target, self.bounds
        begins, is_head = (source.offset, target.offset), self._is_head
        if target.has_records and target.at < bounds.target_goal:
            rest = self._window(Side.TARGET, target.at, bounds.target_goal)
            yield from rest.grow(MOST_WINDOW)
            self._add_tail(rest, begins, is_head=is_head)
            target.seek(rest.next_offset)
        elif source.has_records and source.at < bounds.source_goal:
            copied_until = min(bounds.source_goal, self.position or 0)
            if source.at < copied_until:
                rest = self._window(Side.SOURCE, source.at, copied_until)
                yield from rest.grow(MOST_WINDOW)
                self._add_tail(rest, begins, is_head=is_head)
                source.seek(rest.next_offset)
            source.seek(max(source.at, copied_until))
            if not (yield from source.fill()):
                return
            if not source.is_open:
                source.open()
            if source.at < bounds.source_goal:
                self._add_lag(source.at)

    def _window(self, side: Side, offset: int, limit: int) -> Window:
        cursor = self.source if side is Side.SOURCE else self.target
        return Window(
            side=side,
            next_offset=offset,
            limit=limit,
            max_open_bytes=self.max_open_bytes,
            hash=cursor.hash,
        )

    def _add_tail(self, rest: Window, begins: Pair, *, is_head: bool) -> None:
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
                    is_head=is_head,
                    equal_until=self._equal_until,
                )
            )
        if not rest.is_complete:
            self.proof.not_compared.append(
                NotCompared(
                    side=rest.side,
                    from_offset=rest.next_offset,
                    to_offset=rest.limit,
                    reason=Reason.TOO_DIFFERENT,
                    detail=f"more than {MOST_WINDOW} records are on one side only",
                )
            )

    def _add_lag(self, offset: int) -> None:
        self.proof.not_compared.append(
            NotCompared(
                side=Side.SOURCE,
                from_offset=offset,
                to_offset=self.bounds.source_goal,
                reason=Reason.NOT_COPIED_YET,
                detail=NO_POSITION if self.position is None else "",
            )
        )


def _behind(window: Window, index: int, begin: int) -> int:
    return window.entries[index - 1].offset + 1 if index else begin


def _continuation(window: Window, index: int, begin: int) -> int:
    """Where the comparison continues when so many entries are decided."""
    if index == len(window.entries) and window.is_complete:
        return window.next_offset
    return _behind(window, index, begin)
