"""The pass over both logs of one partition: equal records are counted, the rest becomes hunks.

Records are compared in order. Two batches with equal headers and equal bytes after them are equal without
opening them; a batch with another codec is decompressed, other batches are cut into records. At a mismatch
both sides are read on in growing windows and aligned by their longest common subsequence, until enough
consecutive records match again; the records between are a hunk, for `judge`.
"""

from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field

from twinlog.batches.codec import MAX_OPEN_BYTES
from twinlog.comparison.align import (
    MOST_WINDOW,
    SETTLED_RUN,
    Pair,
    align,
    aligned,
    aligning_tokens,
    decided,
    settled_run,
)
from twinlog.comparison.model import Bounds, Side
from twinlog.comparison.records import are_equal, equal_run
from twinlog.comparison.results import Results
from twinlog.comparison.sides import STAMPED, Cursor, Extend, Extended, Steps, Window

FIRST_WINDOW = 64


@dataclass(slots=True, kw_only=True)
class Comparison:
    """The comparison of one partition or a range of it; complete when `compare` has returned."""

    bounds: Bounds
    results: InitVar[Results | None] = None
    """Where the results go: who wants to know them at once, and no more than it needs, gives its own."""
    max_open_bytes: int = MAX_OPEN_BYTES
    most_window: int = MOST_WINDOW
    """Records of each side held to find where both match again."""
    stamped: frozenset[Side] = STAMPED
    source: Cursor = field(init=False)
    target: Cursor = field(init=False)
    position: int | None = field(init=False)
    outcome: Results = field(init=False)

    def __post_init__(self, results: Results | None) -> None:
        bounds = self.bounds
        self.source = Cursor(
            side=Side.SOURCE,
            offset=bounds.source_start,
            limit=bounds.source_limit,
            max_open_bytes=self.max_open_bytes,
            stamped=self.stamped,
            lost=[*bounds.source_lost],
        )
        self.target = Cursor(
            side=Side.TARGET,
            offset=bounds.target_start,
            limit=bounds.target_limit,
            max_open_bytes=self.max_open_bytes,
            stamped=self.stamped,
            lost=[*bounds.target_lost],
        )
        self.position = bounds.position
        self.outcome = Results(bounds=bounds) if results is None else results

    def compare(self) -> Steps[None]:
        """Raises WireFormatError for a damaged batch; results up to there stand."""
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
        """Records between the last record of the range and the next one belong to the range."""
        return self.bounds.tail_is_free and self.outcome.equal_until <= self.bounds.source_goal

    def end(self) -> None:
        """End the comparison and note the rest as not compared."""
        proof = self.outcome.proof
        proof.source_hash, proof.target_hash = self.source.hash.hex, self.target.hash.hex

    def _note(self) -> None:
        proof = self.outcome.proof
        proof.source_to = max(proof.source_to, min(self.source.at, self.bounds.source_goal))
        proof.target_to = max(proof.target_to, self.target.at)
        proof.continues_at = self.source.at, self.target.at
        proof.equal_until = self.outcome.equal_until
        self.source.hash.take(proof.source_to)
        self.target.hash.take(proof.target_to)

    def _extend(self) -> Steps[bool]:
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
        if not self.outcome.offsets.fits(*begins, source.header.last_offset) or not are_equal(
            source, target, self.max_open_bytes
        ):
            return False
        self.source.pass_batch()
        self.target.pass_batch()
        self.outcome.add_equal_batches(source, target)
        return True

    def _pass_equal_records(self) -> bool:
        """Pass the equal records at the front of both open batches. True when all of them were equal."""
        source, target = self.source, self.target
        first, other = source.index, target.index
        count = min(len(source.offsets) - first, len(target.offsets) - other)
        equal = equal_run(source.bodies, first, target.bodies, other, count)
        if source.own_timestamps or target.own_timestamps:
            self.outcome.proof.timestamps_compared = False
        else:
            equal = equal_run(source.timestamps, first, target.timestamps, other, equal)
        if equal:
            equal = self.outcome.offsets.fitting(
                source.offsets[first : first + equal], target.offsets[other : other + equal]
            )
        if equal:
            self.outcome.add_equal_records(
                source.offsets[first : first + equal], target.offsets[other : other + equal]
            )
            source.pass_records(equal)
            target.pass_records(equal)
        return equal == count

    def _pass_known_gap(self) -> Steps[bool]:
        """Pass a long range that, by the ledger, is not on the target; the copy continues after it. It may
        hold more records than a window. True if there was one."""
        at = self.source.at
        gap = next((gap for gap in self.bounds.gaps if gap.from_offset <= at < gap.to_offset), None)
        if gap is None or gap.to_offset - at <= FIRST_WINDOW or gap.to_offset >= self.bounds.source_goal:
            return False
        if gap.lost_offsets < gap.to_offset - at:
            return False  # some of its records are on the target, or will be
        source = Window(side=Side.SOURCE, next_offset=gap.to_offset, limit=self.source.limit)
        target = Window(side=Side.TARGET, next_offset=self.target.offset, limit=self.target.limit)
        yield from source.grow(FIRST_WINDOW)
        yield from target.grow(FIRST_WINDOW)
        wanted = min(SETTLED_RUN, len(source.entries), len(target.entries))
        if not wanted or settled_run(align(*aligning_tokens(source, target)), wanted) is None:
            return False
        self.outcome.add_known_gap(gap, at)
        self.source.seek(gap.to_offset)
        return True

    def _resync(self) -> Steps[None]:
        source = self._window(Side.SOURCE, self.source.offset, self.source.limit)
        target = self._window(Side.TARGET, self.target.offset, self.target.limit)
        has_more_before = self.outcome.is_empty and self._may_begin_anywhere and not self._is_compacted
        size = FIRST_WINDOW
        while True:
            yield from source.grow(size)
            yield from target.grow(size)
            pairs = aligned(source, target, self.outcome.offsets, has_more_before=has_more_before)
            last_source = pairs[-1][0] if pairs else -1
            if (
                target.is_complete
                and last_source + 1 < len(source.entries)
                and source.entries[last_source + 1].offset < self.bounds.source_goal
                and (yield from self._extend())
            ):
                target.limit = self.target.limit
                continue
            cut = decided(
                source, target, pairs, size=size, most=self.most_window, is_compacted=self._is_compacted
            )
            if cut is not None:
                break
            size *= 4
        self._take(source, target, pairs, cut)

    @property
    def _may_begin_anywhere(self) -> bool:
        bounds = self.bounds
        return bool(bounds.head_is_free or bounds.begins_anywhere or bounds.source_lost or bounds.target_lost)

    @property
    def _is_compacted(self) -> bool:
        return self.bounds.source_compacted or self.bounds.target_compacted

    def _take(self, source: Window, target: Window, pairs: Sequence[Pair], cut: Pair) -> None:
        """Make hunks of the unmatched records before the cut, and continue after it."""
        self.source.lost += source.lost
        self.target.lost += target.lost
        self.outcome.proof.timestamps_compared &= not (source.own_timestamps or target.own_timestamps)
        begins = self.source.offset, self.target.offset
        taken = [pair for pair in pairs if pair[0] < cut[0] and pair[1] < cut[1]]
        self.outcome.add_windows(source, target, begins, taken, cut)
        self.source.seek(_continuation(source, cut[0], begins[0]))
        self.target.seek(_continuation(target, cut[1], begins[1]))
        is_lost = not taken and cut == (len(source.entries), len(target.entries))
        if is_lost and not (source.is_complete or target.is_complete):
            self._give_up()

    def _give_up(self) -> None:
        self.outcome.add_too_different(self.source.at)
        self.source.seek(max(self.bounds.source_goal, self.source.limit))
        self.target.seek(self.target.limit)

    def _finish(self) -> Steps[None]:
        """One side has ended: the rest of the other is a hunk, or lag."""
        source, target, bounds = self.source, self.target, self.bounds
        begins = source.offset, target.offset
        if target.has_records and target.at < bounds.target_goal:
            rest = self._window(Side.TARGET, target.at, bounds.target_goal)
            yield from rest.grow(MOST_WINDOW)
            self.outcome.add_tail(rest, begins)
            target.seek(rest.next_offset)
        elif source.has_records and source.at < bounds.source_goal:
            copied_until = min(bounds.source_goal, self.position or 0)
            if source.at < copied_until:
                rest = self._window(Side.SOURCE, source.at, copied_until)
                yield from rest.grow(MOST_WINDOW)
                self.outcome.add_tail(rest, begins)
                source.seek(rest.next_offset)
            source.seek(max(source.at, copied_until))
            if not (yield from source.fill()):
                return
            if not source.is_open:
                source.open()
            if source.at < bounds.source_goal:
                self.outcome.add_lag(source.at, self.position)

    def _window(self, side: Side, offset: int, limit: int) -> Window:
        cursor = self.source if side is Side.SOURCE else self.target
        return Window(
            side=side,
            next_offset=offset,
            limit=limit,
            max_open_bytes=self.max_open_bytes,
            stamped=self.stamped,
            hash=cursor.hash,
        )


def _continuation(window: Window, index: int, begin: int) -> int:
    """Where the comparison continues once so many entries are decided."""
    if index == len(window.entries) and window.is_complete:
        return window.next_offset
    return window.behind(index, begin)
