"""Foreign records of a copy as stretches: consecutive batches of one producer form one. Pure."""

from dataclasses import dataclass, field, replace

from twinlog.batches.header import BatchHeader
from twinlog_source.partitions.reports import ForeignWrite

MOST_STRETCHES = 100
"""The limit for one check. Two foreign producers that alternate create many stretches; further ones are added
to the last."""


@dataclass(slots=True)
class ForeignStretches:
    """Takes foreign batches between two target offsets, in order."""

    begin: int
    end: int
    """The first offset behind."""
    _found: list[ForeignWrite] = field(default_factory=list)

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
        last = self._found[-1] if self._found else None
        if last is None or not (_same_writer(last, write) or len(self._found) >= MOST_STRETCHES):
            self._found.append(write)
            return
        self._found[-1] = replace(
            last,
            to_offset=write.to_offset,
            records=last.records + write.records,
            written_at_ms=max(last.written_at_ms, write.written_at_ms),
        )

    @property
    def found(self) -> tuple[ForeignWrite, ...]:
        return tuple(self._found)


def _same_writer(one: ForeignWrite, other: ForeignWrite) -> bool:
    return (one.producer_id, one.producer_epoch) == (other.producer_id, other.producer_epoch)
