"""Walks of both logs from a pair of offsets, as far as a budget goes; what they find is kept as pairs.

What is known is not believed blindly: a pair whose records differ is no pair (a topic was created again and
its syncs have not come yet), so nothing is answered from it.

Where a log has the broker's own times (LogAppendTime), another record with the same key and value may be
taken for the one that is looked for. Where the copy lacks records, or holds some twice, that may be a later
one: the answer would be ahead. So what a walk finds there counts only between two known pairs between which
both logs show equally many records, and while it meets no difference.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from twinlog_checkpoint.translation.alignment import Answer, EntryCheck, Need, Outcome, Walk, same_record
from twinlog_checkpoint.translation.history import OffsetPair, Pairs
from twinlog_checkpoint.translation.log_sides import (
    READ_BYTES,
    ByteBudget,
    Side,
    count_visible,
    first_visible,
)

FIRST_READ_BYTES = 16 << 10
"""The first one of a walk, as most end near; the next ones are four times as large, up to READ_BYTES."""
_PAIRS_TO_CHECK = 4


@dataclass(slots=True, kw_only=True)
class PairWalks:
    """All methods that read raise BudgetSpent, or KafkaError when a log cannot be read."""

    here: Side
    there: Side
    pairs: Pairs
    budget: ByteBudget
    _pairs_check: EntryCheck | None = field(default=None)
    """What the newest pairs say of all of them; None = not asked yet."""
    _even: dict[tuple[OffsetPair, OffsetPair], bool] = field(default_factory=dict)
    """Between which pairs both logs show equally many records."""

    @property
    def contradicted(self) -> bool:
        """The newest pairs are not what the logs hold: the copy is another one than the syncs tell of."""
        return self._pairs_check is EntryCheck.DIFFERENT

    def readable(self, pair: OffsetPair) -> bool:
        """Whether both logs still hold what lies behind a pair."""
        return (
            pair.upstream >= self.here.bounds.start
            and self.there.bounds.start <= pair.downstream < self.there.bounds.end
        )

    async def walk_from(self, pair: OffsetPair, wanted: Sequence[int]) -> Walk:
        """Walk from a pair that is known. When its own records are gone, newer ones have to vouch for it."""
        await self._check_pairs()
        walk = await self.walk(pair.upstream, pair.downstream, wanted, pinned=True, entry=pair)
        if not self._is_sure(walk, entry=pair):
            walk.answers = dict.fromkeys(walk.answers, Answer(Outcome.LOST, None))
        return walk

    async def vouch_for(self, pair: OffsetPair) -> bool:
        """Whether a pair may be believed although the record here is gone: newer ones are what they say."""
        await self._check_pairs()
        return self._pairs_check is EntryCheck.SAME and self.pairs.vouched(pair)

    def _is_sure(self, walk: Walk, *, entry: OffsetPair | None) -> bool:
        """Whether what a walk found may be believed: it entered right, or found its way by content alone."""
        if entry is None:
            return True
        if walk.entry_check is EntryCheck.SAME:
            return True
        return self._pairs_check is EntryCheck.SAME and self.pairs.vouched(entry)

    async def _check_pairs(self) -> None:
        """Compare the records of the newest pair that both sides still show. Done once."""
        if self._pairs_check is not None:
            return
        # The newest ones may lie past the end of the copy: it was created again, or lost its tail.
        pair = self.pairs.downstream_at_or_below(self.there.bounds.end - 1)
        for _ in range(_PAIRS_TO_CHECK):
            if pair is None or not self.readable(pair):
                break
            here = await first_visible(self.here, pair.upstream, self.budget)
            there = await first_visible(self.there, pair.downstream, self.budget)
            if here is not None and there is not None and OffsetPair(here.offset, there.offset) == pair:
                self._pairs_check = EntryCheck.SAME if same_record(here, there) else EntryCheck.DIFFERENT
                return
            pair = self.pairs.at_or_below(pair.upstream - 1)
        self._pairs_check = EntryCheck.UNSEEN

    async def walk(
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
            if not walk.has_no_times:
                self._learn(walk, entry, generation)
        if walk.has_no_times:
            await self._keep_what_is_sure(walk, min(wanted), entry)
            self._learn(walk, entry, generation)
        return walk

    def _learn(self, walk: Walk, entry: OffsetPair | None, generation: int) -> None:
        if self._is_sure(walk, entry=entry) and self.pairs.generation == generation:
            for pair in (*walk.learned, walk.last_match):
                if pair is not None:
                    self.pairs.on_verified(pair)

    async def _keep_what_is_sure(self, walk: Walk, offset: int, entry: OffsetPair | None) -> None:
        """Leave of a walk without timestamps what it found up to the next known pair; nothing where records
        may have been taken for others. The offsets behind that pair are walked to from there."""
        below = entry or self.pairs.at_or_below(offset)
        above = self.pairs.above(offset - 1)
        is_sure = walk.jumps == 0 and (
            above is None or (below is not None and await self._is_even(below, above))
        )
        walk.forget_behind(None if above is None else above.upstream, keep_answers=is_sure)

    async def _is_even(self, below: OffsetPair, above: OffsetPair) -> bool:
        """Whether both logs show equally many records between two pairs."""
        if (below, above) not in self._even:
            here = await count_visible(self.here, below.upstream, above.upstream, self.budget)
            there = await count_visible(self.there, below.downstream, above.downstream, self.budget)
            self._even[below, above] = here == there
        return self._even[below, above]

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
