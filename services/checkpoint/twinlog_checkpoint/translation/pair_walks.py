"""Compares both logs from a pair of offsets on, as far as a budget goes; what is found is kept as pairs.

What is known is not believed blindly: a pair whose records differ is no pair (a topic was created again and
its syncs have not come yet), so nothing is answered from it.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from twinlog.comparison.compare import Comparison
from twinlog.comparison.model import Bounds, Side
from twinlog.comparison.sides import AskEnds, Chunk, Extend, Extended, Read
from twinlog_checkpoint.translation.history import OffsetPair, Pairs
from twinlog_checkpoint.translation.log_sides import FIRST_READ_BYTES, READ_BYTES, ComparedPartition
from twinlog_checkpoint.translation.walk import LOST, EntryCheck, Walk, same_record

MOST_WINDOW = 1 << 14
"""Records of each side held to find the way again."""
_PAIRS_TO_CHECK = 4


@dataclass(slots=True, kw_only=True)
class PairWalks:
    """All methods that read raise BudgetSpent, or KafkaError when a log cannot be read."""

    here: ComparedPartition
    there: ComparedPartition
    pairs: Pairs
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
        if not self._is_believed(walk):
            walk.answers = dict.fromkeys(walk.answers, LOST)
        return walk

    async def vouch_for(self, pair: OffsetPair) -> bool:
        """Whether a pair may be believed although the record here is gone: newer ones are what they say."""
        await self._check_pairs()
        return self._pairs_check is EntryCheck.SAME and self.pairs.vouched(pair)

    def _is_believed(self, walk: Walk) -> bool:
        """Whether it entered right, or found its way by content alone."""
        if walk.entry is None or walk.entry_check is EntryCheck.SAME:
            return True
        return self._pairs_check is EntryCheck.SAME and self.pairs.vouched(walk.entry)

    async def _check_pairs(self) -> None:
        """Compare the records of the newest pair that both sides still show. Done once."""
        if self._pairs_check is not None:
            return
        # The newest ones may lie past the end of the copy: it was created again, or lost its tail.
        pair = self.pairs.downstream_at_or_below(self.there.bounds.end - 1)
        for _ in range(_PAIRS_TO_CHECK):
            if pair is None or not self.readable(pair):
                break
            here, there = await self.here.first(pair.upstream), await self.there.first(pair.downstream)
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
        """Compare from these places on until each wanted offset has its answer."""
        bounds = Bounds(
            source=self.here.partition,
            target=self.there.partition,
            source_start=here_from,
            source_goal=self.here.bounds.end,
            source_limit=self.here.bounds.end,
            target_start=there_from,
            target_goal=0,  # What only the other log has at its end is no question here.
            target_limit=self.there.bounds.end,
            position=None,
            # Compaction may have taken most records of either side: fewer matches confirm a place then.
            source_compacted=True,
            target_compacted=True,
        )
        next_pair = self.pairs.above(min(wanted) - 1)
        walk = Walk(
            bounds=bounds,
            wanted=deque(sorted(set(wanted))),
            pinned=pinned,
            entry=entry,
            next_pair=next_pair,
        )
        generation = self.pairs.generation
        try:
            await self._compare(walk)
            walk.finish()
        finally:
            # Also what was found before the budget was spent: the next walk starts there.
            if self._is_believed(walk) and walk.is_sure and self.pairs.generation == generation:
                for pair in (*walk.learned, walk.last_match):
                    if pair is not None:
                        self.pairs.on_verified(pair)
        return walk

    async def _compare(self, walk: Walk) -> None:
        comparison = Comparison(
            bounds=walk.bounds,
            results=walk,
            most_window=MOST_WINDOW,
            # Which of the two is the copy differs with the direction: neither broker's own times count.
            stamped=frozenset(Side),
        )
        sizes = dict.fromkeys(Side, FIRST_READ_BYTES)
        steps = comparison.compare()
        answer: Any = None
        while not walk.is_done:
            try:
                asked = steps.send(answer)
            except StopIteration:
                return
            answer = await self._answer(asked, sizes)

    async def _answer(self, asked: Read | Extend | AskEnds, sizes: dict[Side, int]) -> Chunk | Extended:
        if not isinstance(asked, Read):
            return Extended(target_limit=self.there.bounds.end, position=None)
        side = self.here if asked.side is Side.SOURCE else self.there
        chunk = await side.read(asked.offset, max_bytes=sizes[asked.side])
        sizes[asked.side] = min(4 * sizes[asked.side], READ_BYTES)
        return chunk
