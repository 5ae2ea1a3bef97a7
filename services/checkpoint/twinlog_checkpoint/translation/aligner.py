"""Finds offsets of one log in its copy by comparing both from the nearest known pair on (`PairWalks`).

Where compaction has left so few records that a walk finds no way, the next survivors of both sides are looked
up, and the pairs near them are entered at. Where the copy lost more records than a walk holds, the pairs
around what it lost show that there is nothing between them.

Compares both logs from a pair of offsets on, as far as a budget goes; what is found is kept as pairs.

Of records that are equal in everything a copy may lack any. All are told apart only where both logs have
equally many up to the next known pair, or to their ends. Otherwise a place counts as found only if no record
of the source before it is equal to one behind it: then each record of the copy is on its side, whichever it
is.

What is known is not believed blindly: a pair whose records differ is no pair (a topic was created again and
its syncs have not come yet), so nothing is answered from it.
"""

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from twinlog.comparison.compare import Comparison
from twinlog.comparison.model import Bounds, Side
from twinlog.comparison.records import Entry
from twinlog.comparison.sides import AskEnds, Chunk, Extend, Extended, Read
from twinlog_checkpoint.translation.history import OffsetPair, Pairs
from twinlog_checkpoint.translation.log_sides import FIRST_READ_BYTES, READ_BYTES, ComparedPartition
from twinlog_checkpoint.translation.walk import (
    LOST,
    Answer,
    EntryCheck,
    Outcome,
    Repeats,
    Walk,
    same_record,
)

MOST_WINDOW = 1 << 14
"""Records of each side held to find the way again."""
_NEAR_OFFSETS = 2_000
"""Up to here behind a wanted offset the next one is answered by the same walk, and a walk goes on to what
proves it: a known pair, or both ends."""
_AROUND_OFFSETS = 512
"""So far around a place equal records of the source are looked for."""
_PAIRS_TO_CHECK = 4


@dataclass(slots=True, kw_only=True)
class PairWalks:
    """All methods that read raise BudgetSpent, or KafkaError when a log cannot be read."""

    here: ComparedPartition
    there: ComparedPartition
    pairs: Pairs
    copy_is_here: bool = False
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
        above = None if entry is None else self.pairs.above(entry.upstream)
        goal = self.here.bounds.end if above is None else above.upstream
        to_goal = [goal] if entry is not None and goal - max(wanted) <= _NEAR_OFFSETS else []
        walk = Walk(
            bounds=bounds,
            wanted=deque(sorted({*wanted, *to_goal})),
            pinned=pinned,
            entry=entry,
            next_pair=self.pairs.above(min(wanted) - 1),
        )
        generation = self.pairs.generation
        learned: Sequence[OffsetPair] = walk.kept
        try:
            await self._compare(walk)
            walk.finish()
            if entry is not None and not walk.has_no_times and not await self._is_even(walk, above):
                await self._look_for_repeats(walk, above)
            walk.answers = {offset: walk.answers[offset] for offset in wanted if offset in walk.answers}
            learned = [
                *walk.kept,
                *(pair for pair in walk.learned if above is None or pair.upstream <= above.upstream),
            ]
        finally:
            # Also what was found before the budget was spent: the next walk starts there.
            # What was entered without a pair may be among records that look alike.
            if entry is not None and self._is_believed(walk) and walk.is_sure:
                for pair in learned if self.pairs.generation == generation else ():
                    self.pairs.on_verified(pair)
        return walk

    async def _is_even(self, walk: Walk, above: OffsetPair | None) -> bool:
        """Whether both logs have the same records, and equally many, from where they were entered to the next
        known pair, or to both ends: then no equal records were taken for each other."""
        last = walk.last_match
        if walk.differences or walk.is_lost or last is None:
            return False
        if above is not None:
            return walk.answers.get(above.upstream) == Answer(Outcome.MATCH, above.downstream)
        return (
            await self.here.first(last.upstream + 1) is None
            and await self.there.first(last.downstream + 1) is None
        )

    async def _look_for_repeats(self, walk: Walk, above: OffsetPair | None) -> None:
        """Find the equal records of the source around what was found; what they leave open is not learned."""
        places = {self._in_source(pair) for pair in walk.learned}
        for offset, answer in walk.answers.items():
            if answer.offset is not None:
                places.add(answer.offset if self.copy_is_here else offset)
        if places:
            walk.repeats = await self._repeats(walk, min(places), max(places), above)
        walk.learned = [pair for pair in walk.learned if walk.repeats.names(self._in_source(pair))]

    async def _repeats(self, walk: Walk, first: int, last: int, above: OffsetPair | None) -> Repeats:
        source = self.there if self.copy_is_here else self.here
        begin, stop = max(source.bounds.start, first - _AROUND_OFFSETS), last + _AROUND_OFFSETS
        if walk.entry is not None:
            begin = max(begin, self._in_source(walk.entry) + 1)
        if above is not None:
            stop = min(stop, self._in_source(above))
        repeats = Repeats()

        def is_behind(entry: Entry) -> bool:
            if entry.offset < stop:
                repeats.add(entry[1:4], entry.offset)
            return entry.offset >= stop

        await source.find(begin, is_behind)
        return repeats

    def _in_source(self, pair: OffsetPair) -> int:
        return pair.downstream if self.copy_is_here else pair.upstream

    def is_sure(self, walk: Walk, offset: int, answer: Answer) -> bool:
        """Whether no other place agrees with what both logs have."""
        if not self.copy_is_here:
            return walk.repeats.divide_at(offset)
        # Of a copy the record itself has to be told apart: its original, or that of the last one before.
        at_end = answer.outcome is Outcome.AT_END
        return answer.offset is not None and walk.repeats.names(answer.offset - at_end)

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
            await self._pass_milestone(walk)

    async def _pass_milestone(self, walk: Walk) -> None:
        """Keep what was found far before, in case the budget does not suffice."""
        at, last = walk.milestone, walk.last_match
        if at is None or last is None or last.upstream < at.upstream + _AROUND_OFFSETS:
            return
        walk.milestone = None
        place = self._in_source(at)
        if walk.has_no_times or (await self._repeats(walk, place, place, None)).names(place):
            walk.kept.append(at)

    async def _answer(self, asked: Read | Extend | AskEnds, sizes: dict[Side, int]) -> Chunk | Extended:
        if not isinstance(asked, Read):
            return Extended(target_limit=self.there.bounds.end, position=None)
        side = self.here if asked.side is Side.SOURCE else self.there
        chunk = await side.read(asked.offset, max_bytes=sizes[asked.side])
        sizes[asked.side] = min(4 * sizes[asked.side], READ_BYTES)
        return chunk


def _at_most(answer: Answer, lowest: int | None) -> Answer:
    """The answer, unless a record before it may be the one."""
    if lowest is None or (answer.offset is not None and answer.offset <= lowest):
        return answer
    return Answer(Outcome.NOT_BEFORE, lowest)


_MAX_JUMPS = 16
"""From survivor to survivor, before a compacted stretch is given up for this time."""
_BEFORE_PAIR = 64
"""How many offsets earlier than is likely a log is entered without a pair."""


@dataclass(slots=True, kw_only=True)
class Aligner:
    """One partition and its copy. `here` is the side the offsets are of, `there` the side of the answers."""

    here: ComparedPartition
    there: ComparedPartition
    pairs: Pairs
    copy_is_here: bool = False
    walks: PairWalks = field(init=False)

    def __post_init__(self) -> None:
        self.walks = PairWalks(
            here=self.here, there=self.there, pairs=self.pairs, copy_is_here=self.copy_is_here
        )

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
        left = await self.there.first(lowest)
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
            answers[offset] = LOST
            return
        start = self.here.bounds.start
        if offset < start:
            if start not in answers:
                await self._align_from(start, [start, *(other for other in wanted if other > start)], answers)
            answers[offset] = await self._before_start(offset, answers[start])
            return
        entry = self.pairs.at_or_below(offset)
        if entry is None or not self.walks.readable(entry):
            answers[offset] = await self._enter_without_pair(offset)
            if answers[offset].outcome is Outcome.LOST:
                await self._answer_between([offset], answers)
            return
        above = self.pairs.above(offset)
        together = [offset]
        for other in sorted(set(wanted)):
            if above is not None and other >= above.upstream:
                break
            if other - together[-1] <= _NEAR_OFFSETS and other not in answers:
                together.append(other)
        walk = await self._walk_from(entry, together)
        if walk.is_lost and walk.answers[offset].outcome is not Outcome.MATCH:
            reached, found = await self._among_survivors(offset, entry)
            if found.outcome is Outcome.MATCH:
                answers.update({other: found for other in together if other <= reached})
                return
        lost = walk.answers[offset].outcome is Outcome.LOST
        # Where the way was lost later, those behind are looked for on their own.
        answers.update(
            {other: told for other, told in walk.answers.items() if lost or told.outcome is not Outcome.LOST}
        )
        if lost:
            await self._answer_between(together, answers)

    async def _walk_from(self, entry: OffsetPair, wanted: Sequence[int]) -> Walk:
        """As that of `walks`. Where equal records leave open which of them the copy has, the answer is before
        the first that may be unread."""
        above = self.pairs.above(entry.upstream)
        walk = await self.walks.walk_from(entry, wanted)
        stop, most = self.here.bounds.end, self.there.bounds.end
        if above is not None:
            stop, most = above.upstream, above.downstream if await self._is_shown(above) else most
        for offset, answer in walk.answers.items():
            if answer.offset is None:
                continue
            if answer.offset > most or not self.walks.is_sure(walk, offset, answer):
                until = min(answer.offset, most)
                lowest = await self._lowest_equal(offset, until, entry.downstream + 1, stop)
                walk.answers[offset] = Answer(
                    Outcome.NOT_BEFORE, until if lowest is None else min(lowest, until)
                )
        return walk

    async def _is_shown(self, pair: OffsetPair) -> bool:
        """Whether both logs still have the record of a pair, which a walk then does not pass."""
        here, there = await self.here.first(pair.upstream), await self.there.first(pair.downstream)
        return here is not None and there is not None and OffsetPair(here.offset, there.offset) == pair

    async def _answer_between(self, offsets: Sequence[int], answers: dict[int, Answer]) -> None:
        """Answer those rising offsets for whose records the copy has none, by the next one that it has."""
        pair = await self._between(offsets[0])
        if pair is not None:
            found = Answer(Outcome.MATCH, pair.downstream)
            answers.update({offset: found for offset in offsets if offset <= pair.upstream})

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
        there = await self.there.first(begin)
        here = await self.here.first(above.upstream)
        if here is None or there is None or OffsetPair(here.offset, there.offset) != above:
            return None
        return above if same_record(here, there) else None

    async def _enter_without_pair(self, offset: int) -> Answer:
        """The records at the nearest pair below are gone on one side, or there is none: enter before the pair
        above.

        Offsets of both logs grow at least by one for each record, so the copy of `offset` is not further
        before the pair's than twice its distance here, unless the copy has many holes: then it is not found,
        and not guessed. Before the first pair of all, both are entered at their starts.
        """
        if self.pairs.newest() is None:
            return await self._from_starts(offset)
        above = self.pairs.above(offset)
        if above is not None and self.walks.readable(above):
            distance = above.upstream - offset
            entry = max(self.there.bounds.start, above.downstream - 2 * distance - _BEFORE_PAIR)
            walk = await self.walks.walk(offset, entry, [offset], pinned=entry == self.there.bounds.start)
            answer = walk.answers[offset]
            if answer.offset is not None:
                equal = await self._first_equal(offset, above.upstream + 1, entry, answer.offset)
                return _at_most(answer, equal)
        _, found = await self._among_survivors(offset, None)
        return found

    async def _from_starts(self, offset: int) -> Answer:
        """Without any pair a record may be another one that is equal in everything."""
        walk = await self.walks.walk(self.here.bounds.start, self.there.bounds.start, [offset], pinned=True)
        answer = walk.answers[offset]
        if not walk.has_no_times:
            answer = _at_most(answer, await self._lowest(offset, answer))
        if answer.outcome is Outcome.LOST and await self._is_first(offset):
            return Answer(Outcome.NOT_BEFORE, self.there.bounds.start)
        return answer

    async def _lowest(self, offset: int, answer: Answer) -> int | None:
        """As `_lowest_equal` without any pair; what is gone there may have been the original."""
        start = self.there.bounds.start
        if self.copy_is_here and start > 0:
            return start
        if answer.offset is None:
            return await self._first_equal(offset, self.here.bounds.end, start, self.there.bounds.end)
        return await self._lowest_equal(offset, answer.offset, start, self.here.bounds.end)

    async def _lowest_equal(self, offset: int, until: int, start: int, stop: int) -> int | None:
        """Before which, from `start` up to `until`, no record lies there that is equal to one between an
        offset and `stop` here. Of a copy also what was not copied yet comes behind it."""
        equal = await self._first_equal(offset, stop, start, until)
        if equal is None and self.copy_is_here:
            last = await self.there.first(until - 1)
            found = None if last is None else await self._first_of({last[1:4]}, start, until)
            return None if found is None else found + 1
        return equal

    async def _first_equal(self, offset: int, stop: int, there_from: int, until: int) -> int | None:
        """The first record there, up to `until`, that is equal to one of these here; of so many that a walk
        looks at."""
        tokens: set[object] = set()

        def is_behind(entry: Entry) -> bool:
            if entry.offset >= stop or len(tokens) == MOST_WINDOW:
                return True
            tokens.add(entry[1:4])
            return False

        await self.here.find(offset, is_behind)
        return await self._first_of(tokens, there_from, until)

    async def _first_of(self, tokens: Collection[object], there_from: int, until: int) -> int | None:
        """The first record there, up to `until`, with one of these times and contents."""
        found = await self.there.find(there_from, lambda entry: entry.offset >= until or entry[1:4] in tokens)
        return found.offset if found is not None and found[1:4] in tokens else None

    async def _is_first(self, offset: int) -> bool:
        """Whether no record was ever before it that a group could have read."""
        if self.here.bounds.start > 0:
            return False
        first = await self.here.first(0)
        return first is None or first.offset >= offset

    async def _among_survivors(self, offset: int, entry: OffsetPair | None) -> tuple[int, Answer]:
        """Jump from survivor to survivor until a record is found on both sides; the answer holds for every
        offset from `offset` up to the one returned.

        Nothing is passed over: what lies before the next record here is gone here, and what lies between a
        pair and the next record there is gone there.
        """
        for _ in range(_MAX_JUMPS):
            here = await self.here.first(offset)
            if here is None:
                break
            below = self.pairs.at_or_below(here.offset)
            start = self.there.bounds.start
            there = await self.there.first(start if below is None else max(start, below.downstream))
            nearest = None if there is None else self.pairs.downstream_at_or_below(there.offset)
            known = [pair for pair in (below, nearest) if pair is not None and self.walks.readable(pair)]
            pair = max(known, key=lambda pair: pair.upstream, default=None)
            if pair is None or (entry is not None and pair.upstream <= entry.upstream):
                break
            entry, offset = pair, max(here.offset, pair.upstream)
            walk = await self._walk_from(pair, [offset])
            if not walk.is_lost or walk.answers[offset].outcome is Outcome.MATCH:
                return offset, walk.answers[offset]
        return offset, LOST
