"""Places in a changed copy whose records name their origins (`twinlog.provenance.headers`).

A copy has the records of its source in their order, so the first one that comes from an offset or a later
one is where a group continues that reads this offset next. A record without an origin may be the copy of any:
then nothing is said.
"""

from collections.abc import AsyncIterator

from twinlog.batches import open_records
from twinlog.transforms.expressions import origin_offset
from twinlog_checkpoint.translation.history import OffsetPair
from twinlog_checkpoint.translation.log_sides import FIRST_READ_BYTES, READ_BYTES, ComparedPartition
from twinlog_checkpoint.translation.translation import LogBounds, Translation, Verdict

_BY_ORIGIN = "by the origins that the copy's records name"


async def copied_place(
    copy: ComparedPartition, prefix: bytes, offset: int, pair: OffsetPair | None, there: LogBounds
) -> Translation | None:
    """Where the copy has a source offset; `pair` is at or below it. Raises as `ComparedPartition.read`, and
    WireFormatError."""
    for begin in [there.start] if pair is None else [pair.downstream, there.start]:
        is_known = begin <= there.start
        """What lies before comes from lower offsets."""
        async for at, origin in _origins(copy, prefix, begin):
            if origin is None:
                return None
            if origin > offset and not is_known:
                break  # The pair may be of a copy that is gone.
            if origin >= offset:
                return _told(Verdict.EXACT, at)
            is_known = True
        else:
            if is_known:
                return _told(Verdict.UP_TO_DATE, there.end)
    return None


async def original_place(
    copy: ComparedPartition, prefix: bytes, offset: int, pair: OffsetPair | None, there: LogBounds
) -> Translation | None:
    """Where the source has an offset of the copy: the origin of the record there. Behind the last one it is
    the offset after the last origin. Raises as `copied_place`."""
    async for _, origin in _origins(copy, prefix, offset):
        # What lies before all pairs may come from a source topic that is gone.
        return None if origin is None or pair is None else _within(Verdict.EXACT, origin, there)
    last = None
    async for _, last in _origins(copy, prefix, copy.bounds.start if pair is None else pair.upstream):
        if last is None:
            return None
    return None if last is None else _within(Verdict.UP_TO_DATE, last + 1, there)


async def _origins(
    copy: ComparedPartition, prefix: bytes, begin: int
) -> AsyncIterator[tuple[int, int | None]]:
    """The records of the copy from an offset on: offset and origin. None where its leader shows no more: a
    new one does not know yet how much all replicas have."""
    at, max_bytes = max(begin, copy.bounds.start), FIRST_READ_BYTES
    while at < copy.bounds.end:
        chunk = await copy.read(at, max_bytes=max_bytes)
        if not chunk.size_bytes:
            yield at, None
        for batch in chunk.batches:
            for record in open_records(batch):
                if record[0] >= at:
                    yield record[0], origin_offset(record, prefix)
        at, max_bytes = chunk.next_offset, READ_BYTES


def _within(verdict: Verdict, offset: int, there: LogBounds) -> Translation | None:
    return None if offset > there.end else _told(verdict, there.begin(offset))


def _told(verdict: Verdict, offset: int) -> Translation:
    return Translation(verdict=verdict, downstream_offset=offset, message=_BY_ORIGIN)
