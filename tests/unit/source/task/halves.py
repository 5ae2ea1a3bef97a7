"""The halves of a task with what a test looks at; the rest is not there."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, cast

from twinlog.clock import Clock
from twinlog.kafka.raw import ProducerIdentity, ProducerSettings, RawFetcher
from twinlog.model import TopicPartition
from twinlog.testing.virtual_time import LoopClock
from twinlog_source.preserved.filler import Filler
from twinlog_source.task.partition import PartitionCopy
from twinlog_source.task.reading.fetch_schedule import Throttle
from twinlog_source.task.reading.source_reader import SourceReader
from twinlog_source.task.writing.positions_topic import PositionsTopic
from twinlog_source.task.writing.preserved_copies import PreservedCopies
from twinlog_source.task.writing.preserved_writer import PreservedWriter
from twinlog_source.task.writing.round import OffsetSyncs, paced_syncs
from twinlog_source.task.writing.target_writer import TargetWriter

_NOTHING: Any = None


def reading_half(
    fetcher: object, copies: Mapping[TopicPartition, PartitionCopy], **given: Any
) -> SourceReader:
    unless_given = {
        "throttle": Throttle(),
        "read_committed": True,
        "clock": LoopClock(),
        "on_out_of_range": None,
        "on_other_leaders": None,
        "max_buffered_bytes": 1 << 20,
    }
    return SourceReader(fetcher=cast("RawFetcher", fetcher), copies=copies, **{**unless_given, **given})


def syncs_of(clock: Clock) -> OffsetSyncs:
    paced = paced_syncs(100, flush_seconds=60)
    return OffsetSyncs(topic="", session=_NOTHING, settings=_NOTHING, paced=paced, clock=clock)


async def _take_nothing_over(_committed: Collection[TopicPartition]) -> None:
    """No transaction is left open."""


def writing_half(
    reader: SourceReader,
    open_transport: Callable[[], Any],
    ask_driver: Callable[[], Awaitable[Mapping[TopicPartition, int]]],
    *,
    clock: Clock,
    take_over: Callable[[Collection[TopicPartition]], Awaitable[None]] = _take_nothing_over,
) -> TargetWriter:
    copies = reader.copies
    return TargetWriter(
        positions_topic=PositionsTopic(
            topic="positions", partition_count=1, source_alias="A", connector_name="C"
        ),
        source_reader=reader,
        copies=copies,
        by_target={TopicPartition(c.target_topic, c.partition.partition): c for c in copies.values()},
        take_over=take_over,
        open_transport=open_transport,
        ask_driver=ask_driver,
        syncs=syncs_of(clock),
        clock=clock,
        random=lambda: 0.0,
    )


def preserved_of(clock: Clock, identity: ProducerIdentity, **given: Any) -> PreservedCopies:
    return PreservedCopies(
        source_alias="A",
        writer=PreservedWriter(
            session=_NOTHING,
            settings=ProducerSettings(),
            identity=identity,
            tails=_NOTHING,
            filler=Filler(_NOTHING, "fill", ProducerSettings()),
            clock=clock,
            may_write=lambda: True,
        ),
        syncs=syncs_of(clock),
        clock=clock,
        flush_seconds=60.0,
        fill_after_seconds=10.0,
        **given,
    )
