"""Where the files of a log begin: a fetch reads from one, and retention removes whole ones."""

from bisect import bisect_right
from collections.abc import Iterable

from twinlog.batches import BatchHeader
from twinlog.testing.broker.log_settings import LogSettings


class Segments:
    """After LogSegment.shouldRoll: by size, and by the time between the timestamps of records.

    A marker has the time of the broker: behind old records it begins a segment.
    """

    def __init__(self, settings: LogSettings) -> None:
        self._settings = settings
        self.starts = [0]
        self._first_timestamp_ms: int | None = None
        self._size_bytes = 0
        """Of the last one."""

    def take(self, header: BatchHeader) -> None:
        """Learn of a batch before it is appended."""
        if self._first_timestamp_ms is not None and (
            self._size_bytes + header.size_bytes > self._settings.segment_bytes
            or header.max_timestamp_ms - self._first_timestamp_ms > self._settings.segment_ms
        ):
            self.roll(header.base_offset)
        if self._first_timestamp_ms is None:
            self._first_timestamp_ms = header.max_timestamp_ms
        self._size_bytes += header.size_bytes

    def roll(self, offset: int) -> None:
        if self.starts[-1] < offset:
            self.starts.append(offset)
        self._first_timestamp_ms, self._size_bytes = None, 0

    def end_of(self, offset: int) -> int | None:
        """Where the segment with this offset ends; None for the last one."""
        index = bisect_right(self.starts, offset)
        return self.starts[index] if index < len(self.starts) else None

    def restrict(self, start: int, end: int, left: Iterable[BatchHeader]) -> None:
        """Keep those between two offsets; `left` is what the log holds."""
        within = [each for each in self.starts if start < each < end]
        self.starts = [max((each for each in self.starts if each <= start), default=start), *within]
        self._first_timestamp_ms, self._size_bytes = None, 0
        for header in left:
            if header.base_offset >= self.starts[-1]:
                if self._first_timestamp_ms is None:
                    self._first_timestamp_ms = header.max_timestamp_ms
                self._size_bytes += header.size_bytes
