"""Asks for exact translations of mirrored logs, and compares the answers with what is true of both."""

from collections.abc import Callable, Collection, Mapping

from twinlog.offsets import OffsetSyncStore
from twinlog.wire import OffsetSync
from twinlog_checkpoint.alignment_log import RecordLog
from twinlog_checkpoint.exact import ExactTranslator, LogSide
from twinlog_checkpoint.floor import FloorTranslator
from twinlog_checkpoint.translation import SourcePosition, Translation, Verdict
from unit.checkpoint.mirrored_logs import COPY, ORIGIN, MirroredLogs

GOOD = (Verdict.EXACT, Verdict.UP_TO_DATE)


def translator(
    logs: MirroredLogs,
    *,
    max_bytes: int = 1 << 30,
    on_read_bytes: Callable[[int], None] = lambda size: None,
) -> ExactTranslator:
    store = OffsetSyncStore(must_read_to_end=False)
    store.finish_reading()
    pairs = logs.history.of(ORIGIN)
    pair = pairs.above(-1) if pairs is not None else None
    while pairs is not None and pair is not None:
        store.apply(
            OffsetSync(partition=ORIGIN, upstream_offset=pair.upstream, downstream_offset=pair.downstream)
        )
        pair = pairs.above(pair.upstream)
    return ExactTranslator(
        here=LogSide(admin=logs.source, log=RecordLog(logs.source.reader())),
        there=LogSide(admin=logs.target, log=RecordLog(logs.target.reader())),
        counterpart=lambda partition: COPY,
        pairs=logs.history.of,
        floor=FloorTranslator(lambda: store),
        max_bytes=max_bytes,
        on_read_bytes=on_read_bytes,
    )


async def translate(exact: ExactTranslator, offsets: Collection[int]) -> Mapping[int, Translation]:
    found = await exact.translate(
        [SourcePosition(partition=ORIGIN, next_offset=offset) for offset in offsets]
    )
    return {position.next_offset: translation for position, translation in found.items()}


async def check_all(logs: MirroredLogs, offsets: Collection[int], *, exact_share: float = 1.0) -> None:
    found = await translate(translator(logs), offsets)
    if not logs.visible_target():
        assert {translation.verdict for translation in found.values()} == {Verdict.NO_SYNC}
        return
    good = 0
    for offset, translation in found.items():
        if translation.verdict in GOOD:
            good += 1
            assert translation.downstream_offset is not None
            logs.check(offset, translation.downstream_offset)
    assert good >= exact_share * len(found), {
        offset: translation for offset, translation in found.items() if translation.verdict not in GOOD
    }
