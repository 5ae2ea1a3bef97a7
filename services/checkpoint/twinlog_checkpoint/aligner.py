"""Finds offsets of one log in its copy by reading both: enters at the nearest known pair, counts, compares.

Between a known pair and the offset asked for there may be a hundred records or a hundred million. Near ones
are walked record by record (`alignment.Walk`). Far ones are approached by counting: as many visible records
as lie between pair and goal on this side are passed on the other, by batch headers only, and then the records
there are compared. Counts go wrong where the copy has duplicates or gaps; comparing shows it, and the place
is looked for around. Where compaction has left so few records that walking finds no way, the next survivors
of both sides are looked up, and the pairs near them are entered at.

What is known is not believed blindly: a pair whose records differ is no pair (a topic was made anew and its
syncs have not come yet), so nothing is answered from it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from twinlog.model import TopicPartition
from twinlog_checkpoint.alignment import (
    WINDOWS,
    Answer,
    EntryCheck,
    Need,
    Outcome,
    Print,
    Walk,
    same_record,
)
from twinlog_checkpoint.alignment_log import AlignedLog
from twinlog_checkpoint.history import OffsetPair, Pairs

READ_BYTES = 256 << 10
"""One fetch of records to compare; a broker gives at least one batch."""
FIRST_READ_BYTES = 16 << 10
"""The first one of a walk, as most end near; the next ones are four times as large, up to READ_BYTES."""
PEEK_BYTES = 4 << 10
"""One fetch for a single record."""
COUNT_BYTES = 1 << 20
"""One fetch of records to count."""
NEAR_OFFSETS = 2_000
"""Up to here from a known pair records are walked, beyond they are counted."""
STRIDE_BYTES = 32 << 20
"""After so many bytes of counting the place is compared and remembered: a long way is never walked twice."""
_STRIDE_SHARE = 4
"""A stride counts on one side with this part of the budget: the other side and comparing cost as much."""
_MAX_JUMPS = 16
"""From survivor to survivor, before a compacted stretch is given up for this time."""
_PAIRS_TO_CHECK = 4
_BEFORE_GOAL = 64
"""Counting stops this far before the goal, so that its record is confirmed by those before it."""


class BudgetSpent(Exception):  # noqa: N818  # a signal, not an error
    """The bytes that may be read in this interval are used up."""


@dataclass(slots=True)
class ByteBudget:
    """Bytes that may still be read."""

    left_bytes: int
    spent_bytes: int = 0

    def spend(self, size_bytes: int) -> None:
        self.left_bytes -= size_bytes
        self.spent_bytes += size_bytes

    def check(self) -> None:
        """Raises BudgetSpent."""
        if self.left_bytes <= 0:
            raise BudgetSpent


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBounds:
    """First offset, and the end that a reader may see."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One log of an alignment."""

    log: AlignedLog
    partition: TopicPartition
    bounds: LogBounds


async def count_visible(side: Side, start: int, stop: int, budget: ByteBudget) -> int:
    """Visible records of one log in [start, stop). Raises BudgetSpent or KafkaError."""
    records, position = 0, start
    while position < stop:
        budget.check()
        passed = await side.log.count(side.partition, position, stop, max_bytes=COUNT_BYTES)
        budget.spend(passed.size_bytes)
        if passed.next_offset <= position:
            break
        records, position = records + passed.records, passed.next_offset
    return records


@dataclass(slots=True, kw_only=True)
class Aligner:
    """One partition and its copy. `here` is the side the offsets are of, `there` the side of the answers."""

    here: Side
    there: Side
    pairs: Pairs
    budget: ByteBudget
    astray: set[OffsetPair] = field(default_factory=set)
    """Pairs from which counting led nowhere, or cost too much; kept by the caller for the next time."""
    _pairs_check: EntryCheck | None = field(default=None)
    """What the newest pairs say of all of them; None = not asked yet."""

    async def align(self, wanted: Sequence[int], answers: dict[int, Answer]) -> None:
        """Put an answer for each wanted offset into `answers`; those already there stay.

        Raises BudgetSpent, or KafkaError when a log cannot be read; what was found by then is in `answers`.
        """
        for offset in sorted(set(wanted)):
            if offset not in answers:
                await self._align_from(offset, [other for other in wanted if other >= offset], answers)

    async def copied_end(self) -> OffsetPair | None:
        """The last record here that is there as well; None when it cannot be found. Raises as `align`."""
        pair = self.pairs.at_or_below(self.here.bounds.end)
        if pair is None or not self._readable(pair):
            return None
        walk = await self._walk_from(pair, [self.here.bounds.end])
        lost = walk.answers[self.here.bounds.end].outcome is Outcome.LOST
        return None if lost else walk.last_match

    async def _align_from(self, offset: int, wanted: Sequence[int], answers: dict[int, Answer]) -> None:
        """Answer `offset`, and with the same reads every other wanted one that is near behind it."""
        if not self.here.bounds.start <= offset <= self.here.bounds.end:
            answers[offset] = Answer(Outcome.LOST, None)
            return
        entry = await self._approach(offset)
        if entry is None:
            answers[offset] = await self._enter_without_pair(offset)
            return
        together = [offset]
        for other in sorted(set(wanted)):
            if other - together[-1] <= NEAR_OFFSETS and other not in answers:
                together.append(other)
        walk = await self._walk_from(entry, together)
        if walk.way_lost and walk.answers[offset].outcome is not Outcome.MATCH:
            reached, found = await self._among_survivors(offset, entry)
            if found.outcome is Outcome.MATCH:
                answers.update({other: found for other in together if other <= reached})
                return
        answers.update(walk.answers)

    async def _approach(self, offset: int) -> OffsetPair | None:
        """A pair at or shortly before `offset` from which both logs can be read; None when there is none."""
        while True:
            pair = self.pairs.at_or_below(offset)
            if pair is None or not self._readable(pair):
                return None
            if offset - pair.upstream <= NEAR_OFFSETS:
                return pair
            if pair in self.astray:
                return pair
            self.astray.add(pair)
            nearer = await self._stride(pair, offset - _BEFORE_GOAL)
            if nearer is None or nearer.upstream <= pair.upstream:
                return pair
            self.astray.discard(pair)
            self.pairs.on_verified(nearer)
            if self.pairs.at_or_below(offset) == pair:
                return nearer

    def _readable(self, pair: OffsetPair) -> bool:
        return (
            pair.upstream >= self.here.bounds.start
            and self.there.bounds.start <= pair.downstream < self.there.bounds.end
        )

    async def _stride(self, pair: OffsetPair, goal: int) -> OffsetPair | None:
        """Go from a pair towards `goal` by counting; None when the logs disagree where the counts lead."""
        records, position = 0, pair.upstream
        left_bytes = min(STRIDE_BYTES, self.budget.left_bytes // _STRIDE_SHARE)
        while position < goal and left_bytes > 0:
            self.budget.check()
            passed = await self.here.log.count(
                self.here.partition, position, goal, max_bytes=min(COUNT_BYTES, left_bytes)
            )
            self.budget.spend(passed.size_bytes)
            if passed.next_offset <= position:
                break
            records, position = records + passed.records, passed.next_offset
            left_bytes -= passed.size_bytes
        reached = min(position, goal)
        place = await self._skip(pair.downstream, records)
        for entry in (place, max(pair.downstream, place - WINDOWS[-1])):
            walk = await self._walk(reached, entry, [reached], pinned=False)
            if walk.first_match is not None and walk.answers[reached].outcome is Outcome.MATCH:
                return walk.first_match
        return None

    async def _skip(self, start: int, records: int) -> int:
        """The offset on the other side that has `records` visible ones between `start` and it, or the log's
        end."""
        position, left = start, records
        while left > 0 and position < self.there.bounds.end:
            self.budget.check()
            passed = await self.there.log.skip(self.there.partition, position, left, max_bytes=COUNT_BYTES)
            self.budget.spend(passed.size_bytes)
            if passed.next_offset <= position:
                break
            left, position = left - passed.records, passed.next_offset
        return position

    async def _enter_without_pair(self, offset: int) -> Answer:
        """The records at the nearest pair below are gone on one side, or there is none: enter before the pair
        above.

        Offsets of both logs grow at least by one for each record, so the copy of `offset` is not further
        before the pair's than twice its distance here, unless the copy has many holes: then it is not found,
        and not guessed.
        """
        above = self.pairs.above(offset)
        if above is not None and self._readable(above):
            distance = above.upstream - offset
            entry = max(self.there.bounds.start, above.downstream - 2 * distance - WINDOWS[0])
            walk = await self._walk(offset, entry, [offset], pinned=entry == self.there.bounds.start)
            if walk.answers[offset].outcome is not Outcome.LOST:
                return walk.answers[offset]
        _, found = await self._among_survivors(offset, None)
        return found

    async def _among_survivors(self, offset: int, entry: OffsetPair | None) -> tuple[int, Answer]:
        """Jump from survivor to survivor until a record is found on both sides; the answer holds for every
        offset from `offset` up to the one returned.

        Nothing is passed over: what lies before the next record here is gone here, and what lies between a
        pair and the next record there is gone there.
        """
        for _ in range(_MAX_JUMPS):
            here = await self._first(self.here, offset)
            if here is None:
                break
            below = self.pairs.at_or_below(here.offset)
            start = self.there.bounds.start
            there = await self._first(self.there, start if below is None else max(start, below.downstream))
            nearest = None if there is None else self.pairs.downstream_at_or_below(there.offset)
            known = [pair for pair in (below, nearest) if pair is not None and self._readable(pair)]
            pair = max(known, key=lambda pair: pair.upstream, default=None)
            if pair is None or (entry is not None and pair.upstream <= entry.upstream):
                break
            entry, offset = pair, max(here.offset, pair.upstream)
            walk = await self._walk_from(pair, [offset])
            if not walk.way_lost or walk.answers[offset].outcome is Outcome.MATCH:
                return offset, walk.answers[offset]
        return offset, Answer(Outcome.LOST, None)

    async def _first(self, side: Side, offset: int) -> Print | None:
        """The first visible record at or after `offset`; None when there is none."""
        max_bytes = PEEK_BYTES
        while offset < side.bounds.end:
            self.budget.check()
            stretch = await side.log.read(side.partition, offset, max_bytes=max_bytes)
            self.budget.spend(stretch.size_bytes)
            if stretch.prints:
                return stretch.prints[0]
            if stretch.next_offset <= offset:
                break
            offset, max_bytes = stretch.next_offset, READ_BYTES
        return None

    async def _walk_from(self, pair: OffsetPair, wanted: Sequence[int]) -> Walk:
        """Walk from a pair that is known. When its own records are gone, newer ones have to vouch for it."""
        await self._check_pairs()
        walk = await self._walk(pair.upstream, pair.downstream, wanted, pinned=True, entry=pair)
        if not self._is_sure(walk, entry=pair):
            walk.answers = dict.fromkeys(walk.answers, Answer(Outcome.LOST, None))
        return walk

    def _is_sure(self, walk: Walk, *, entry: OffsetPair | None) -> bool:
        """Whether what a walk found may be believed: it entered right, or found its way by content alone."""
        if entry is None:
            return True
        return EntryCheck.SAME in (walk.entry_check, self._pairs_check)

    async def _check_pairs(self) -> None:
        """Compare the records of the newest pair that both sides still show. Done once."""
        if self._pairs_check is not None:
            return
        pair = self.pairs.newest()
        for _ in range(_PAIRS_TO_CHECK):
            if pair is None or not self._readable(pair):
                break
            here = await self._first(self.here, pair.upstream)
            there = await self._first(self.there, pair.downstream)
            if here is not None and there is not None and OffsetPair(here.offset, there.offset) == pair:
                self._pairs_check = EntryCheck.SAME if same_record(here, there) else EntryCheck.DIFFERENT
                return
            pair = self.pairs.at_or_below(pair.upstream - 1)
        self._pairs_check = EntryCheck.UNSEEN

    async def _walk(
        self,
        here_from: int,
        there_from: int,
        wanted: Sequence[int],
        *,
        pinned: bool,
        entry: OffsetPair | None = None,
    ) -> Walk:
        walk = Walk(wanted, pinned=pinned, entry=entry)
        generation = self.pairs.generation
        try:
            await self._feed(walk, here_from, there_from)
        finally:
            # Also what was found before the budget was spent: the next walk starts there.
            if self._is_sure(walk, entry=entry) and self.pairs.generation == generation:
                for pair in (*walk.learned, walk.last_match):
                    if pair is not None:
                        self.pairs.on_verified(pair)
        return walk

    async def _feed(self, walk: Walk, here_at: int, there_at: int) -> None:
        here_bytes = there_bytes = FIRST_READ_BYTES
        while (need := walk.step()) is not Need.NOTHING:
            self.budget.check()
            if need is Need.SOURCE:
                stretch = await self.here.log.read(self.here.partition, here_at, max_bytes=here_bytes)
                walk.feed_source(stretch.prints, ended=stretch.ended or stretch.next_offset <= here_at)
                here_at, here_bytes = stretch.next_offset, min(4 * here_bytes, READ_BYTES)
            else:
                stretch = await self.there.log.read(self.there.partition, there_at, max_bytes=there_bytes)
                walk.feed_target(stretch.prints, ended=stretch.ended or stretch.next_offset <= there_at)
                there_at, there_bytes = stretch.next_offset, min(4 * there_bytes, READ_BYTES)
            self.budget.spend(stretch.size_bytes)
