"""What a report tells of the records that differ: their contents, which are fetched only on request because
they may be confidential, and the producers of foreign ones."""

from collections.abc import Iterator
from typing import Any

from twinlog.batches import decode_batch
from twinlog.batches.header import Batch
from twinlog.comparison.model import Difference, Kind, PartitionProof, Side
from twinlog.errors import TransientKafkaError, TwinlogError
from twinlog.kafka.raw import BatchReader
from twinlog.model import TopicPartition
from twinlog.verify.report import FlowReport, Writer, shown_record

MOST_SHOWN = 100
"""For how many differences records are fetched, and for how many their producers are looked up."""
_SHOWN_BYTES = 1 << 20
_NAMED_BYTES = 64 << 10
_OF_SOMEBODY = frozenset((Kind.FOREIGN, Kind.DUPLICATE, Kind.CHANGED, Kind.ORDER))


async def shown_records(sides: Any, report: FlowReport) -> dict[tuple[TopicPartition, str, int], Any]:
    """By source partition, side and offset; unreadable records are left out, and all further ones of a side
    that does not answer."""
    found: dict[tuple[TopicPartition, str, int], Any] = {}
    away: set[Side] = set()
    for proof, difference in [*_differences(report)][:MOST_SHOWN]:
        for side, partition, reader, offset in (
            (Side.SOURCE, proof.source, sides.source_reader, difference.source_offset),
            (Side.TARGET, proof.target, sides.target_reader, difference.target_offset),
        ):
            if offset is None or side in away:
                continue
            try:
                batch = await _batch_at(reader, partition, offset, max_bytes=_SHOWN_BYTES)
                records = () if batch is None else decode_batch(batch)
            except TransientKafkaError:
                away.add(side)
                continue
            except TwinlogError:
                continue
            for record in records:
                if record.offset == offset:
                    found[proof.source, str(side), offset] = shown_record(record)
    return found


async def named_writers(sides: Any, report: FlowReport) -> dict[tuple[TopicPartition, int], Writer]:
    """By source partition and target offset; unreadable batches are left out. Waits for none once the target
    does not answer."""
    found: dict[tuple[TopicPartition, int], Writer] = {}
    wanted = [
        (proof, difference.target_offset)
        for proof, difference in _differences(report)
        if difference.kind in _OF_SOMEBODY and difference.target_offset is not None
    ]
    for proof, offset in wanted[:MOST_SHOWN]:
        try:
            batch = await _batch_at(sides.target_reader, proof.target, offset, max_bytes=_NAMED_BYTES)
        except TransientKafkaError:
            break
        except TwinlogError:
            continue
        if batch is not None:
            header = batch.header
            found[proof.source, offset] = Writer(
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                transactional=header.is_transactional,
            )
    return found


def _differences(report: FlowReport) -> Iterator[tuple[PartitionProof, Difference]]:
    return ((proof, difference) for proof in report.proofs for difference in proof.differences)


async def _batch_at(
    reader: BatchReader, partition: TopicPartition, offset: int, *, max_bytes: int
) -> Batch | None:
    fetched = await reader.fetch(partition, offset, max_bytes=max_bytes)
    return next(
        (batch for batch in fetched.batches if batch.header.base_offset <= offset < batch.header.next_offset),
        None,
    )
