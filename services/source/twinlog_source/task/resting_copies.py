"""Finds foreign records, and lost ones, in copies at rest, for which no batch of ours would arrive at an
unexpected offset.

The ends of all copies at rest are read at an interval, with one request to each leader. A copy that ends
behind its last written record is checked, and so is one with the source's offsets that ends before it: it has
lost its tail, which is copied again, or its topic was recreated, which the driver decides about. A copy with
records in flight during the request is at rest neither before nor after it, so our own records are never
reported as foreign.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass

import structlog

from twinlog.errors import KafkaError, TwinlogError
from twinlog.model import TopicPartition
from twinlog.service.waiting import wait_or_stop
from twinlog_source.task.foreign_writes import ForeignWrites
from twinlog_source.task.partition import PartitionCopy
from twinlog_source.task.writing.preserved_copies import PreservedCopies

FIRST_LOOK_SECONDS = 2.0
"""The delay after the start of a task: what was written between two tasks is found soon."""
LOOK_SECONDS = 20.0

Ends = Callable[[Collection[TopicPartition]], Awaitable[Mapping[TopicPartition, int | KafkaError]]]
"""Returns where copies end for their consumers, by target partition. Raises KafkaError."""

log = structlog.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class RestingCopies:
    """The copies at rest of one task."""

    by_target: Mapping[TopicPartition, PartitionCopy]
    ends: Ends
    foreign_writes: ForeignWrites
    preserved: PreservedCopies | None

    async def run(self, stop: asyncio.Event) -> None:
        """Loop until `stop`."""
        wait_seconds = FIRST_LOOK_SECONDS
        while not await wait_or_stop(stop, wait_seconds):
            wait_seconds = LOOK_SECONDS
            try:
                await self.look(stop)
            except TwinlogError as error:
                # This check is optional: the copy neither waits for it nor fails with it.
                log.debug("resting_copies_not_read", reason=error.reason)

    async def look(self, stop: asyncio.Event) -> None:
        """Read where the copies at rest end, and check unexpected offsets. Raises KafkaError."""
        before = {
            target: end
            for target, copy in self.by_target.items()
            if (end := self._resting_end(copy)) is not None
        }
        if not before:
            return
        for target, found in (await self.ends(before)).items():
            copy = self.by_target.get(target)
            if copy is None or isinstance(found, KafkaError) or self._resting_end(copy) != before[target]:
                continue
            if copy.keeps_offsets and self.preserved is not None:
                if found != before[target]:
                    self.preserved.doubt(self.preserved.by_source[copy.partition])
            elif found > before[target] + copy.markers_to_come and await self.foreign_writes.look(
                copy.partition, target, before[target], found, stop
            ):
                copy.others_wrote(before[target], found)

    def _resting_end(self, copy: PartitionCopy) -> int | None:
        """Where the copy ends if only Twinlog wrote it; None: unknown, or about to change."""
        if copy.keeps_offsets:
            return None if self.preserved is None else self.preserved.resting_end(copy.partition)
        if copy.shared:
            return None
        return copy.target_end if copy.is_idle and copy.end_is_exact else None
