"""Places in a changed copy whose records name their origins (`twinlog.provenance.headers`).

A copy has the records of its source in their order, so the first one that comes from an offset or a later
one is where a group continues that reads this offset next. A record without an origin may be the copy of any:
then nothing is said.
"""

from collections.abc import AsyncIterator

from twinlog.batches import open_records
from twinlog.batches.bodies import OpenRecord
from twinlog.transforms.expressions import origin_of
from twinlog_checkpoint.translation.history import OffsetPair, Pairs
from twinlog_checkpoint.translation.log_sides import FIRST_READ_BYTES, READ_BYTES, ComparedPartition
from twinlog_checkpoint.translation.translation import Translation, Verdict, at_start, without_floor

_BY_ORIGIN = "by the origins that the copy's records name"
_OTHER_SOURCE = (
    "the source has another record, or none yet, at the origin: it lost records or was created again"
)


async def copied_place(
    copy: ComparedPartition, prefix: bytes, offset: int, pairs: Pairs
) -> Translation | None:
    """Where the copy has a source offset. What is found is learned: a sync that contradicts it later voids
    it. Raises as `ComparedPartition.read`, and WireFormatError."""
    there, pair = copy.bounds, pairs.at_or_below(offset)
    for begin in [there.start] if pair is None else [pair.downstream, there.start]:
        is_known = begin <= there.start
        """What lies before comes from lower offsets."""
        may_be_gone = is_known and there.start > 0
        async for at, origin in _origins(copy, prefix, begin):
            if origin is None:
                return None
            if origin[0] > offset and not is_known:
                break  # The pair may be of a copy that is gone.
            if origin[0] > offset and may_be_gone:
                return at_start(there)
            if origin[0] >= offset:
                pairs.on_verified(OffsetPair(origin[0], at))
                return _told(Verdict.EXACT, at)
            is_known, may_be_gone = True, False
        else:
            if is_known:
                return _told(Verdict.UP_TO_DATE, there.end)
    return None


async def original_place(
    copy: ComparedPartition, source: ComparedPartition, prefix: bytes, offset: int, pair: OffsetPair | None
) -> Translation | None:
    """Where the source has an offset of the copy: the origin of the first record from there on that it still
    has. Behind the last one it is the offset after the last origin. Nowhere, if the source has another record
    at an origin, or none of them all. Raises as `copied_place`."""
    start = source.bounds.start
    async for _, origin in _origins(copy, prefix, offset):
        # What lies before all pairs may come from a source topic that is gone.
        if origin is None or pair is None:
            return None
        is_there = origin[0] <= start or await _is_there(source, *origin)
        if is_there is not None:
            return _at_source(is_there, Verdict.EXACT, max(origin[0], start))
    before: list[tuple[int, int]] = []
    for begin in copy.bounds.start if pair is None else pair.upstream, copy.bounds.start:
        before.clear()
        async for _, origin in _origins(copy, prefix, begin):
            if origin is None:
                return None
            before.append(origin)
        for origin in reversed(before):
            is_there = origin[0] < start or await _is_there(source, *origin)
            if is_there is not None:
                return _at_source(is_there, Verdict.UP_TO_DATE, max(before[-1][0] + 1, start))
    return without_floor(_OTHER_SOURCE) if before else None


def _at_source(is_there: bool, verdict: Verdict, offset: int) -> Translation:
    return _told(verdict, offset) if is_there else without_floor(_OTHER_SOURCE)


async def _is_there(source: ComparedPartition, offset: int, timestamp_ms: int) -> bool | None:
    """Whether the source has the record: another topic has another one at its offset. None = it is gone."""
    if offset >= source.bounds.end:
        return False
    async for record in _records(source, offset):
        if record is None or record[0] == offset:
            return record is not None and record[1] == timestamp_ms
        return None
    return None


async def _origins(
    copy: ComparedPartition, prefix: bytes, begin: int
) -> AsyncIterator[tuple[int, tuple[int, int] | None]]:
    """The records of the copy from an offset on: offset and origin, with its timestamp in ms; None at the end
    where the leader shows no more."""
    async for record in _records(copy, begin):
        yield (begin, None) if record is None else (record[0], origin_of(record, prefix))


async def _records(log: ComparedPartition, begin: int) -> AsyncIterator[OpenRecord | None]:
    """The records from an offset on. None where its leader shows no more: a new one does not know yet how
    much all replicas have."""
    at, max_bytes = max(begin, log.bounds.start), FIRST_READ_BYTES
    while at < log.bounds.end:
        chunk = await log.read(at, max_bytes=max_bytes)
        if not chunk.size_bytes:
            yield None
        for batch in chunk.batches:
            for record in open_records(batch):
                if record[0] >= at:
                    yield record
        at, max_bytes = chunk.next_offset, READ_BYTES


def _told(verdict: Verdict, offset: int) -> Translation:
    return Translation(verdict=verdict, downstream_offset=offset, message=_BY_ORIGIN)
