"""Builds batches of Twinlog's own records: positions, gaps, control records."""

from collections.abc import Sequence
from typing import NamedTuple

from twinlog.batches.bodies import RawHeaders, encode_body
from twinlog.batches.codec import Codec, compress
from twinlog.batches.lanes import Lane, LaneReason
from twinlog.batches.outgoing import OffsetRun, OutgoingBatch
from twinlog.batches.records import write_records


class NewRecord(NamedTuple):
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: RawHeaders = ()


def build_batch(records: Sequence[NewRecord], *, codec: Codec = Codec.NONE) -> OutgoingBatch:
    """One batch of at least one record; its source offsets are 0, 1, 2, …."""
    opened = [
        (index, record.timestamp_ms, encode_body(record.key, record.value, record.headers))
        for index, record in enumerate(records)
    ]
    base_timestamp_ms = opened[0][1]
    return OutgoingBatch(
        codec=codec,
        record_count=len(opened),
        base_timestamp_ms=base_timestamp_ms,
        max_timestamp_ms=max(timestamp_ms for _, timestamp_ms, _ in opened),
        records=compress(codec, write_records(opened, base_timestamp_ms)),
        runs=(OffsetRun(0, len(opened)),),
        next_source_offset=len(opened),
        lane=Lane.RECODE,
        reason=LaneReason.OWN_RECORDS,
    )
