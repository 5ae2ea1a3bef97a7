"""Finds offsets of one log in its copy by reading both: enters at the nearest known pair, counts, compares.

Between a known pair and the offset asked for there may be a hundred records or a hundred million. Near ones
are walked record by record (`alignment.Walk`). Far ones are approached by counting: as many visible records
as lie between pair and goal on this side are passed on the other, by batch headers only, and then the records
there are compared. Counts go wrong where the copy has duplicates or gaps; comparing shows it, and the place
is looked for around. Where compaction has left so few records that walking finds no way, the next survivors
of both sides are looked up, and the pairs near them are entered at. Behind a stretch that was copied twice,
and is longer than walking looks ahead, the place is counted back from the next pair above.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from twinlog_checkpoint.translation.alignment import WINDOWS, Answer, Outcome, same_record
from twinlog_checkpoint.translation.history import OffsetPair, Pairs
from twinlog_checkpoint.translation.log_sides import (
    COUNT_BYTES,
    BudgetSpent,
    ByteBudget,
    Side,
    count_visible,
    first_visible,
    skip_visible,
)
from twinlog_checkpoint.translation.pair_walks import PairWalks

NEAR_OFFSETS = 2_000
"""Up to here from a known pair records are walked, beyond they are counted."""
STRIDE_BYTES = 32 << 20
"""After so many bytes of counting the place is compared and remembered: a long way is never walked twice."""
_STRIDE_SHARE = 4
"""A stride counts on one side with this part of the budget: the other side and comparing cost as much."""
_MAX_JUMPS = 16
"""From survivor to survivor, before a compacted stretch is given up for this time."""
_BEFORE_GOAL = 64
"""Counting stops this far before the goal, so that its record is confirmed by those before it."""


@dataclass(slots=True, kw_only=True)
class Aligner:
    """One partition and its copy. `here` is the side the offsets are of, `there` the side of the answers."""

    here: Side
    there: Side
    pairs: Pairs
    budget: ByteBudget
    astray: set[OffsetPair] = field(default_factory=set)
    """Pairs from which counting led nowhere, or cost too much; kept by the caller for the next time."""
    walks: PairWalks = field(init=False)

    def __post_init__(self) -> None:
        self.walks = PairWalks(here=self.here, there=self.there, pairs=self.pairs, budget=self.budget)

    async def align(self, wanted: Sequence[int], answers: dict[int, Answer]) -> None:
        """Put an answer for each wanted offset into `answers`; those already there stay.

        Raises BudgetSpent, or KafkaError when a log cannot be read; what was found by then is in `answers`.
        """
        for offset in sorted(set(wanted)):
            if offset not in answers:
                await self._align_from(offset, [other for other in wanted if other >= offset], answers)

    async def _before_start(self, offset: int, first: Answer) -> Answer:
        """The answer for a record that is gone here. `first` is that of the first one left here, which is the
        next one to read only if the copy holds none that may come before it."""
        nearest = await self._lowest_place(offset)
        lowest = self.there.bounds.start if nearest is None else nearest
        if first.offset is None:
            return first if nearest is None else Answer(Outcome.NOT_BEFORE, nearest)
        left = await first_visible(self.there, lowest, self.budget)
        if left is None or left.offset >= first.offset:
            return first
        return Answer(Outcome.NOT_BEFORE, lowest)

    async def _lowest_place(self, offset: int) -> int | None:
        """Before which the copy of a record that is gone here cannot lie: the nearest known pair, if it is
        sure. Raises as `align`."""
        pair = self.pairs.at_or_below(offset)
        if pair is None or not self.there.bounds.start <= pair.downstream < self.there.bounds.end:
            return None
        if not await self.walks.vouch_for(pair):
            return None
        return pair.downstream + (pair.upstream < offset)

    async def copied_end(self) -> OffsetPair | None:
        """The last record here that is there as well; None when it cannot be found. Raises as `align`."""
        pair = self.pairs.at_or_below(self.here.bounds.end)
        if pair is None or not self.walks.readable(pair):
            return None
        walk = await self.walks.walk_from(pair, [self.here.bounds.end])
        lost = walk.answers[self.here.bounds.end].outcome is Outcome.LOST
        return None if lost else walk.last_match

    async def _align_from(self, offset: int, wanted: Sequence[int], answers: dict[int, Answer]) -> None:
        """Answer `offset`, and with the same reads every other wanted one that is near behind it."""
        if offset > self.here.bounds.end:
            answers[offset] = Answer(Outcome.LOST, None)
            return
        start = self.here.bounds.start
        if offset < start:
            if start not in answers:
                await self._align_from(start, [start, *(other for other in wanted if other > start)], answers)
            answers[offset] = await self._before_start(offset, answers[start])
            return
        entry = await self._approach(offset)
        if entry is None:
            answers[offset] = await self._enter_without_pair(offset)
            if answers[offset].outcome is Outcome.LOST:
                await self._answer_between([offset], answers)
            return
        together = [offset]
        for other in sorted(set(wanted)):
            if other - together[-1] <= NEAR_OFFSETS and other not in answers:
                together.append(other)
        walk = await self.walks.walk_from(entry, together)
        if walk.way_lost and walk.answers[offset].outcome is not Outcome.MATCH:
            reached, found = await self._among_survivors(offset, entry)
            if found.outcome is Outcome.MATCH:
                answers.update({other: found for other in together if other <= reached})
                return
            nearer = await self._counted_back(offset, entry)
            if nearer is not None:
                walk = await self.walks.walk_from(nearer, together)
        lost = walk.answers[offset].outcome is Outcome.LOST
        # Where the way was lost later, those behind are looked for on their own.
        answers.update(
            {other: told for other, told in walk.answers.items() if lost or told.outcome is not Outcome.LOST}
        )
        if lost:
            await self._answer_between(together, answers)

    async def _answer_between(self, offsets: Sequence[int], answers: dict[int, Answer]) -> None:
        """Answer those rising offsets for whose records the copy has none, by the next one that it has."""
        pair = await self._between(offsets[0])
        if pair is not None:
            found = Answer(Outcome.MATCH, pair.downstream)
            answers.update({offset: found for offset in offsets if offset <= pair.upstream})

    async def _approach(self, offset: int) -> OffsetPair | None:
        """A pair at or shortly before `offset` from which both logs can be read; None when there is none."""
        while True:
            pair = self.pairs.at_or_below(offset)
            if pair is None or not self.walks.readable(pair):
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
        place = await skip_visible(self.there, pair.downstream, records, self.budget)
        for entry in (place, max(pair.downstream, place - WINDOWS[-1])):
            walk = await self.walks.walk(reached, entry, [reached], pinned=False)
            if walk.first_match is not None and walk.answers[reached].outcome is Outcome.MATCH:
                return walk.first_match
        return None

    async def _counted_back(self, offset: int, below: OffsetPair) -> OffsetPair | None:
        """The pair at `offset`: as many visible records lie between it and the next pair above on both sides.

        None when the record counted to is another one: then the logs differ there as well.
        """
        above = self.pairs.above(offset)
        if above is None or not self.walks.readable(above):
            return None
        left = await self._count(self.here, offset, above.upstream)
        known = await self._count(self.there, below.downstream, above.downstream)
        if left is None or known is None or known < left:
            return None
        place = await skip_visible(self.there, below.downstream, known - left, self.budget)
        walk = await self.walks.walk(offset, place, [offset], pinned=False)
        here = await first_visible(self.here, offset, self.budget)
        there = await first_visible(self.there, place, self.budget)
        if here is None or there is None or walk.first_match != OffsetPair(here.offset, there.offset):
            return None
        self.pairs.on_verified(walk.first_match)
        return walk.first_match

    async def _between(self, offset: int) -> OffsetPair | None:
        """The pair above, where its copy follows that of the pair below without a record between: nothing of
        what lies between them here is there, as after the copy lost its tail.

        Without a pair below its copy has to be the first record of a log that still has its first offset.
        """
        above, below = self.pairs.above(offset - 1), self.pairs.at_or_below(offset - 1)
        if above is None or not self.walks.readable(above):
            return None
        begin = self.there.bounds.start if below is None else below.downstream + 1
        if below is None and begin > 0:
            return None
        there = await first_visible(self.there, begin, self.budget)
        here = await first_visible(self.here, above.upstream, self.budget)
        if here is None or there is None or OffsetPair(here.offset, there.offset) != above:
            return None
        return above if same_record(here, there) else None

    async def _count(self, side: Side, start: int, stop: int) -> int | None:
        """Visible records in [start, stop); None when that takes more than a stride."""
        budget = ByteBudget(min(STRIDE_BYTES, self.budget.left_bytes))
        try:
            return await count_visible(side, start, stop, budget)
        except BudgetSpent:
            return None
        finally:
            self.budget.spend(budget.spent_bytes)

    async def _enter_without_pair(self, offset: int) -> Answer:
        """The records at the nearest pair below are gone on one side, or there is none: enter before the pair
        above.

        Offsets of both logs grow at least by one for each record, so the copy of `offset` is not further
        before the pair's than twice its distance here, unless the copy has many holes: then it is not found,
        and not guessed.
        """
        above = self.pairs.above(offset)
        if above is not None and self.walks.readable(above):
            distance = above.upstream - offset
            entry = max(self.there.bounds.start, above.downstream - 2 * distance - WINDOWS[0])
            walk = await self.walks.walk(offset, entry, [offset], pinned=entry == self.there.bounds.start)
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
            here = await first_visible(self.here, offset, self.budget)
            if here is None:
                break
            below = self.pairs.at_or_below(here.offset)
            start = self.there.bounds.start
            there = await first_visible(
                self.there, start if below is None else max(start, below.downstream), self.budget
            )
            nearest = None if there is None else self.pairs.downstream_at_or_below(there.offset)
            known = [pair for pair in (below, nearest) if pair is not None and self.walks.readable(pair)]
            pair = max(known, key=lambda pair: pair.upstream, default=None)
            if pair is None or (entry is not None and pair.upstream <= entry.upstream):
                break
            entry, offset = pair, max(here.offset, pair.upstream)
            walk = await self.walks.walk_from(pair, [offset])
            if not walk.way_lost or walk.answers[offset].outcome is Outcome.MATCH:
                return offset, walk.answers[offset]
        return offset, Answer(Outcome.LOST, None)
