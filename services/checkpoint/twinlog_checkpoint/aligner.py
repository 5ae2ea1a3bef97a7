"""Finds offsets of one log in its copy by reading both: enters at the nearest known pair, counts, compares.

Between a known pair and the offset asked for there may be a hundred records or a hundred million. Near ones
are walked record by record (`alignment.Walk`). Far ones are approached by counting: as many visible records
as lie between pair and goal on this side are passed on the other, by batch headers only, and then the records
there are compared. Counts go wrong where the copy has duplicates or gaps; comparing shows it, and the place
is looked for around.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from twinlog.model import TopicPartition
from twinlog_checkpoint.alignment import WINDOWS, Answer, Need, Outcome, Walk
from twinlog_checkpoint.alignment_log import AlignedLog
from twinlog_checkpoint.history import OffsetPair, Pairs

READ_BYTES = 256 << 10
"""One fetch of records to compare; a broker gives at least one batch."""
COUNT_BYTES = 1 << 20
"""One fetch of records to count."""
NEAR_OFFSETS = 2_000
"""Up to here from a known pair records are walked, beyond they are counted."""
STRIDE_BYTES = 32 << 20
"""After so many bytes of counting the place is compared and remembered: a long way is never walked twice."""
_STRIDE_SHARE = 4
"""A stride counts on one side with this part of the budget: the other side and comparing cost as much."""
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
        walk = await self._walk(pair.upstream, pair.downstream, [self.here.bounds.end], pinned=True)
        lost = walk.answers[self.here.bounds.end].outcome is Outcome.LOST
        return None if lost else walk.last_match

    async def _align_from(self, offset: int, wanted: Sequence[int], answers: dict[int, Answer]) -> None:
        """Answer `offset`, and with the same reads every other wanted one that is near behind it."""
        if not self.here.bounds.start <= offset <= self.here.bounds.end:
            answers[offset] = Answer(Outcome.LOST, None)
            return
        entry = await self._approach(offset)
        if entry is None:
            answers.update(await self._enter_without_pair(offset))
            return
        together = [offset]
        for other in sorted(set(wanted)):
            if other - together[-1] <= NEAR_OFFSETS and other not in answers:
                together.append(other)
        walk = await self._walk(entry.upstream, entry.downstream, together, pinned=True)
        answers.update(walk.answers)

    async def _approach(self, offset: int) -> OffsetPair | None:
        """A pair at or shortly before `offset` from which both logs can be read; None when there is none."""
        while True:
            pair = self.pairs.at_or_below(offset)
            if pair is None or not self._readable(pair):
                return None
            if offset - pair.upstream <= NEAR_OFFSETS:
                return pair
            nearer = await self._stride(pair, offset - _BEFORE_GOAL)
            if nearer is None or nearer.upstream <= pair.upstream:
                return pair
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

    async def _enter_without_pair(self, offset: int) -> Mapping[int, Answer]:
        """The records at the nearest pair below are gone on one side, or there is none: enter before the pair
        above.

        Offsets of both logs grow at least by one for each record, so the copy of `offset` is not further
        before the pair's than twice its distance here, unless the copy has many holes: then it is not found,
        and not guessed.
        """
        above = self.pairs.above(offset)
        if above is None or not self._readable(above):
            return {offset: Answer(Outcome.LOST, None)}
        distance = above.upstream - offset
        entry = max(self.there.bounds.start, above.downstream - 2 * distance - WINDOWS[0])
        pinned = entry == self.there.bounds.start
        walk = await self._walk(offset, entry, [offset], pinned=pinned)
        return walk.answers

    async def _walk(self, here_from: int, there_from: int, wanted: Sequence[int], *, pinned: bool) -> Walk:
        walk = Walk(wanted, pinned=pinned)
        here_at, there_at = here_from, there_from
        while (need := walk.step()) is not Need.NOTHING:
            self.budget.check()
            if need is Need.SOURCE:
                stretch = await self.here.log.read(self.here.partition, here_at, max_bytes=READ_BYTES)
                walk.feed_source(stretch.prints, ended=stretch.ended or stretch.next_offset <= here_at)
                here_at = stretch.next_offset
            else:
                stretch = await self.there.log.read(self.there.partition, there_at, max_bytes=READ_BYTES)
                walk.feed_target(stretch.prints, ended=stretch.ended or stretch.next_offset <= there_at)
                there_at = stretch.next_offset
            self.budget.spend(stretch.size_bytes)
        if pinned or walk.first_match is not None:
            for pair in walk.learned:
                self.pairs.on_verified(pair)
        return walk
