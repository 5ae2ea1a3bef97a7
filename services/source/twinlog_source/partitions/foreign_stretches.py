"""Foreign records of a copy as stretches: consecutive batches of one producer form one. Pure."""

from dataclasses import dataclass, replace

from twinlog.batches.header import BatchHeader
from twinlog_source.partitions.reports import ForeignWrite

MOST_STRETCHES = 100
"""The limit for one check, and for one copy. Two foreign producers that alternate create many stretches;
further ones are added to the last."""


@dataclass(slots=True)
class ForeignStretches:
    """Takes foreign batches between two target offsets, in order."""

    begin: int
    end: int
    """The first offset behind."""
    found: tuple[ForeignWrite, ...] = ()

    def add(self, header: BatchHeader) -> None:
        first, behind = max(self.begin, header.base_offset), min(self.end, header.next_offset)
        if first >= behind:
            return
        write = ForeignWrite(
            from_offset=first,
            to_offset=behind,
            records=behind - first if header.record_count < 0 else min(header.record_count, behind - first),
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            written_at_ms=header.max_timestamp_ms,
        )
        is_one = bool(self.found) and _same_writer(self.found[-1], write)
        self.found = with_write(self.found, write, is_one=is_one)


def with_write(
    found: tuple[ForeignWrite, ...], write: ForeignWrite, *, is_one: bool = False
) -> tuple[ForeignWrite, ...]:
    """Add a stretch behind the others; to the last one if both are one, or there are too many."""
    if not (is_one or len(found) >= MOST_STRETCHES):
        return (*found, write)
    last = found[-1]
    both = replace(
        last,
        from_offset=min(last.from_offset, write.from_offset),
        to_offset=max(last.to_offset, write.to_offset),
        records=last.records + write.records,
        written_at_ms=max(last.written_at_ms, write.written_at_ms),
    )
    return (*found[:-1], both)


def _same_writer(one: ForeignWrite, other: ForeignWrite) -> bool:
    return (one.producer_id, one.producer_epoch) == (other.producer_id, other.producer_epoch)
