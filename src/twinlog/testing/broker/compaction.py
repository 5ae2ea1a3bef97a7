"""What the log cleaner leaves, on demand."""

from collections.abc import Collection

from twinlog.batches import compress, decode_record, open_records
from twinlog.batches.bodies import OpenRecord
from twinlog.batches.varint import encode_varint
from twinlog.testing.broker.log import PartitionLog
from twinlog.testing.broker.partitions import Partition
from twinlog.testing.broker.stored import StoredBatch, rewritten


def compact(partition: Partition, *, closed_only: bool = False) -> None:
    """Keep each key's last record below the last stable offset, and nothing of aborted transactions.

    Offsets stay: batches get holes. A batch without records goes, unless it is the last one of its producer.
    `closed_only`: as a broker, which leaves the newest segment as it is.
    """
    for log in partition.logs.values():
        end = min(log.last_stable_offset, log.segments.starts[-1] if closed_only else log.end_offset)
        log.replace_batches(_kept(log, end))


def remove(partition: Partition, offsets: Collection[int]) -> None:
    """Leave these out: single records, or markers."""
    for log in partition.logs.values():
        left = [_with_records(each, _without(each, offsets)) for each in log.batches]
        log.replace_batches(each for each in left if each.header.record_count)


def _without(batch: StoredBatch, offsets: Collection[int]) -> list[OpenRecord]:
    return [record for record in open_records(batch.batch) if record[0] not in offsets]


def _kept(log: PartitionLog, end: int) -> list[StoredBatch]:
    clean = [each for each in log.batches if each.header.next_offset <= end]
    newest: dict[bytes | None, int] = {}
    for batch in clean:
        for record in _records(log, batch) if batch.marker is None else ():
            newest[decode_record(record).key] = record[0]
    last_of_producer = {each.header.producer_id: each.header.base_offset for each in log.batches}
    kept = []
    for batch in clean:
        if batch.marker is not None:
            kept.append(batch)
            continue
        records = _records(log, batch)
        opened = map(decode_record, records)
        left = [
            raw for raw, record in zip(records, opened, strict=True) if newest[record.key] == record.offset
        ]
        header = batch.header
        if left or (header.producer_id >= 0 and last_of_producer[header.producer_id] == header.base_offset):
            kept.append(_with_records(batch, left))
    return kept + log.batches[len(clean) :]


def _records(log: PartitionLog, batch: StoredBatch) -> list[OpenRecord]:
    """Those of no aborted transaction."""
    header = batch.header
    is_aborted = header.is_transactional and any(
        each.producer_id == header.producer_id and each.first_offset <= header.base_offset < each.last_offset
        for each in log.producers.aborted
    )
    return [] if is_aborted else open_records(batch.batch)


def _with_records(batch: StoredBatch, records: list[OpenRecord]) -> StoredBatch:
    header = batch.header
    if len(records) == header.record_count:
        return batch
    pieces = []
    for offset, timestamp_ms, body in records:
        head = (
            b"\0"
            + encode_varint(timestamp_ms - header.base_timestamp_ms)
            + encode_varint(offset - header.base_offset)
        )
        pieces.append(encode_varint(len(head) + len(body)) + head + body)
    return rewritten(header._replace(record_count=len(records)), compress(header.codec, b"".join(pieces)))
