"""Counts visible records by batch headers where possible.

A dense batch tells how many records lie in any part of it. Only a batch with holes (or of an old format) that
crosses a bound has to be opened.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from twinlog.batches.header import UNKNOWN_COUNT, Batch
from twinlog.batches.records import open_records
from twinlog.batches.visibility import AbortedTransaction, Visibility, classify


@dataclass(slots=True)
class VisibleCounter:
    """Counts the visible records with offsets in [next_offset, stop_offset)."""

    next_offset: int
    """Where to fetch from next; initially the first offset to count."""
    stop_offset: int
    records: int = 0
    batches_opened: int = 0
    read_committed: bool = True

    @property
    def is_done(self) -> bool:
        return self.next_offset >= self.stop_offset

    def feed(self, batches: Iterable[Batch], aborted: Iterable[AbortedTransaction] = ()) -> None:
        """Continue with one fetch response that began at `next_offset`.

        Raises WireFormatError (CORRUPT_BATCH) from a batch that had to be opened.
        """
        for batch, visibility in classify(batches, aborted, read_committed=self.read_committed):
            header = batch.header
            if self.is_done:
                return
            if header.next_offset <= self.next_offset:
                continue
            if visibility is Visibility.VISIBLE:
                self.records += self._count(batch)
            self.next_offset = header.next_offset

    def _count(self, batch: Batch) -> int:
        header = batch.header
        first = max(header.base_offset, self.next_offset)
        stop = min(header.next_offset, self.stop_offset)
        if header.record_count != UNKNOWN_COUNT:
            if first == header.base_offset and stop == header.next_offset:
                return header.record_count
            if header.is_dense:
                return max(stop - first, 0)
        self.batches_opened += 1
        return sum(self.next_offset <= offset < self.stop_offset for offset, _, _ in open_records(batch))
