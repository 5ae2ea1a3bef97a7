"""Ends preserved copies that cannot keep the source's offsets any more: each where it comes to rest, and only
once nothing can lengthen it.

Invariant: a copy that cannot keep the offsets is not written any more before its exact position is known.

Deletes the filled offsets before the first record of a copy, so that its log starts where the copy
does.

A preserved copy as a task begins it: by what the driver knows about it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import structlog

from twinlog.batches import OutgoingBatch
from twinlog.clock import Clock
from twinlog.errors import KafkaError
from twinlog.model import TopicPartition
from twinlog.service.waiting import wait_for_any
from twinlog_source.partitions.orders import TaskAssignment
from twinlog_source.preserved.append_log import AppendLog
from twinlog_source.preserved.writer import PreservedWriter
from twinlog_source.task.partition import PartitionCopy
from twinlog_source.task.reading.throttle import ReadShares
from twinlog_source.task.writing.positions_topic import PreservedPositions
from twinlog_source.task.writing.preserved_copy import PreservedCopy

RETRY_SECONDS = 60.0
LOOK_SECONDS = 1.0
"""How soon to check whether something is due."""

log = structlog.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class FilledBeginnings:
    """Deletes once in each task, because an earlier task may have left it undone."""

    delete_before: Callable[
        [Mapping[TopicPartition, int]], Awaitable[Mapping[TopicPartition, int | KafkaError]]
    ]
    """Let logs of the target start at these offsets. Raises KafkaError."""
    clock: Clock
    _asked: set[TopicPartition] = field(default_factory=set)
    _left: dict[TopicPartition, int] = field(default_factory=dict)
    _retry_at: dict[TopicPartition, float] = field(default_factory=dict)
    _work: asyncio.Event = field(default_factory=asyncio.Event)

    def delete(self, target: TopicPartition, before: int) -> None:
        """Delete soon. Of each partition only the first call counts."""
        if target not in self._asked:
            self._asked.add(target)
            self._left[target] = before
            self._work.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Loop until `stop`."""
        while not stop.is_set():
            self._work.clear()
            now = self.clock.monotonic()
            due = {
                target: before
                for target, before in self._left.items()
                if self._retry_at.get(target, 0.0) <= now
            }
            for target, refused in (await self._delete(due)).items() if due else ():
                if refused is None:
                    del self._left[target]
                    continue
                self._retry_at[target] = now + RETRY_SECONDS
                log.warning(
                    "filled_offsets_not_deleted",
                    partition=str(target),
                    reason=refused.reason,
                    error=str(refused),
                )
            await wait_for_any(stop, self._work, seconds=LOOK_SECONDS if self._left else None)

    async def _delete(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, KafkaError | None]:
        try:
            outcome = await self.delete_before(before)
        except KafkaError as error:
            return dict.fromkeys(before, error)
        return {target: each if isinstance(each, KafkaError) else None for target, each in outcome.items()}


IN_FLIGHT_BYTES = 8 << 20
"""The limit for one partition: 150 ms of latency at 50 MB/s. The writer bounds the sum."""
PACK_BELOW_BYTES = 64 << 10


def preserved_copy_of(
    assignment: TaskAssignment,
    copy: PartitionCopy,
    *,
    now: float,
    fill_after_seconds: float,
    shares: ReadShares,
    settle: Callable[[PartitionCopy, OutgoingBatch, int], None],
    is_stored: Callable[[], bool],
    fill_later: Callable[[PreservedCopy], None],
) -> PreservedCopy:
    """The copy of a partition whose end on the target is not known yet. `now` is in monotonic seconds;
    `fill_after_seconds` is how long a task that lost its partitions may still write."""
    terms = assignment.preserved
    assert terms is not None
    appends: AppendLog[OutgoingBatch] = AppendLog.starting_at(
        assignment.position,
        max_in_flight_bytes=IN_FLIGHT_BYTES,
        pack_below_bytes=min(PACK_BELOW_BYTES, assignment.max_message_bytes // 2),
        leader_epoch=terms.leader_epoch,
    )

    def no_longer_written(former_task_seconds: float | None) -> float:
        """When a task that lost its partition this long ago has stopped writing; None = there is none."""
        if former_task_seconds is None:
            return now
        return now + max(0.0, fill_after_seconds - former_task_seconds)

    return PreservedCopy(
        copy=copy,
        target=TopicPartition(assignment.target_topic, copy.partition.partition),
        appends=appends,
        topic_id=assignment.target_topic_id,
        common_until=terms.common_until,
        skip_from=terms.skip_from,
        skip_to=terms.skip_to,
        since=terms.since,
        required=terms.required,
        may_fill_at=no_longer_written(terms.skip_former_task_seconds),
        alone_at=no_longer_written(terms.former_task_seconds),
        shares=shares,
        giving_up=(terms.end_reason, terms.end_message) if terms.end_reason else None,
        settle=settle,
        is_stored=is_stored,
        fill_later=fill_later,
    )


ENDING_LOOK_SECONDS = 0.02
"""How long after a batch can no longer come the end is read again."""


@dataclass(slots=True, kw_only=True)
class CopyEndings:
    writer: PreservedWriter
    positions: PreservedPositions
    clock: Clock
    is_draining: Callable[[], bool]
    """The task ends: nothing that would take time is begun."""
    is_over: Callable[[], bool]
    """An end would no longer get on the log: the next task ends the copy."""
    ended: Callable[[], None]
    """Called for each copy that has ended."""
    _waiting: set[PreservedCopy] = field(default_factory=set)
    """Those that end once nothing can lengthen them any more."""

    def give_up(self, taken: PreservedCopy, *, reason: str, message: str) -> None:
        """End the copy where it comes to rest: it does not keep the offsets from there on."""
        if taken.giving_up is not None:
            return
        taken.giving_up = reason, message
        taken.copy.is_full = True
        if taken.is_end_known:
            taken.forget_queued(self.clock.monotonic())
        self.end_at_rest(taken)

    def end_at_rest(self, taken: PreservedCopy) -> None:
        """End a copy that is given up, if it has come to rest."""
        if taken.giving_up is None or taken.copy.needs_translation or self.is_over():
            return
        if not taken.is_at_rest:
            return
        if self.seconds_before_still(taken) > 0:
            self.check_later(taken)
        elif not taken.appends.is_end_read:
            # The next owner recognises by the leader epoch of the end whether the copy loses records.
            self.check(taken)
        else:
            (reason, message), position = taken.giving_up, taken.copy.committed
            # A range that is left out and not filled yet lies behind the end of the copy.
            until = min(position, taken.appends.acknowledged)
            self.end(taken, position, until=until, reason=reason, message=message)

    def end(self, taken: PreservedCopy, position: int, *, until: int, reason: str, message: str) -> None:
        """Write nothing more to a copy at rest: it has the source's offsets below `until`, and what follows
        from `position` on cannot have them."""
        self.writer.remove(taken)
        taken.give_up(position, until=until, reason=reason, message=message)
        self.positions.store_end(taken, until=until, reason=reason)
        self.ended()

    def check(self, taken: PreservedCopy) -> None:
        """Read the end of a copy at rest again."""
        taken.appends.doubt()
        self.writer.wake(taken)

    def seconds_before_still(self, taken: PreservedCopy) -> float:
        """How long a batch of the task before, or of this one whose answer was lost, may still lengthen the
        copy."""
        answered_at = taken.lost_at + self.writer.settings.request_timeout_seconds
        return max(0.0, max(taken.alone_at, answered_at) - self.clock.monotonic())

    def check_later(self, taken: PreservedCopy) -> None:
        """Read the end of a copy at rest again once nothing can lengthen it any more: what comes late would
        be copied again behind its end."""
        if taken in self._waiting:
            return
        self._waiting.add(taken)

        def end() -> None:
            self._waiting.discard(taken)
            if not taken.copy.needs_translation and not self.is_draining():
                self.check(taken)

        asyncio.get_running_loop().call_later(self.seconds_before_still(taken) + ENDING_LOOK_SECONDS, end)
