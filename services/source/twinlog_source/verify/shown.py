"""The records of differences; fetched only on request, because they may be confidential."""

from typing import Any

from twinlog.batches import DecodedRecord, decode_batch
from twinlog.errors import TransientKafkaError, TwinlogError
from twinlog.kafka.raw import BatchReader
from twinlog.model import TopicPartition
from twinlog.verify.model import Difference, Side
from twinlog.verify.report import FlowReport
from twinlog.verify.shown import shown_record

MOST_SHOWN = 100
"""For how many differences records are fetched."""
_FETCH_BYTES = 1 << 20


async def shown_records(sides: Any, report: FlowReport) -> dict[tuple[TopicPartition, str, int], Any]:
    """By source partition, side and offset; unreadable records are left out, and all further ones of a side
    that does not answer."""
    found: dict[tuple[TopicPartition, str, int], Any] = {}
    away: set[Side] = set()
    count = 0
    for proof in report.proofs:
        for difference in proof.differences:
            if count >= MOST_SHOWN:
                return found
            count += 1
            for side, offset in _places(difference):
                reader, partition = (
                    (sides.source_reader, proof.source)
                    if side is Side.SOURCE
                    else (sides.target_reader, proof.target)
                )
                if side in away:
                    continue
                try:
                    record = await _read(reader, partition, offset)
                except TransientKafkaError:
                    away.add(side)
                    continue
                if record is not None:
                    found[proof.source, str(side), offset] = shown_record(record)
    return found


def _places(difference: Difference) -> list[tuple[Side, int]]:
    return [
        (side, offset)
        for side, offset in (
            (Side.SOURCE, difference.source_offset),
            (Side.TARGET, difference.target_offset),
        )
        if offset is not None
    ]


async def _read(reader: BatchReader, partition: TopicPartition, offset: int) -> DecodedRecord | None:
    try:
        fetched = await reader.fetch(partition, offset, max_bytes=_FETCH_BYTES)
        for batch in fetched.batches:
            if batch.header.base_offset <= offset < batch.header.next_offset:
                return next((record for record in decode_batch(batch) if record.offset == offset), None)
    except TransientKafkaError:
        raise
    except TwinlogError:
        return None
    return None
