"""MM2's rule as a translation strategy: the offset after the nearest sync, often behind, never ahead."""

from collections.abc import Callable, Collection, Mapping

from twinlog.offsets import OffsetSyncStore, TranslationOutcome
from twinlog_checkpoint.translation import SourcePosition, Translation, Verdict

_VERDICTS = {
    TranslationOutcome.AT_SYNC: Verdict.FLOOR,
    TranslationOutcome.AFTER_SYNC: Verdict.FLOOR,
    TranslationOutcome.NOT_READ: Verdict.NOT_READY,
    TranslationOutcome.NO_SYNC: Verdict.NO_SYNC,
    TranslationOutcome.TOO_OLD: Verdict.TOO_OLD,
}
_MESSAGES = {
    Verdict.NOT_READY: "the offset syncs are still being read",
    Verdict.NO_SYNC: "no offset sync of the partition exists: nothing of it has been copied yet",
}


class FloorTranslator:
    """Translates by the syncs alone. An answer is never marked EXACT: no record was compared."""

    def __init__(self, store: Callable[[], OffsetSyncStore]) -> None:
        """`store` gives the present one: it is replaced when the offset-syncs topic is read anew."""
        self._store = store

    async def translate(self, positions: Collection[SourcePosition]) -> Mapping[SourcePosition, Translation]:
        return {position: self.translate_one(position) for position in positions}

    def translate_one(self, position: SourcePosition) -> Translation:
        answer = self._store().translate(position.partition, position.next_offset)
        verdict = _VERDICTS[answer.outcome]
        sync = answer.sync
        if verdict is Verdict.FLOOR and sync is not None:
            message = f"by the offset sync {sync.upstream_offset} -> {sync.downstream_offset}"
        elif verdict is Verdict.TOO_OLD and sync is not None:
            message = f"older than the earliest usable offset sync, which is of offset {sync.upstream_offset}"
        else:
            message = _MESSAGES[verdict]
        return Translation(verdict=verdict, downstream_offset=answer.downstream_offset, message=message)
