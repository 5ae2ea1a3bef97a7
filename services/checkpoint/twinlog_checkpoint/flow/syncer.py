"""The loop of sync.group.offsets: commits translated offsets for groups without members on the target.

It leaves groups alone that a failover has moved there: checkpoints may be older than what the failover has
committed, and the operator may since have put the group back on the target.
"""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from random import random

import structlog

from twinlog.errors import KafkaError, WireFormatError
from twinlog.kafka.ports import CommittedOffset, OffsetSpec
from twinlog.kafka.reasons import KafkaReason
from twinlog.model import TopicPartition
from twinlog.service.runtime import Backoff, retrying_loop
from twinlog.telemetry.logging import RepeatLimiter
from twinlog.wire import Checkpoint
from twinlog_checkpoint.flow.deletes import GroupDeleter
from twinlog_checkpoint.flow.parts import FlowParts
from twinlog_checkpoint.groups.checkpointer import wait_seconds
from twinlog_checkpoint.groups.progress import (
    WRITABLE_STATES,
    SyncHold,
    plan_group_sync,
    sync_hold,
)
from twinlog_checkpoint.journal import MoveJournal
from twinlog_checkpoint.side_by_side import TURN_GROUPS, each_at_once, in_turns
from twinlog_checkpoint.translation.log_sides import log_bounds

FIRST_PASS_SECONDS = 0.2
"""How often to check whether the checkpointer's first pass is done."""
GROUPS_AT_ONCE = 16
"""Groups whose offsets are committed at the same time: a coordinator takes one request per group."""

_log = structlog.stdlib.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class GroupSyncer:
    """The group offsets of one flow. It reads the groups on the target right before it writes, so decisions
    use fresh data."""

    parts: FlowParts
    deleter: GroupDeleter
    journal: MoveJournal
    _next_at: float = 0.0
    _woken: asyncio.Event = field(default_factory=asyncio.Event)
    _limiter: RepeatLimiter = field(default_factory=RepeatLimiter)

    async def run(self, stop: asyncio.Event) -> None:
        """Loop: commit offsets at an interval, until `stop`. May run again after another process owned the
        flow."""
        for table in (self.journal.table, self.deleter.record):
            table.distrust()
        try:
            await retrying_loop(
                f"group offsets {self.parts.flow}",
                self._tick,
                stop=stop,
                interval_seconds=self._due_in_seconds,
                backoff=Backoff(initial_seconds=0.5, max_seconds=30.0, random=random),
                clock=self.parts.checkpointer.clock,
                woken=self._woken,
            )
        finally:
            self._say_nothing_is_held()

    @property
    def _is_enabled(self) -> bool:
        entry = self.parts.entry
        return entry.settings.sync_group_offsets_enabled and not entry.is_stopped

    def _say_nothing_is_held(self) -> None:
        """This process does not commit or delete, so nothing that it knew is in force."""
        self.parts.checkpointer.table.on_hold(SyncHold())
        self.parts.checkpointer.table.on_deletions_held("", "")

    def _due_in_seconds(self) -> float:
        return (
            FIRST_PASS_SECONDS
            if self.parts.checkpointer.passes == 0
            else self._next_at - self.parts.checkpointer.clock.monotonic()
        )

    def look_again(self) -> None:
        """At once, not when the interval is over."""
        self._next_at = 0.0
        self._woken.set()

    async def _tick(self) -> None:
        now = self.parts.checkpointer.clock.monotonic()
        if now < self._next_at or self.parts.checkpointer.passes == 0:
            return
        await self.sync()
        if self._woken.is_set():
            return  # It has seen rules or a move as they were.
        ended = self.parts.checkpointer.clock.monotonic()
        self._next_at = ended + wait_seconds(
            self.parts.entry.settings.sync_group_offsets_interval_seconds,
            close=self.parts.checkpointer.close,
            took_seconds=ended - now,
        )

    async def sync(self) -> None:
        """Find the groups that are active on the target. If enabled, commit the offsets of the others, except
        of those that a failover has moved.

        Raises KafkaError when a cluster does not answer at all, or WireFormatError or KafkaError when the
        record of moves cannot be read; then nothing is committed.
        """
        present = self.parts.checkpointer.groups.groups
        translated = self.parts.checkpointer.history.groups() & present
        idle = await self._idle(translated)
        if not self._is_enabled:
            self._say_nothing_is_held()
            return
        begun = self.parts.moving.begun
        hold, placed = await self._read_hold(translated)
        idle = {group: state for group, state in idle.items() if not hold.covers(group)}
        current = await self.parts.target.group_offsets(idle) if idle else {}
        copies = {tp for group in idle for tp in self.parts.checkpointer.history.latest(group)}
        ranges = await log_bounds(self.parts.target, copies, OffsetSpec.LATEST)
        copy_ids = await self.parts.checkpointer.look_at_copies({tp.topic for tp in copies})
        plans: list[tuple[str, Mapping[TopicPartition, CommittedOffset]]] = []
        async for group, state in in_turns(sorted(idle.items()), most=TURN_GROUPS):
            held = current[group]
            if isinstance(held, KafkaError):
                self._warn(group, held)
                continue
            writes = plan_group_sync(
                desired={
                    partition: checkpoint
                    for partition, checkpoint in self.parts.checkpointer.history.latest(group).items()
                    if not self.parts.is_void(checkpoint)
                    and self._is_of(checkpoint, copy_ids)
                    and not self._was_put_back(checkpoint, placed.get(group, {}))
                },
                state_on_target=state,
                current=held,
                ranges=ranges,
                wrote=self.parts.checkpointer.history.wrote_before,
            )
            if writes:
                plans.append((group, writes))

        async def write(planned: tuple[str, Mapping[TopicPartition, CommittedOffset]]) -> None:
            # A move that began meanwhile may have committed other offsets than these: the next look decides.
            if self.parts.moving.begun == begun:
                await self._write(*planned)

        await each_at_once(plans, write, most=GROUPS_AT_ONCE, name="commit group offsets")
        if self.parts.entry.settings.sync_group_deletes_enabled:
            await self.deleter.follow()
        else:
            self.parts.checkpointer.table.on_deletions_held("", "")

    def _is_of(self, checkpoint: Checkpoint, copy_ids: Mapping[str, str]) -> bool:
        """Whether it is known to be of the topics with these ids. One that was read may be of a former topic:
        a group that has no offset on the source any more keeps the place that it has here."""
        copy_id = self.parts.checkpointer.history.copy_id(checkpoint)
        return copy_id is not None and copy_id == copy_ids.get(checkpoint.partition.topic)

    def _was_put_back(self, checkpoint: Checkpoint, placed: Mapping[TopicPartition, int]) -> bool:
        """Whether the group still stands on the source where a failback left it (`placed`)."""
        origin = self.parts.origin_of(checkpoint.partition)
        return origin is not None and placed.get(origin) == checkpoint.upstream_offset

    async def _read_hold(
        self, groups: Collection[str]
    ) -> tuple[SyncHold, Mapping[str, Mapping[TopicPartition, int]]]:
        """Read which of the groups a move has put in charge of their offsets on the target, and tell the
        table; and where a failback left groups on the source. Raises KafkaError, WireFormatError."""
        # A move that ends while the record is read may have committed more than the record says.
        running = self.parts.moving.locked()
        try:
            moves = await self.journal.load()
        except (KafkaError, WireFormatError) as error:
            why = f"the record of failovers cannot be read: {error}"
            self.parts.checkpointer.table.on_hold(SyncHold(groups=None, reason=error.reason, why=why), groups)
            raise
        hold = sync_hold(moves, running=running or self.parts.moving.locked())
        self.parts.checkpointer.table.on_hold(hold, {group for group in groups if hold.covers(group)})
        # A failback took these places from the target, so they are no progress on the source: the group's own
        # place on the target may lie before records that only the target has.
        return hold, {group: home.left_at for group, home in moves.moved_to(self.parts.flow.source).items()}

    async def _idle(self, groups: Collection[str]) -> dict[str, str]:
        """Return the groups without members on the target, with their states. The table is told about the
        others."""
        described = await self.parts.target.describe_groups(groups) if groups else {}
        idle: dict[str, str] = {}
        for group, description in described.items():
            if isinstance(description, KafkaError):
                if self._is_enabled:
                    self._warn(group, description)
            elif description.state in WRITABLE_STATES:
                idle[group] = description.state
                self.parts.checkpointer.table.on_idle(group)
            else:
                self.parts.checkpointer.table.on_active(group)
        return idle

    async def _write(self, group: str, writes: Mapping[TopicPartition, CommittedOffset]) -> None:
        results = await self.parts.target.alter_group_offsets(group, writes)
        refused = [error for error in results.values() if error is not None]
        if any(error.reason == KafkaReason.GROUP_ACTIVE for error in refused):
            self.parts.checkpointer.table.on_active(group)
        elif refused:
            self._warn(group, refused[0])
        written = {tp: writes[tp].next_offset for tp, error in results.items() if error is None}
        for partition, offset in written.items():
            checkpoint = self.parts.checkpointer.history.latest(group).get(partition)
            if checkpoint is not None:  # Otherwise the group left the source meanwhile and was removed.
                self.parts.checkpointer.history.on_written(checkpoint, offset)
        if written:
            self.parts.checkpointer.table.on_committed(group, written)
            _log.debug(
                "group_offsets_committed", flow=str(self.parts.flow), group=group, partitions=len(written)
            )

    def _warn(self, group: str, error: KafkaError) -> None:
        self.parts.checkpointer.instruments.failed(error.reason)
        left_out = self._limiter.admit((group, error.reason), now=self.parts.checkpointer.clock.monotonic())
        if left_out is not None:
            _log.warning(
                "group_offsets_not_committed",
                flow=str(self.parts.flow),
                group=group,
                reason=error.reason,
                message=str(error),
                left_out=left_out,
            )
