"""Exact translation: aligns the logs of source and target, and falls back on MM2's rule where that cannot be
done."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from twinlog.errors import KafkaError, WireFormatError
from twinlog.kafka.ports import LogAdmin, OffsetSpec
from twinlog.kafka.raw.lookups import OpenTransaction
from twinlog.model import TopicPartition
from twinlog_checkpoint.side_by_side import each_at_once
from twinlog_checkpoint.translation.aligner import Aligner
from twinlog_checkpoint.translation.by_origin import copied_place, original_place
from twinlog_checkpoint.translation.history import Pairs
from twinlog_checkpoint.translation.log_sides import (
    BudgetSpent,
    ByteBudget,
    ComparedLog,
    ComparedPartition,
    bounds_or_errors,
    log_bounds,
)
from twinlog_checkpoint.translation.translation import (
    NEVER_COPIED,
    FloorRule,
    LogBounds,
    SourcePosition,
    Translation,
    Verdict,
    at_start,
    counted,
    past_end,
    within,
    without_floor,
)
from twinlog_checkpoint.translation.walk import Answer, Outcome, same_record

MAX_KNOWN = 200_000
"""Answers remembered, about 300 bytes each; the oldest goes first."""
PARTITIONS_AT_ONCE = 8
"""Both logs of so many are read side by side: each waits for the network most of the time."""
_NOT_VISIBLE = "the topic is not visible on both clusters"
_BUDGET_SPENT = "the limit of bytes to read in one interval is reached; translation continues in the next"
_REWOUND = "the copy was truncated while its log was read; it is read again in the next interval"
_OTHER_RECORDS = "Spark changes the records of this topic"
_NOT_FOUND = "the logs no longer have the records to compare"
AT_END = "everything that has been copied lies before it"
_BEFORE_START = "it lies before the log's start: the copy of the first record that can still be read"
_FROM_START = "by the first record of the log there: no record here is known to lie before its copy"
_OTHER_COPY = (
    "the logs do not hold what the offset syncs say: the copy lost records or was created again, and no"
    " newer sync has come yet"
)


AskOpenTransactions = Callable[
    [Collection[TopicPartition]], Awaitable[Mapping[TopicPartition, Sequence[OpenTransaction] | KafkaError]]
]


async def _not_known(_partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, KafkaError]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSide:
    """One cluster: its log ends and its records."""

    admin: LogAdmin
    log: ComparedLog
    unreadable: Verdict
    """SOURCE_UNREADABLE or TARGET_UNREADABLE."""
    end: OffsetSpec = OffsetSpec.LAST_STABLE
    """LATEST where what no transaction has committed is copied as well."""
    open_transactions: AskOpenTransactions = _not_known
    """Asks the leaders of partitions."""

    async def bounds(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, LogBounds | KafkaError]:
        """As `bounds_or_errors`. Raises KafkaError."""
        return await bounds_or_errors(self.admin, partitions, self.end)

    def unread(self, log: LogBounds | KafkaError | None) -> Translation | None:
        """The answer while nobody answers for a log of this side; None where somebody does, also by refusing
        it, or there is no such log."""
        if not isinstance(log, KafkaError) or not log.retriable:
            return None
        return Translation(verdict=self.unreadable, downstream_offset=None, message=str(log))


Bounds = tuple[LogBounds, LogBounds]
"""Log bounds of the partition here and of its counterpart there."""
_Looked = tuple[LogBounds | KafkaError, LogBounds | KafkaError]
"""The same, or why either cannot be looked up."""


@dataclass(frozen=True, slots=True)
class _Known:
    """An answer of an earlier pass, and what must not have changed since."""

    generation: int
    bounds: Bounds
    translation: Translation

    def still_true(self, position: SourcePosition, pairs: Pairs, bounds: Bounds) -> bool:
        """A found record stays where it is while its log holds it; an end ends with the next record.

        A log that ends before the end it had lost records, and where a position lies before the log's start
        the answer is of the record that stands there.
        """
        offset = self.translation.downstream_offset
        is_shorter = any(now.end < then.end for now, then in zip(bounds, self.bounds, strict=True))
        if pairs.generation != self.generation or offset is None or is_shorter:
            return False
        if position.next_offset < bounds[0].start and bounds[0].start != self.bounds[0].start:
            return False
        if self.translation.verdict is Verdict.UP_TO_DATE:
            return bounds == self.bounds
        return bounds[1].start <= offset < bounds[1].end


@dataclass(slots=True, kw_only=True)
class _Found:
    """What both logs say of one partition's offsets."""

    reason: str
    """Why there is no answer where there is none."""
    answers: dict[int, Answer] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)
    """Offsets whose records are gone from the start of the log there."""
    other_copy: bool = False
    """The logs contradict the syncs."""

    async def find_lost(self, here: ComparedPartition, there: ComparedPartition, pairs: Pairs) -> None:
        """Where the log there has lost its first records, the next one is found for each of them. The start
        is not read for answers behind a known pair that the log still has. An answer stays only if that is
        known. Raises KafkaError, WireFormatError, BudgetSpent."""
        start = there.bounds.start
        may_be_first = {
            offset: answer
            for offset, answer in self.answers.items()
            if answer.outcome is Outcome.MATCH
            and start > 0
            and answer.offset is not None
            and ((pair := pairs.downstream_at_or_below(answer.offset - 1)) is None or pair.downstream < start)
        }
        for offset in may_be_first:
            del self.answers[offset]
        first = await there.first(start) if may_be_first else None
        for offset, answer in may_be_first.items():
            if first is not None and answer.offset == first.offset:
                asked = await here.first(max(offset, here.bounds.start))
                if asked is not None and not same_record(asked, first):
                    self.lost.add(offset)
            self.answers[offset] = answer

    def told(self, offset: int, bounds: Bounds) -> Translation | None:
        """EXACT, BEFORE_START or UP_TO_DATE; None when the logs gave no answer."""
        here, there = bounds
        answer = self.answers.get(offset)
        if answer is None or answer.outcome in (Outcome.LOST, Outcome.NOT_BEFORE):
            return None
        if answer.outcome is Outcome.AT_END:
            return Translation(verdict=Verdict.UP_TO_DATE, downstream_offset=answer.offset, message=AT_END)
        if offset in self.lost:
            return at_start(there)
        message = _BEFORE_START if offset < here.start else ""
        return Translation(verdict=Verdict.EXACT, downstream_offset=answer.offset, message=message)

    def raised(self, position: SourcePosition, floor: Translation, bounds: Bounds) -> Translation:
        """The floor, by the logs where that is higher, or where no sync tells: syncs are forgotten sooner."""
        here, there = bounds
        answer = self.answers.get(position.next_offset)
        if answer is None or answer.outcome is not Outcome.NOT_BEFORE or answer.offset is None:
            return floor
        if floor.downstream_offset is not None and answer.offset <= floor.downstream_offset <= there.end:
            return floor
        is_start = answer.offset == there.start
        if is_start and there.start > 0 and position.next_offset < here.end:
            return at_start(there, _FROM_START)
        message = _FROM_START if is_start else "by the nearest record that was compared"
        return Translation(verdict=Verdict.FLOOR, downstream_offset=answer.offset, message=message)


@dataclass(slots=True, kw_only=True)
class ExactTranslator:
    """A strategy of translation along one flow, in the direction that its sides and pairs have.

    Many groups share its reads and what it has learned.
    """

    here: LogSide
    """Where the offsets are of."""
    there: LogSide
    """Where they are translated to."""
    counterpart: Callable[[TopicPartition], TopicPartition]
    """The same partition there."""
    pairs: Callable[[TopicPartition], Pairs | None]
    """What is known of a partition here; asked again each time, for syncs may be read again."""
    floor: FloorRule
    is_comparable: Callable[[TopicPartition], bool] = lambda _partition: True
    """False for a partition here whose records are others in its counterpart."""
    origin: Callable[[TopicPartition], bytes | None] = lambda _partition: None
    """With which the origins of the copy's records begin, for a partition here whose records are not
    comparable; None = they do not name them."""
    copy_is_here: bool = False
    """The other direction."""
    max_bytes: int
    """Read at most for one call of `translate`, both sides together."""
    on_read_bytes: Callable[[int], None]
    _known: dict[SourcePosition, _Known] = field(default_factory=dict)
    _served: dict[TopicPartition, int] = field(default_factory=dict)
    """When each partition was last aligned (a count): the longest waiting one goes first."""
    _turn: int = 0
    _busy: defaultdict[TopicPartition, asyncio.Lock] = field(
        default_factory=lambda: defaultdict(asyncio.Lock)
    )
    """Held while a partition is aligned: who asks meanwhile waits, and takes what was found."""

    async def translate(self, positions: Collection[SourcePosition]) -> Mapping[SourcePosition, Translation]:
        translations = {position: counted(self.floor.translate_one(position)) for position in positions}
        by_partition: dict[TopicPartition, list[SourcePosition]] = {}
        for position, translation in translations.items():
            if translation.verdict is not Verdict.NOT_READY:
                by_partition.setdefault(position.partition, []).append(position)
        if not by_partition:
            return translations
        bounds = await self._looked(by_partition)
        await self.here.log.expect(bounds.keys())
        await self.there.log.expect([self.counterpart(partition) for partition in bounds])
        budget = ByteBudget(self.max_bytes)
        waiting_longest_first = sorted(by_partition, key=lambda tp: (self._served.get(tp, 0), tp))

        async def one(partition: TopicPartition) -> None:
            floors = {position: translations[position] for position in by_partition[partition]}
            translations.update(await self._alone(partition, floors, bounds.get(partition), budget))

        await each_at_once(waiting_longest_first, one, most=PARTITIONS_AT_ONCE, name="align partitions")
        self.on_read_bytes(budget.spent_bytes)
        return translations

    async def _alone(
        self,
        partition: TopicPartition,
        floors: Mapping[SourcePosition, Translation],
        looked: _Looked | None,
        budget: ByteBudget,
    ) -> dict[SourcePosition, Translation]:
        """The answers for one partition, once nobody else reads it."""
        waited = self._busy[partition].locked()
        async with self._busy[partition]:
            if waited:
                looked = (await self._looked([partition])).get(partition)
            if _nothing_is_copied(floors.values(), looked):
                return dict(floors)
            here, there = looked or (None, None)
            # The log there may end before the floor.
            if (unread := self.there.unread(there)) is not None:
                return dict.fromkeys(floors, unread)
            if isinstance(here, LogBounds) and isinstance(there, LogBounds):
                return await self._partition(partition, floors, (here, there), budget)
            unread = self.here.unread(here)
            why = _NOT_VISIBLE if unread is None else unread.message
            return {
                position: unread
                if unread is not None and _needs_both_logs(floor, there)
                else _because(floor, why)
                for position, floor in floors.items()
            }

    async def _partition(
        self,
        partition: TopicPartition,
        floors: Mapping[SourcePosition, Translation],
        bounds: Bounds,
        budget: ByteBudget,
    ) -> dict[SourcePosition, Translation]:
        """The answers for one partition: found, or MM2's with the reason why not."""
        pairs = self.pairs(partition)
        if pairs is None:
            return {position: _because(floor, _NOT_VISIBLE) for position, floor in floors.items()}
        if budget.left_bytes > 0:
            self._turn += 1
            self._served[partition] = self._turn
        told = await self._past_end(partition, floors, bounds[0])
        for position in floors:
            known = self._known.get(position)
            if position not in told and known is not None and known.still_true(position, pairs, bounds):
                told[position] = known.translation
        if len(told) == len(floors):
            return told
        if not self.is_comparable(partition):
            left = {position: floor for position, floor in floors.items() if position not in told}
            return told | await self._changed(partition, left, pairs, bounds, budget)
        generation = pairs.generation
        wanted = [position.next_offset for position in floors if position not in told]
        found = await self._align(partition, wanted, pairs, bounds, budget)
        if pairs.generation != generation:
            found = _Found(reason=_REWOUND, other_copy=found.other_copy)
        left = {}
        for position, floor in floors.items():
            if position in told:
                continue
            answer = found.told(position.next_offset, bounds)
            if answer is not None:
                told[position] = answer
                self._remember(position, _Known(generation, bounds, answer))
            elif found.other_copy:
                told[position] = without_floor(_OTHER_COPY)
            else:
                left[position] = found.raised(position, floor, bounds)
        told.update(await self._floors(partition, left, bounds, found.reason))
        return told

    async def _changed(
        self,
        partition: TopicPartition,
        floors: Mapping[SourcePosition, Translation],
        pairs: Pairs,
        bounds: Bounds,
        budget: ByteBudget,
    ) -> dict[SourcePosition, Translation]:
        """The answers where the copy has other records. Raises KafkaError."""
        found = await self._by_origin(partition, floors, pairs, bounds, budget)
        # On the way back the source is looked at each time: it may have been created again.
        for position, answer in () if self.copy_is_here else found.items():
            self._remember(position, _Known(pairs.generation, bounds, answer))
        left = {position: floor for position, floor in floors.items() if position not in found}
        found_floors = await self._floors(partition, left, bounds, _OTHER_RECORDS)
        return found | {position: _mapped(floor) for position, floor in found_floors.items()}

    async def _by_origin(
        self,
        partition: TopicPartition,
        positions: Collection[SourcePosition],
        pairs: Pairs,
        bounds: Bounds,
        budget: ByteBudget,
    ) -> dict[SourcePosition, Translation]:
        """What the copy's records say of where they come from; positions of which they say nothing are left
        out."""
        answers: dict[SourcePosition, Translation] = {}
        prefix, generation = self.origin(partition), pairs.generation
        if prefix is None:
            return answers
        here, there = self._sides(partition, bounds, budget)
        try:
            for position in positions:
                offset = position.next_offset
                if self.copy_is_here:
                    answer = await original_place(here, there, prefix, offset, pairs.at_or_below(offset))
                else:
                    answer = await copied_place(there, prefix, offset, pairs)
                if answer is not None:
                    answers[position] = answer
        except (BudgetSpent, KafkaError, WireFormatError):
            pass  # The rest by the syncs.
        return answers if pairs.generation == generation else {}

    async def _past_end(
        self, partition: TopicPartition, positions: Collection[SourcePosition], here: LogBounds
    ) -> dict[SourcePosition, Translation]:
        """Of offsets past the end of the log here, which lost records or was created again: the newest sync
        is of other records, that nobody has read. Raises KafkaError."""
        past = [position for position in positions if position.next_offset > here.end]
        if past:
            # Who reads uncommitted records is behind the last stable one.
            here = (await log_bounds(self.here.admin, [partition], OffsetSpec.LATEST)).get(partition, here)
        return {position: past_end(here.end) for position in past if position.next_offset > here.end}

    async def _floors(
        self,
        partition: TopicPartition,
        floors: Mapping[SourcePosition, Translation],
        bounds: Bounds,
        reason: str,
    ) -> dict[SourcePosition, Translation]:
        """What is left where the logs gave no answer. Raises KafkaError."""
        here, there = bounds
        if any((floor.downstream_offset or 0) > there.end for floor in floors.values()):
            # A sync may come before the marker that makes its record readable.
            counterpart = self.counterpart(partition)
            found = await log_bounds(self.there.admin, [counterpart], OffsetSpec.LATEST)
            there = found.get(counterpart, there)
        return {
            position: _because(within(floor, there, skips=position.next_offset < here.end), reason)
            for position, floor in floors.items()
        }

    def _sides(
        self, partition: TopicPartition, bounds: Bounds, budget: ByteBudget
    ) -> tuple[ComparedPartition, ComparedPartition]:
        copy = self.counterpart(partition)
        return (
            ComparedPartition(log=self.here.log, partition=partition, bounds=bounds[0], budget=budget),
            ComparedPartition(log=self.there.log, partition=copy, bounds=bounds[1], budget=budget),
        )

    async def _align(
        self,
        partition: TopicPartition,
        wanted: Sequence[int],
        pairs: Pairs,
        bounds: Bounds,
        budget: ByteBudget,
    ) -> _Found:
        """What the logs say of these offsets."""
        here, there = self._sides(partition, bounds, budget)
        aligner = Aligner(here=here, there=there, pairs=pairs, copy_is_here=self.copy_is_here)
        found = _Found(reason=_NOT_FOUND)
        try:
            try:
                await aligner.align(wanted, found.answers)
            finally:
                await found.find_lost(here, there, pairs)
            await _pass_markers(found.answers, there)
        except BudgetSpent:
            found.reason = _BUDGET_SPENT
        except (KafkaError, WireFormatError) as error:
            found.reason = str(error)
        found.other_copy = aligner.walks.contradicted
        return found

    async def _looked(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, _Looked]:
        """Log ends on both sides of each partition, left out when either does not exist. Raises
        KafkaError."""
        here = await self.here.bounds(partitions)
        there = await self.there.bounds({self.counterpart(tp) for tp in partitions})
        return {
            partition: (here[partition], there[self.counterpart(partition)])
            for partition in partitions
            if partition in here and self.counterpart(partition) in there
        }

    def _remember(self, position: SourcePosition, known: _Known) -> None:
        self._known.pop(position, None)
        self._known[position] = known
        if len(self._known) > MAX_KNOWN:
            del self._known[next(iter(self._known))]


async def _pass_markers(answers: dict[int, Answer], there: ComparedPartition) -> None:
    """A group that has read everything has no lag there: behind the last record may lie markers, and what was
    aborted. Raises KafkaError, WireFormatError, BudgetSpent."""
    places = {offset: each.offset for offset, each in answers.items() if each.outcome is Outcome.AT_END}
    lowest = min((place for place in places.values() if place is not None), default=there.bounds.end)
    if lowest < there.bounds.end and await there.first(lowest) is None:
        answers.update(dict.fromkeys(places, Answer(Outcome.AT_END, there.bounds.end)))


def _nothing_is_copied(floors: Collection[Translation], looked: _Looked | None) -> bool:
    """Where the copy has records without a sync, all syncs may have been lost."""
    copy = None if looked is None else looked[1]
    is_empty = isinstance(copy, LogBounds) and copy.start == copy.end
    return is_empty and all(floor.verdict is Verdict.NO_SYNC for floor in floors)


def _needs_both_logs(floor: Translation, there: LogBounds | KafkaError | None) -> bool:
    """Whether the syncs alone give no place: the logs may have one."""
    offset = floor.downstream_offset
    if offset is None:
        return floor.verdict is Verdict.TOO_OLD
    return isinstance(there, LogBounds) and offset > there.end


def _mapped(floor: Translation) -> Translation:
    return replace(floor, verdict=Verdict.MAPPED) if floor.verdict is Verdict.FLOOR else floor


def _because(floor: Translation, reason: str) -> Translation:
    if floor.message == NEVER_COPIED:
        return replace(floor, message=f"the partition has no offset sync, and {reason}")
    if floor.verdict is Verdict.NO_SYNC:
        return floor
    return replace(floor, message=f"{floor.message}; not exact: {reason}")
