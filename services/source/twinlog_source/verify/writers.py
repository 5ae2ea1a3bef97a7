"""Finds the producers of foreign records: the producer ids of their batches."""

from typing import Any

from twinlog.errors import TransientKafkaError, TwinlogError
from twinlog.kafka.raw import BatchReader
from twinlog.model import TopicPartition
from twinlog.verify.model import Kind
from twinlog.verify.report import FlowReport, Writer

MOST_NAMED = 100
"""For how many differences the producer is looked up."""
_FETCH_BYTES = 64 << 10
_OF_SOMEBODY = frozenset((Kind.FOREIGN, Kind.DUPLICATE, Kind.CHANGED, Kind.ORDER))


async def named_writers(sides: Any, report: FlowReport) -> dict[tuple[TopicPartition, int], Writer]:
    """By source partition and target offset; unreadable batches are left out. Waits for none once the target
    does not answer."""
    found: dict[tuple[TopicPartition, int], Writer] = {}
    wanted = [
        (proof, difference.target_offset)
        for proof in report.proofs
        for difference in proof.differences
        if difference.kind in _OF_SOMEBODY and difference.target_offset is not None
    ]
    for proof, offset in wanted[:MOST_NAMED]:
        try:
            writer = await _writer(sides.target_reader, proof.target, offset)
        except TransientKafkaError:
            break
        if writer is not None:
            found[proof.source, offset] = writer
    return found


async def _writer(reader: BatchReader, partition: TopicPartition, offset: int) -> Writer | None:
    try:
        fetched = await reader.fetch(partition, offset, max_bytes=_FETCH_BYTES)
    except TransientKafkaError:
        raise
    except TwinlogError:
        return None
    for batch in fetched.batches:
        header = batch.header
        if header.base_offset <= offset < header.next_offset:
            return Writer(
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                transactional=header.is_transactional,
            )
    return None
