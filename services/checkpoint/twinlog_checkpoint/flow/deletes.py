"""twinlog.sync.group.deletes.enabled: deletes groups on the target that were deleted on the source.

Deleting offsets cannot be undone. So a group is deleted only if all of its offsets on the target are known to
come from Twinlog: it was translated, does not exist on the source any more (whose topics still exist), has no
members on the target, and has no other offsets there. Deletion waits for a grace period and is limited to a
few groups an hour. No group is deleted while a failover is in effect, nor after the source lost all its
groups or was replaced by another cluster.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

import structlog

from twinlog.errors import KafkaError
from twinlog.kafka.ports import CommittedOffset, KafkaCluster, OffsetSpec
from twinlog.model import TopicPartition
from twinlog.telemetry.logging import RepeatLimiter
from twinlog.wire import Checkpoint
from twinlog_checkpoint.flow.parts import FlowParts
from twinlog_checkpoint.journal import MOST_GONE, MoveJournal, SourceRecord, SourceTable
from twinlog_checkpoint.translation.log_sides import log_bounds
from twinlog_checkpoint.translation.translation import LogBounds

# When groups that are gone from the source may be deleted on the target: after a grace period, a few at a
# time, and not while the source itself may be lost. Pure.

SOURCE_LOST, SOURCE_REPLACED, FAILED_OVER = "SOURCE_LOST", "SOURCE_REPLACED", "FAILED_OVER"
HOUR_SECONDS = 3600.0


def source_now(
    known: SourceRecord, *, cluster_id: str, missing: Collection[str], present: Collection[str]
) -> SourceRecord:
    """Return the record of the source after this check.

    `missing` are translated groups that exist on the target only, `present` the groups of the source. The
    source counts as lost when it has none of the groups it had. A loss stays recorded until no group is
    missing: until each one is back on the source or was deleted on the target by hand.
    """
    if not missing:
        return SourceRecord(cluster_id=cluster_id or known.cluster_id)
    held = known.held
    if not held and known.cluster_id and cluster_id and known.cluster_id != cluster_id:
        held = SOURCE_REPLACED
    if not held and not present:
        held = SOURCE_LOST
    return SourceRecord(cluster_id=known.cluster_id or cluster_id, held=held)


@dataclass(slots=True)
class DeletePace:
    """The grace period and the hourly limit. Takes monotonic seconds."""

    _gone_since: dict[str, float] = field(default_factory=dict)
    _deleted_at: deque[float] = field(default_factory=deque)

    def see(self, gone: Collection[str], *, now: float, since: Mapping[str, float] | None = None) -> None:
        """Record the groups that are missing now. `since` tells since when, as seen by earlier processes."""
        before = {**(since or {}), **self._gone_since}
        self._gone_since = {group: before.get(group, now) for group in gone}

    def due(self, groups: Collection[str], grace_seconds: float, *, now: float) -> list[str]:
        """The groups whose grace period is over; those that are gone longest come first."""
        return sorted(
            (group for group in groups if now - self._gone_since.get(group, now) >= grace_seconds),
            key=lambda group: (self._gone_since.get(group, now), group),
        )

    def budget(self, max_per_hour: int, *, now: float) -> int:
        """How many groups may be deleted now."""
        while self._deleted_at and now - self._deleted_at[0] >= HOUR_SECONDS:
            self._deleted_at.popleft()
        return max(0, max_per_hour - len(self._deleted_at))

    def on_deleted(self, count: int, *, now: float) -> None:
        self._deleted_at.extend([now] * count)


_NAMED = 5
_REMEDY = "they are kept on {target} until they exist on {source} again, or you delete them"
_WHY = {
    SOURCE_LOST: "{source} no longer has any of the translated groups: " + _REMEDY,
    SOURCE_REPLACED: "{source} has another cluster id than before: " + _REMEDY,
    FAILED_OVER: (
        "a failover moves groups to {target} or has moved them: `twinlog failback run '{flow}'` moves"
        " them back"
    ),
}

_log = structlog.stdlib.get_logger(__name__)


def may_go(
    *,
    state_on_source: str,
    state_on_target: str,
    checkpoints: Mapping[TopicPartition, Checkpoint],
    current: Mapping[TopicPartition, CommittedOffset],
    ranges: Mapping[TopicPartition, LogBounds],
    wrote: Callable[[Checkpoint, int], bool],
) -> bool:
    """Whether all offsets of the group on the target came from Twinlog. Pure.

    `current` and `ranges` describe the target. `wrote` tells whether an offset there was written for the
    group before a checkpoint. A new process may not know all that were; then the group is kept.
    """
    if state_on_source != "DEAD" or state_on_target != "EMPTY" or not current:
        return False

    def is_ours(partition: TopicPartition, offset: int) -> bool:
        checkpoint, log = checkpoints.get(partition), ranges.get(partition)
        if checkpoint is None or log is None or checkpoint.downstream_offset > log.end:
            return False
        begin = log.begin(checkpoint.downstream_offset)
        return offset == begin or (offset < begin and wrote(checkpoint, offset))

    return all(is_ours(partition, held.next_offset) for partition, held in current.items())


@dataclass(slots=True, kw_only=True)
class GroupDeleter:
    """Deletes the groups of one flow."""

    parts: FlowParts
    journal: MoveJournal
    record: SourceTable
    pace: DeletePace = field(default_factory=DeletePace)
    _limiter: RepeatLimiter = field(default_factory=lambda: RepeatLimiter(interval_seconds=3600.0))
    _settled: set[str] = field(default_factory=set)
    """Groups that are gone from both clusters. They are not checked again until they come back."""

    async def follow(self) -> list[str]:
        """Delete the groups that may be deleted. Raises KafkaError, WireFormatError."""
        known = await self._known_source()
        if not self.parts.checkpointer.groups.is_listed:
            return []  # Those of changed rules would count as gone.
        present = self.parts.checkpointer.groups.groups
        now = self.parts.checkpointer.clock.monotonic()
        wanted = {
            group
            for group in self.parts.checkpointer.history.groups()
            if self.parts.entry.groups.takes(group)
        }
        gone = wanted - set(present)
        self._settled &= gone
        gone -= self._settled
        on_source = await self._states(self.parts.source, gone)
        on_target = await self._states(self.parts.target, gone)
        self._settled |= {group for group in gone if on_source.get(group) == on_target.get(group) == "DEAD"}
        gone -= self._settled
        now_ms = self.parts.checkpointer.clock.now_ms()
        since = {group: now - max(0, now_ms - at) / 1000 for group, at in known.gone_ms.items()}
        self.pace.see(gone, now=now, since=since)
        seen = source_now(
            known,
            cluster_id=await self.parts.source.cluster_id() if gone or known.held else "",
            missing=gone,
            present=wanted & set(present),
        )
        gone_ms = {group: known.gone_ms.get(group, now_ms) for group in sorted(gone)}
        seen = replace(seen, gone_ms=dict(sorted(gone_ms.items(), key=lambda each: each[1])[:MOST_GONE]))
        if seen != known:
            await self.record.put({self.parts.flow: seen})
        if seen.held:
            self._tell_held(seen.held, gone)
            return []
        idle = {group for group in gone if on_source.get(group) == "DEAD" and on_target.get(group) == "EMPTY"}
        settings = self.parts.entry.settings
        grace_seconds = settings.sync_group_deletes_grace_seconds
        due = set(self.pace.due(idle, grace_seconds, now=now))
        if due and await self._failed_over():
            self._tell_held(FAILED_OVER, due)
            return []
        self.parts.checkpointer.table.on_deletions_held("", "")
        due &= await self._with_topics(due)
        deletable = await self._without_own_offsets(due, on_source, on_target)
        budget = self.pace.budget(settings.sync_group_deletes_max_per_hour, now=now)
        deleted = await self._delete(self.pace.due(deletable, grace_seconds, now=now)[:budget])
        self.pace.on_deleted(len(deleted), now=now)
        return deleted

    async def _known_source(self) -> SourceRecord:
        """Return the recorded source. The first call records the present one."""
        found = (await self.record.load()).get(self.parts.flow)
        if found is None:
            found = SourceRecord(cluster_id=await self.parts.source.cluster_id())
            await self.record.put({self.parts.flow: found})
        await self.record.write_again()
        return found

    async def _without_own_offsets(
        self, groups: set[str], on_source: Mapping[str, str], on_target: Mapping[str, str]
    ) -> list[str]:
        current = await self.parts.target.group_offsets(groups) if groups else {}
        ranges = await log_bounds(
            self.parts.target,
            {partition for group in groups for partition in self.parts.checkpointer.history.latest(group)},
            OffsetSpec.LATEST,
        )
        deletable = []
        for group in sorted(groups):
            held = current[group]
            if not isinstance(held, KafkaError) and may_go(
                state_on_source=on_source[group],
                state_on_target=on_target[group],
                checkpoints={
                    partition: checkpoint
                    for partition, checkpoint in self.parts.checkpointer.history.latest(group).items()
                    if not self.parts.is_void(checkpoint)
                },
                current=held,
                ranges=ranges,
                wrote=self.parts.checkpointer.history.wrote_before,
            ):
                deletable.append(group)
        return deletable

    def _tell_held(self, reason: str, groups: Collection[str]) -> None:
        message = _WHY[reason].format(
            source=self.parts.flow.source, target=self.parts.flow.target, flow=self.parts.flow
        )
        counted = "1 group" if len(groups) == 1 else f"{len(groups)} groups"
        self.parts.checkpointer.table.on_deletions_held(
            reason, f"{counted} gone from {self.parts.flow.source}: {message}"
        )
        left_out = self._limiter.admit(reason, now=self.parts.checkpointer.clock.monotonic())
        if left_out is not None:
            _log.warning(
                "group_deletions_held",
                flow=str(self.parts.flow),
                reason=reason,
                message=message,
                groups=sorted(groups)[:_NAMED],
                count=len(groups),
                left_out=left_out,
            )

    async def _delete(self, groups: list[str]) -> list[str]:
        results = await self.parts.target.delete_groups(groups) if groups else {}
        deleted = []
        for group, error in sorted(results.items()):
            if error is None:
                deleted.append(group)
                _log.info("group_deleted", flow=str(self.parts.flow), group=group)
            else:
                _log.warning(
                    "group_not_deleted",
                    flow=str(self.parts.flow),
                    group=group,
                    reason=error.reason,
                    message=str(error),
                )
        return deleted

    async def _failed_over(self) -> bool:
        """Whether groups are being moved, or work on the target after a failover: the missing ones may be
        among them."""
        moves = await self.journal.load()
        return moves.interrupted is not None or moves.on_target

    async def _with_topics(self, groups: set[str]) -> set[str]:
        """Keep the groups with a topic that the source still has: a source that lost its topics causes no
        deletion."""
        if not groups:
            return set()
        topics = set(await self.parts.source.list_topics())
        return {
            group
            for group in groups
            if any(
                origin is not None and origin.topic in topics
                for origin in map(self.parts.origin_of, self.parts.checkpointer.history.latest(group))
            )
        }

    @staticmethod
    async def _states(cluster: KafkaCluster, groups: set[str]) -> dict[str, str]:
        described = await cluster.describe_groups(groups) if groups else {}
        return {
            group: answer.state for group, answer in described.items() if not isinstance(answer, KafkaError)
        }
