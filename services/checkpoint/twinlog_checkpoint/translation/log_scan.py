"""Follows the one partition of an internal topic from its beginning."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from twinlog.errors import TwinlogError
from twinlog.kafka.ports import LogAdmin, LogReader, OffsetSpec
from twinlog.kafka.reasons import KafkaReason
from twinlog.kafka.whole_logs import FETCH_BYTES, Progress, StandsStillError, log_bounds
from twinlog.model import Record, TopicPartition

INTERNAL_PARTITION = 0
"""MM2 writes syncs and checkpoints to this partition of their topics."""


@dataclass(slots=True, kw_only=True)
class LogScan:
    """A position in one partition. `begin`, then `more` again and again.

    An error keeps the position, unless the log no longer has it: then `lost_position` is true and the caller
    begins again.
    """

    admin: LogAdmin
    reader: LogReader
    topic: str
    end: OffsetSpec
    """The end that the reader can see: LAST_STABLE when it reads committed records only, else LATEST."""
    next_offset: int = 0
    end_at_begin: int = 0
    """The end of the log when reading began: the first pass is done when it is reached."""
    lost_position: bool = False
    _progress: Progress = field(init=False)

    @property
    def partition(self) -> TopicPartition:
        return TopicPartition(self.topic, INTERNAL_PARTITION)

    @property
    def first_pass_done(self) -> bool:
        return self.next_offset >= self.end_at_begin

    async def begin(self) -> None:
        """Go to the first record there is. Raises KafkaError (TOPIC_UNKNOWN when there is no such topic)."""
        start, end = await log_bounds(self.admin, self.partition, self.end)
        self.next_offset, self.end_at_begin, self.lost_position = start, end, False
        self._progress = Progress(partition=self.partition, end=end)

    async def more(self, *, max_wait_seconds: float) -> Sequence[Record]:
        """The next records; waits up to `max_wait_seconds` when there are none.

        Raises KafkaError; StandsStillError when the first pass does not reach the end that the log had when
        it began: the log has lost records, and the caller begins again.
        """
        try:
            fetched = await self.reader.fetch(
                self.partition, self.next_offset, max_wait_seconds=max_wait_seconds, max_bytes=FETCH_BYTES
            )
        except TwinlogError as error:
            self.lost_position = error.reason == KafkaReason.OFFSET_OUT_OF_RANGE
            raise
        try:
            fetched = self._progress.of(fetched, self.next_offset, waited_seconds=max_wait_seconds)
        except StandsStillError:
            self.lost_position = True
            raise
        self.next_offset = fetched.next_offset
        return fetched.records
