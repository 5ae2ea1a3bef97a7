"""Walks of both logs from a pair of offsets, as far as a budget goes; what they find is kept as pairs.

What is known is not believed blindly: a pair whose records differ is no pair (a topic was created again and
its syncs have not come yet), so nothing is answered from it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from twinlog_checkpoint.translation.alignment import Answer, EntryCheck, Need, Outcome, Walk, same_record
from twinlog_checkpoint.translation.history import OffsetPair, Pairs
from twinlog_checkpoint.translation.log_sides import READ_BYTES, ByteBudget, Side, first_visible

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
        pair = self.pairs.newest()
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
