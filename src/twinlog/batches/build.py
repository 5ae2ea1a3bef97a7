"""Builds batches of Twinlog's own records: positions, gaps, control records."""

from collections.abc import Sequence
from typing import NamedTuple

from twinlog.batches.bodies import RawHeaders, encode_body
from twinlog.batches.codec import Codec
from twinlog.batches.lanes import LaneReason
from twinlog.batches.outgoing import OutgoingBatch
from twinlog.batches.recode_lane import encode


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
    return encode(opened, codec, None, LaneReason.OWN_RECORDS, len(opened))
