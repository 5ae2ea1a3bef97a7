"""What a translation is, and MM2's own rule. Exact translation (`exact`) answers in the same words.

MM2's rule as a translation strategy: the offset after the nearest sync, often behind, never ahead.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol

from twinlog.model import TopicPartition
from twinlog.offsets import OffsetSyncStore, TranslationOutcome
from twinlog.wire import TopicIds
from twinlog_checkpoint.translation.history import Pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBounds:
    """From the first record to after the last one: the offsets at which a group may stand."""

    start: int
    end: int

    def begin(self, offset: int) -> int:
        """Where a reader begins that is told `offset`: records before the log's start are gone."""
        return max(offset, self.start)


class Verdict(Enum):
    """What is known of a group's translated offset on one partition. The closed list of the API."""

    PRESERVED = "PRESERVED"
    """The same offset: the copy has the source's offsets."""
    BEFORE_START = "BEFORE_START"
    """The log there begins after the offset: at its first record. What lies before is gone there."""
    EXACT = "EXACT"
    """The very record the group reads next, compared on both sides."""
    FLOOR = "FLOOR"
    """MM2's rule: never ahead, so records may be read again."""
    MAPPED = "MAPPED"
    """The same where Spark changes the records: no comparison can say more."""
    UP_TO_DATE = "UP_TO_DATE"
    """The group has read all that has been copied: the offset after the last copied record."""
    NOT_REPLICATED = "NOT_REPLICATED"
    """The flow does not copy the topic."""
    SHARED_COPY = "SHARED_COPY"
    """Another flow writes the copy, too: offsets of one source have no place in it."""
    NO_SYNC = "NO_SYNC"
    """Nothing of the partition has been copied yet, so no offset sync exists."""
    TOO_OLD = "TOO_OLD"
    """The offset lies before everything that is known to have been copied."""
    NOT_READY = "NOT_READY"
    """The first pass over the offset syncs is not done."""
    ACTIVE_ON_TARGET = "ACTIVE_ON_TARGET"
    """Translated, but the group has members on the target, which own its offsets there."""
    SOURCE_UNREADABLE = "SOURCE_UNREADABLE"
    """The source does not let the group's offsets, its logs or the offset syncs be read."""
    TARGET_UNREADABLE = "TARGET_UNREADABLE"
    """The same of the target."""
    PAST_END = "PAST_END"
    """The offset lies past the end of the log: no record can follow it."""


UNREADABLE = frozenset({Verdict.SOURCE_UNREADABLE, Verdict.TARGET_UNREADABLE})
"""Verdicts that say nothing of the offset: what was known of it before stays so."""
COMPARED = frozenset({Verdict.PRESERVED, Verdict.BEFORE_START, Verdict.EXACT, Verdict.UP_TO_DATE})
"""Verdicts of answers for which records of both logs were compared, or whose offsets are equal; BEFORE_START
may be a floor, too."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SourcePosition:
    """A group's place in a source partition; `next_offset` is the record it reads next."""

    partition: TopicPartition
    next_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    verdict: Verdict
    downstream_offset: int | None
    """The next offset to read on the target; None when the verdict has none."""
    message: str = ""
    is_start: bool = False
    """The floor lies before the log there, so it is its start: nothing that is left there lies before it."""
    placed_from: int | None = None
    """TOO_OLD on the way back: from here on offsets have a place."""
    topic_ids: TopicIds | None = None
    """Of the topics here and there of which both offsets are; None = not asked."""
    between: int | None = None
    """Of a floor: at most so many records lie between its offset sync and the position. None = no sync is
    counted from."""

    @property
    def is_certain(self) -> bool:
        """Whether records of both logs were compared, or their offsets are equal."""
        return self.verdict in COMPARED and not self.is_start


class FloorRule(Protocol):
    """A translation that reads no logs: what is left when the logs give nothing."""

    def translate_one(self, position: SourcePosition) -> Translation:
        """The message says nothing of the records between: see `counted`."""
        ...


class Translator(Protocol):
    """A strategy of translation for one flow."""

    async def translate(self, positions: Collection[SourcePosition]) -> Mapping[SourcePosition, Translation]:
        """One answer for each position; what is wrong with a single one is its verdict, never an error."""
        ...


_VERDICTS = {
    TranslationOutcome.AT_SYNC: Verdict.FLOOR,
    TranslationOutcome.AFTER_SYNC: Verdict.FLOOR,
    TranslationOutcome.NOT_READ: Verdict.NOT_READY,
    TranslationOutcome.NO_SYNC: Verdict.NO_SYNC,
    TranslationOutcome.TOO_OLD: Verdict.TOO_OLD,
}
NEVER_COPIED = "the partition has no offset sync: none of its records has been copied yet"
_MESSAGES = {
    Verdict.NOT_READY: "the offset syncs are still being read",
    Verdict.NO_SYNC: NEVER_COPIED,
}


def without_floor(message: str) -> Translation:
    """The answer where the syncs tell of records that the copy does not hold."""
    return Translation(verdict=Verdict.NO_SYNC, downstream_offset=None, message=message)


def at_start(there: LogBounds, floor: str = "") -> Translation:
    """The answer for a record that is gone from the start of the log there; by a floor, of which this is the
    message, it may be."""
    return Translation(
        verdict=Verdict.BEFORE_START,
        downstream_offset=there.start,
        message=f"the log there begins at {there.start}{floor and f'; {floor}'}",
        is_start=bool(floor),
    )


def past_end(end: int) -> Translation:
    """Of an offset past the end of its log: nobody has read the records that come there."""
    message = f"the log ends at {end}: it lost records, or was created again"
    return Translation(verdict=Verdict.PAST_END, downstream_offset=None, message=message)


def within(floor: Translation, there: LogBounds, *, skips: bool = False) -> Translation:
    """The floor as the log there allows it.

    Before the log's start, where retention took the records, it is the start, and BEFORE_START if there are
    records that the group would skip (`skips`). Past the log's end there is no answer: the copy lost its tail
    or was created again, and the end would leave out what was copied since.
    """
    offset = floor.downstream_offset
    if offset is None:
        return floor
    if offset > there.end:
        return without_floor(
            f"{floor.message} it would be {offset}, but the copy ends at {there.end}: it lost records or was"
            " created again, and no newer offset sync has come yet"
        )
    if offset >= there.start:
        return floor
    gone = at_start(there, floor.message)
    return gone if skips else replace(gone, verdict=floor.verdict, message=floor.message)


class FloorTranslator:
    """Translates by the syncs alone. An answer is never marked EXACT: no record was compared."""

    def __init__(self, store: Callable[[], OffsetSyncStore]) -> None:
        """`store` gives the present one: it is replaced when the offset-syncs topic is read again."""
        self._store = store

    async def translate(self, positions: Collection[SourcePosition]) -> Mapping[SourcePosition, Translation]:
        return {position: counted(self.translate_one(position)) for position in positions}

    def translate_one(self, position: SourcePosition) -> Translation:
        answer = self._store().translate(position.partition, position.next_offset)
        verdict = _VERDICTS[answer.outcome]
        sync, between = answer.sync, None
        if verdict is Verdict.FLOOR and sync is not None:
            message = f"by the offset sync {sync.upstream_offset} -> {sync.downstream_offset}"
            between = max(0, position.next_offset - sync.upstream_offset - 1)
        elif verdict is Verdict.TOO_OLD and sync is not None:
            message = f"older than the earliest usable offset sync, which is of offset {sync.upstream_offset}"
        else:
            message = _MESSAGES[verdict]
        return Translation(
            verdict=verdict, downstream_offset=answer.downstream_offset, message=message, between=between
        )


class PairsFloor:
    """The same rule by all known pairs, which are denser than the store's, and from either side."""

    def __init__(
        self,
        ready: Callable[[], bool],
        pairs: Callable[[TopicPartition], Pairs | None],
        *,
        only_vouched: bool = False,
    ) -> None:
        """`ready`: the first pass over the offset syncs is done. `pairs`: of the partition of a position,
        seen from there. `only_vouched`: those that may be of a log that is gone give no place."""
        self._ready = ready
        self._pairs = pairs
        self._only_vouched = only_vouched

    def translate_one(self, position: SourcePosition) -> Translation:
        if not self._ready():
            return Translation(
                verdict=Verdict.NOT_READY, downstream_offset=None, message=_MESSAGES[Verdict.NOT_READY]
            )
        pairs = self._pairs(position.partition)
        if pairs is None or pairs.newest() is None:
            return Translation(
                verdict=Verdict.NO_SYNC, downstream_offset=None, message=_MESSAGES[Verdict.NO_SYNC]
            )
        pair = pairs.at_or_below(position.next_offset)
        if pair is None or (self._only_vouched and not pairs.vouched(pair)):
            first = pairs.above(position.next_offset)
            return Translation(
                verdict=Verdict.TOO_OLD,
                downstream_offset=None,
                message="before the earliest record that has an offset sync",
                placed_from=None if first is None else first.upstream,
            )
        at_pair = pair.upstream == position.next_offset
        return Translation(
            verdict=Verdict.FLOOR,
            downstream_offset=pair.downstream if at_pair else pair.downstream + 1,
            message=f"by the offset sync that has {pair.upstream} here and {pair.downstream} there",
            between=max(0, position.next_offset - pair.upstream - 1),
        )


def counted(floor: Translation) -> Translation:
    """With the records between in its message. No more are read again from a copy that has each record once,
    and none of a former topic."""
    if not floor.between:
        return floor
    return replace(floor, message=f"{floor.message}: at most {floor.between} records lie between")
