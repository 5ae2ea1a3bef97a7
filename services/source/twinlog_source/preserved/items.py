"""Converts prepared batches of the source into items for a copy with the same offsets. Pure."""

from collections.abc import Iterator

from twinlog.batches import OutgoingBatch, Prepared
from twinlog_source.preserved.append_steps import Append, Hole


def items_of(prepared: Prepared, *, from_offset: int) -> Iterator[Append[OutgoingBatch] | Hole]:
    """The items between `from_offset` and `prepared.next_offset`, without gaps.

    The batches must have been prepared with `keeps_offsets`, so that each is dense.
    """
    at = from_offset
    for batch in prepared.batches:
        if batch.first_source_offset > at:
            yield Hole(at, batch.first_source_offset - at)
        assert batch.is_dense, batch.runs
        yield Append(batch.first_source_offset, batch.record_count, batch.size_bytes, batch, batch.codec)
        at = batch.first_source_offset + batch.record_count
    if prepared.next_offset > at:
        yield Hole(at, prepared.next_offset - at)
