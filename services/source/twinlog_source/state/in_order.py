"""Finds how far a copy reaches: compares its records with those of the source, in order, from a pair of
offsets that is known to belong together.

Invariant: a position is returned only when every committed record of the copy from the pair on is the next
committed record of the source, in order. So the records before it are on the copy exactly once, and those
behind it are not.
"""

from dataclasses import dataclass

from twinlog.comparison.records import is_copy
from twinlog.errors import KafkaError
from twinlog.kafka.ports import LogReader
from twinlog.kafka.reasons import KafkaReason
from twinlog.model import TopicPartition
from twinlog_source.state.clusters import patient_records


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    position: int
    records: int
    """Number of compared records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Differs:
    """The copy has something else than the source."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InOrder:
    source: TopicPartition
    copy: TopicPartition
    source_from: int
    source_end: int
    copy_from: int
    copy_end: int
    same_offsets: bool
    """The copy has the source's offsets."""


async def compare_in_order(logs: InOrder, source: LogReader, target: LogReader) -> Reached | Differs:
    """Raises KafkaError when a log cannot be read."""
    here = patient_records(source, logs.source, logs.source_from, logs.source_end)
    position, count = logs.source_from, 0
    try:
        async for copied in patient_records(target, logs.copy, logs.copy_from, logs.copy_end):
            original = await anext(here, None)
            if original is None:
                return Differs(why=f"{logs.copy} has at offset {copied.offset} what the source has not")
            if not is_copy(original, copied) or (logs.same_offsets and original.offset != copied.offset):
                return Differs(
                    why=f"{logs.copy} at {copied.offset} is not {logs.source} at {original.offset}"
                )
            position, count = original.offset + 1, count + 1
    except KafkaError as error:
        if error.reason != KafkaReason.OFFSET_OUT_OF_RANGE:
            raise
        return Differs(why=f"records are gone that would have to be compared: {error}")
    return Reached(position=position, records=count)
