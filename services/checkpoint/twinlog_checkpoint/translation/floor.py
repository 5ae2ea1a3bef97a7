"""MM2's rule as a translation strategy: the offset after the nearest sync, often behind, never ahead."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from twinlog.model import TopicPartition
from twinlog.offsets import OffsetSyncStore, TranslationOutcome
from twinlog_checkpoint.translation.history import Pairs
from twinlog_checkpoint.translation.log_bounds import LogBounds
from twinlog_checkpoint.translation.translation import SourcePosition, Translation, Verdict

_VERDICTS = {
    TranslationOutcome.AT_SYNC: Verdict.FLOOR,
    TranslationOutcome.AFTER_SYNC: Verdict.FLOOR,
    TranslationOutcome.NOT_READ: Verdict.NOT_READY,
    TranslationOutcome.NO_SYNC: Verdict.NO_SYNC,
    TranslationOutcome.TOO_OLD: Verdict.TOO_OLD,
}
_MESSAGES = {
    Verdict.NOT_READY: "the offset syncs are still being read",
    Verdict.NO_SYNC: "the partition has no offset sync: none of its records has been copied yet",
}


def without_floor(message: str) -> Translation:
    """The answer where the syncs tell of records that the copy does not hold."""
    return Translation(verdict=Verdict.NO_SYNC, downstream_offset=None, message=message)


def within(floor: Translation, there: LogBounds) -> Translation:
    """The floor as the log there allows it.

    Before the log's start, where retention took the records, it is the start. Past the log's end there is no
    answer: the copy lost its tail or was created again, and the end would leave out what was copied since.
    """
    offset = floor.downstream_offset
    if offset is None:
        return floor
    if offset > there.end:
        return without_floor(
            f"{floor.message} it would be {offset}, but the copy ends at {there.end}: it lost records or was"
            " created again, and no newer offset sync has come yet"
        )
    return replace(floor, downstream_offset=max(offset, there.start))


class FloorTranslator:
    """Translates by the syncs alone. An answer is never marked EXACT: no record was compared."""

    def __init__(self, store: Callable[[], OffsetSyncStore]) -> None:
        """`store` gives the present one: it is replaced when the offset-syncs topic is read again."""
        self._store = store

    async def translate(self, positions: Collection[SourcePosition]) -> Mapping[SourcePosition, Translation]:
        return {position: self.translate_one(position) for position in positions}

    def translate_one(self, position: SourcePosition) -> Translation:
        answer = self._store().translate(position.partition, position.next_offset)
        verdict = _VERDICTS[answer.outcome]
        sync = answer.sync
        if verdict is Verdict.FLOOR and sync is not None:
            message = f"by the offset sync {sync.upstream_offset} -> {sync.downstream_offset}"
            if (again := position.next_offset - sync.upstream_offset - 1) > 0:
                message += f": at most {again} records are read again"
        elif verdict is Verdict.TOO_OLD and sync is not None:
            message = f"older than the earliest usable offset sync, which is of offset {sync.upstream_offset}"
        else:
            message = _MESSAGES[verdict]
        return Translation(verdict=verdict, downstream_offset=answer.downstream_offset, message=message)


class ReverseFloor:
    """The same rule the other way: from offsets of the copy to offsets of its source."""

    def __init__(self, ready: Callable[[], bool], pairs: Callable[[TopicPartition], Pairs | None]) -> None:
        """`ready`: the first pass over the offset syncs is done. `pairs`: of a partition of the copy."""
        self._ready = ready
        self._pairs = pairs

    def translate_one(self, position: SourcePosition) -> Translation:
        if not self._ready():
            return Translation(
                verdict=Verdict.NOT_READY, downstream_offset=None, message=_MESSAGES[Verdict.NOT_READY]
            )
        pairs = self._pairs(position.partition)
        if pairs is None:
            return Translation(
                verdict=Verdict.NO_SYNC, downstream_offset=None, message=_MESSAGES[Verdict.NO_SYNC]
            )
        pair = pairs.at_or_below(position.next_offset)
        if pair is None:
            return Translation(
                verdict=Verdict.TOO_OLD,
                downstream_offset=None,
                message="before the earliest record that has an offset sync",
            )
        at_pair = pair.upstream == position.next_offset
        return Translation(
            verdict=Verdict.FLOOR,
            downstream_offset=pair.downstream if at_pair else pair.downstream + 1,
            message=f"by the offset sync {pair.downstream} -> {pair.upstream}",
        )
