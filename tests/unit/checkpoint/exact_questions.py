"""Asks for exact translations of mirrored logs, and compares the answers with what is true of both."""

from collections.abc import Callable, Collection, Mapping

from twinlog.model import TopicPartition
from twinlog.transforms.expressions import origin_prefix
from twinlog.wire import TopicIds
from twinlog_checkpoint.translation.exact import ExactTranslator, LogSide
from twinlog_checkpoint.translation.history import ReversedPairs
from twinlog_checkpoint.translation.translation import (
    FloorTranslator,
    PairsFloor,
    SourcePosition,
    Translation,
    Verdict,
)
from unit.checkpoint.mirrored_logs import COPY, ORIGIN, MirroredLogs
from unit.checkpoint.record_log import RecordLog

IDS = TopicIds("source", "target")
GOOD = (Verdict.EXACT, Verdict.UP_TO_DATE)


def floor_translator(logs: MirroredLogs) -> FloorTranslator:
    return FloorTranslator(lambda: logs.store)


def source_side(logs: MirroredLogs) -> LogSide:
    log = RecordLog(logs.source.reader())
    return LogSide(admin=logs.source, log=log, unreadable=Verdict.SOURCE_UNREADABLE)


def target_side(logs: MirroredLogs) -> LogSide:
    log = RecordLog(logs.target.reader())
    return LogSide(admin=logs.target, log=log, unreadable=Verdict.TARGET_UNREADABLE)


def translator(
    logs: MirroredLogs,
    *,
    max_bytes: int = 1 << 30,
    on_read_bytes: Callable[[int], None] = lambda size: None,
) -> ExactTranslator:
    return ExactTranslator(
        here=source_side(logs),
        there=target_side(logs),
        counterpart=lambda partition: COPY,
        pairs=lambda partition: logs.history.begun(partition, IDS),
        floor=floor_translator(logs),
        is_comparable=lambda partition: not logs.is_changed,
        origin=lambda partition: origin_prefix("A", ORIGIN),
        max_bytes=max_bytes,
        on_read_bytes=on_read_bytes,
    )


def translator_back(logs: MirroredLogs) -> ExactTranslator:
    def pairs(_copy: TopicPartition) -> ReversedPairs:
        return ReversedPairs(logs.history.begun(ORIGIN, IDS))

    return ExactTranslator(
        here=target_side(logs),
        there=source_side(logs),
        counterpart=lambda partition: ORIGIN,
        pairs=pairs,
        floor=PairsFloor(lambda: True, pairs),
        is_comparable=lambda partition: not logs.is_changed,
        origin=lambda partition: origin_prefix("A", ORIGIN),
        copy_is_here=True,
        max_bytes=1 << 30,
        on_read_bytes=lambda size: None,
    )


async def translate(
    exact: ExactTranslator, offsets: Collection[int], partition: TopicPartition = ORIGIN
) -> Mapping[int, Translation]:
    found = await exact.translate(
        [SourcePosition(partition=partition, next_offset=offset) for offset in offsets]
    )
    return {position.next_offset: translation for position, translation in found.items()}


async def check_all(logs: MirroredLogs, offsets: Collection[int], *, exact_share: float = 1.0) -> None:
    found = await translate(translator(logs), offsets)
    if not logs.visible_target() and ORIGIN not in logs.store.partitions():
        assert {translation.verdict for translation in found.values()} == {Verdict.NO_SYNC}
        return
    check_never_ahead(logs, found)
    good = 0
    for offset, translation in found.items():
        if translation.verdict in GOOD:
            good += 1
            assert translation.downstream_offset is not None
            logs.check(offset, translation.downstream_offset)
    assert good >= exact_share * len(found), {
        offset: translation for offset, translation in found.items() if translation.verdict not in GOOD
    }


def check_never_ahead(logs: MirroredLogs, found: Mapping[int, Translation]) -> None:
    """Whatever the verdict, no unread record lies before an answer."""
    for offset, translation in found.items():
        if translation.downstream_offset is not None:
            logs.check(offset, translation.downstream_offset, exact=translation.verdict in GOOD)


async def check_poor(logs: MirroredLogs, offsets: Collection[int]) -> None:
    """What is left without the logs, and with a budget that is soon spent, is never ahead either."""
    positions = [SourcePosition(partition=ORIGIN, next_offset=offset) for offset in offsets]
    floors = await floor_translator(logs).translate(positions)
    check_never_ahead(logs, {position.next_offset: floor for position, floor in floors.items()})
    check_never_ahead(logs, await translate(translator(logs, max_bytes=2_000), offsets))
