"""Judges copies with foreign records: reports the producer, and ends each copy before the first foreign
record."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from twinlog.errors import KafkaError
from twinlog.model import TopicPartition
from twinlog.service.waiting import wait_for_any
from twinlog_source.partitions import orders
from twinlog_source.preserved.append_steps import PreservedReason
from twinlog_source.preserved.own_batches import FirstForeign
from twinlog_source.task.writing.preserved_copy import PreservedCopy, Why

RETRY_SECONDS = 1.0
BOTH_WAYS: Final = "the other side writes the topic, too"

_NO_PRODUCER = -1


ReadForeignWrite = Callable[[TopicPartition, int, int | None, str], Awaitable[FirstForeign]]
"""`CopyTails.foreign_write`. Raises KafkaError."""


@dataclass(slots=True, kw_only=True)
class ForeignJudge:
    foreign_write: ReadForeignWrite
    tell: Callable[[TopicPartition, orders.ForeignWrite], None]
    """Called with each foreign stretch of a copy, by source partition."""
    own_producer_id: int
    end_copy: Callable[[PreservedCopy, int, int, Why], None]
    """`PreservedCopies.end`."""
    seconds_before_still: Callable[[PreservedCopy], float]
    """How long a late batch of ours may still come behind what is foreign: it would be copied again."""
    is_over: bool = False
    """A finding would no longer get on the log: the next task finds it."""
    waiting: dict[TopicPartition, PreservedCopy] = field(default_factory=dict)
    """By target partition: findings that are not judged yet."""
    _failed: set[TopicPartition] = field(default_factory=set)
    """Those of `waiting` that cannot be judged for now, for instance while their leader is down."""
    _work: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_about_to_judge(self) -> bool:
        """Whether a finding waits that is not known to take longer."""
        return len(self.waiting) > len(self._failed)

    def add(self, taken: PreservedCopy) -> None:
        self.waiting[taken.target] = taken
        self._work.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Loop until `stop`."""
        while not stop.is_set():
            self._work.clear()
            for taken in list(self.waiting.values()):
                await self.look_at(taken)
            await wait_for_any(stop, self._work, seconds=RETRY_SECONDS if self.waiting else None)

    async def look_at(self, taken: PreservedCopy) -> None:
        """Find out which producer wrote, where, and from which position the copy continues."""
        target, appends = taken.target, taken.appends
        if self.seconds_before_still(taken) > 0:
            self._failed.add(target)
            return
        assert appends.foreign_at is not None
        try:
            lost_since = appends.leader_epoch if appends.has_lost_records else None
            topic_id = taken.topic_id
            found = await self.foreign_write(target, appends.foreign_at, lost_since, topic_id)
        except KafkaError as error:
            taken.problem = error
            self._failed.add(target)
            return
        self.waiting.pop(target, None)
        self._failed.discard(target)
        if self.is_over:
            return
        for write in found.writes:
            self.tell(taken.copy.partition, write)
        if found.end:
            taken.copy.target_end = found.end  # Everything below was reported.
        self.end_copy(
            taken,
            taken.position_of(found.offset + found.own_behind),
            found.offset,
            (PreservedReason.BOTH_WAYS, BOTH_WAYS)
            if taken.copy.shared
            else (self._reason(found), self._words(target, found)),
        )

    def _reason(self, found: FirstForeign) -> PreservedReason:
        if found.is_filler and not self._is_nobodys_or_ours(found):
            return PreservedReason.MARKER_REPEATED
        return PreservedReason.FOREIGN_WRITE

    def _is_nobodys_or_ours(self, found: FirstForeign) -> bool:
        """Whether it was written without a producer id, or with that of the flow's copies."""
        return found.producer_id in (_NO_PRODUCER, self.own_producer_id)

    def _words(self, target: TopicPartition, found: FirstForeign) -> str:
        if self._is_nobodys_or_ours(found):
            return (
                f"{target}: the record at offset {found.offset} is not the source's: the target topic was"
                " recreated while it was written, or another producer writes to it"
            )
        if found.is_filler:
            return (
                f"{target}: offset {found.offset}, where the source has a record, has the end of a"
                f" transaction of producer id {found.producer_id}. Most likely it is a transaction of Twinlog"
                " that the target's coordinator ended twice, because it was killed in between; it may be"
                " another producer's. From there on the copy cannot keep the source's offsets"
            )
        return (
            f"{target}: offset {found.offset} was written by producer id {found.producer_id}, which is not"
            " Twinlog's: from there on the copy cannot keep the source's offsets"
        )
