"""Joins small batches that are ready to be sent into larger ones.

A produce request takes one batch of each partition, and a leader answers only when every replica has it. So
batches that wait for one another cost a round trip each; joined they cost one. `join` decides which batches
become one, and skips those that cannot be joined; `merge` joins given ones.
"""

from collections.abc import Iterator, Sequence
from itertools import chain

from twinlog.batches.bodies import OpenRecord
from twinlog.batches.codec import decompress
from twinlog.batches.outgoing import LaneReason, OutgoingBatch, TargetTopicLimits
from twinlog.batches.recode_lane import encode, pack
from twinlog.batches.records import walk_records
from twinlog.errors import WireFormatError

JOINED_BELOW_BYTES = 16 << 10
"""Larger batches are sent unchanged: opening one costs more than it saves."""
JOINED_BYTES = 64 << 10
"""The size limit of a joined batch."""
_MOST_OPEN_BYTES = 1 << 20


def join(batches: Sequence[OutgoingBatch], *, target: TargetTopicLimits) -> Sequence[OutgoingBatch]:
    """The same records in the same order, in as few batches as `JOINED_BYTES` allows."""
    if len(batches) < 2:
        return batches
    return list(chain.from_iterable(_joined(group, target) for group in _groups(batches)))


def _groups(batches: Sequence[OutgoingBatch]) -> Iterator[list[OutgoingBatch]]:
    group: list[OutgoingBatch] = []
    group_bytes = 0
    for batch in batches:
        last = group[-1] if group else None
        if last is not None and not (
            batch.codec is last.codec
            and max(last.size_bytes, batch.size_bytes) < JOINED_BELOW_BYTES
            and group_bytes + batch.size_bytes <= JOINED_BYTES
        ):
            yield group
            group, group_bytes = [], 0
        group.append(batch)
        group_bytes += batch.size_bytes
    yield group


def merge(batches: Sequence[OutgoingBatch], *, level: int | None, max_open_bytes: int) -> OutgoingBatch:
    """Join consecutive batches into one with the codec of the first. Raises WireFormatError: CORRUPT_BATCH,
    or BATCH_TOO_LARGE when they are larger than `max_open_bytes`."""
    records: list[OpenRecord] = []
    for batch in batches:
        max_open_bytes -= _open(batch, max_open_bytes, records)
    return encode(records, batches[0].codec, level, LaneReason.SMALL_BATCHES, batches[-1].next_source_offset)


def _joined(group: Sequence[OutgoingBatch], target: TargetTopicLimits) -> Sequence[OutgoingBatch]:
    if len(group) == 1:
        return group
    records: list[OpenRecord] = []
    try:
        for batch in group:
            _open(batch, _MOST_OPEN_BYTES, records)
    except WireFormatError:
        return group
    packed = pack(
        records,
        codec=group[0].codec,
        target=target,
        reason=LaneReason.SMALL_BATCHES,
        next_source_offset=group[-1].next_source_offset,
    )
    return group if packed.too_large else packed.batches


def _open(batch: OutgoingBatch, max_open_bytes: int, records: list[OpenRecord]) -> int:
    """Append the batch's records with their source offsets; return their size in bytes. Raises
    WireFormatError: CORRUPT_BATCH when they do not match the header, or BATCH_TOO_LARGE."""
    data = decompress(batch.codec, batch.records, max_open_bytes)
    found: list[OpenRecord] = []
    try:
        left = walk_records(data, 0, batch.base_timestamp_ms, batch.record_count, found.append)
    except IndexError:
        left = 1
    if left or len(found) != batch.record_count:
        raise WireFormatError(
            f"the batch at offset {batch.first} does not hold its records",
            reason="CORRUPT_BATCH",
        )
    offsets = chain.from_iterable(range(first, first + count) for first, count in batch.runs)
    records += [
        (offset, timestamp, body) for offset, (_, timestamp, body) in zip(offsets, found, strict=True)
    ]
    return len(data)
