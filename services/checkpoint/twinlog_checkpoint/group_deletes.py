"""twinlog.sync.group.deletes.enabled: a group that was deleted on the source goes on the target as well.

Deleting offsets cannot be undone, so a group goes only when nothing on the target can be its own: it was
translated, is known to be gone on the source (whose topics are still there), has no members on the target,
has there no other offsets than those that were written for it, and was not moved by a failover.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import structlog

from twinlog.errors import KafkaError
from twinlog.filters import GroupFilter
from twinlog.kafka.ports import CommittedOffset, KafkaCluster
from twinlog.model import Flow, TopicPartition
from twinlog.offsets import CheckpointHistory
from twinlog.wire import Checkpoint
from twinlog_checkpoint.group_sync import LogRange
from twinlog_checkpoint.log_ranges import log_ranges
from twinlog_checkpoint.move_journal import MoveJournal
from twinlog_checkpoint.move_record import MoveState
from twinlog_checkpoint.moves import MoveKind

_log = structlog.stdlib.get_logger(__name__)


def may_go(
    *,
    state_on_source: str,
    state_on_target: str,
    checkpoints: Mapping[TopicPartition, Checkpoint],
    current: Mapping[TopicPartition, CommittedOffset],
    ranges: Mapping[TopicPartition, LogRange],
) -> bool:
    """Whether nothing of the group on the target is its own. Pure.

    `current` and `ranges` are the target's.
    """
    if state_on_source != "DEAD" or state_on_target != "EMPTY" or not current:
        return False
    return all(
        partition in checkpoints
        and partition in ranges
        and checkpoints[partition].downstream_offset <= ranges[partition].end
        and held.next_offset <= ranges[partition].begin(checkpoints[partition].downstream_offset)
        for partition, held in current.items()
    )


@dataclass(slots=True, kw_only=True)
class GroupDeleter:
    """One flow."""

    flow: Flow
    source: KafkaCluster
    target: KafkaCluster
    history: CheckpointHistory
    is_void: Callable[[Checkpoint], bool]
    """Whether the offset syncs contradict a checkpoint: what the group holds may be its own then."""
    journal: MoveJournal
    group_filter: Callable[[], GroupFilter]
    origin_of: Callable[[TopicPartition], TopicPartition | None]
    _settled: set[str] = field(default_factory=set)
    """Gone on both sides: not asked about again until they come back."""

    async def follow(self, present: Collection[str]) -> list[str]:
        """Delete what may go; `present`: the groups on the source. Raises KafkaError."""
        gone = {
            group
            for group in self.history.groups() - set(present)
            if self.group_filter().should_replicate_group(group)
        }
        self._settled &= gone
        gone -= self._settled
        if not gone:
            return []
        gone -= await self._moved(gone)
        on_source = await self._states(self.source, gone)
        on_target = await self._states(self.target, gone)
        self._settled |= {group for group in gone if on_source.get(group) == on_target.get(group) == "DEAD"}
        idle = {group for group in gone if on_source.get(group) == "DEAD" and on_target.get(group) == "EMPTY"}
        idle &= await self._with_topics(idle)
        current = await self.target.group_offsets(idle) if idle else {}
        ranges = await log_ranges(
            self.target, {partition for group in idle for partition in self.history.latest(group)}
        )
        deletable = []
        for group in sorted(idle):
            held = current[group]
            if not isinstance(held, KafkaError) and may_go(
                state_on_source=on_source[group],
                state_on_target=on_target[group],
                checkpoints={
                    partition: checkpoint
                    for partition, checkpoint in self.history.latest(group).items()
                    if not self.is_void(checkpoint)
                },
                current=held,
                ranges=ranges,
            ):
                deletable.append(group)
        return await self._delete(deletable)

    async def _delete(self, groups: list[str]) -> list[str]:
        results = await self.target.delete_groups(groups) if groups else {}
        deleted = []
        for group, error in sorted(results.items()):
            if error is None:
                deleted.append(group)
                _log.info("group_deleted", flow=str(self.flow), group=group)
            else:
                _log.warning(
                    "group_not_deleted",
                    flow=str(self.flow),
                    group=group,
                    reason=error.reason,
                    message=str(error),
                )
        return deleted

    async def _moved(self, groups: set[str]) -> set[str]:
        """Those that a failover has given to the target, and all while a move is under way, or one back has
        left some of them there."""
        last = await self.journal.load()
        if last is None or (last.state is MoveState.DONE and not last.on_target):
            return set()
        # A run that was given up may have moved groups before it was cut.
        under_way = last.state is MoveState.RUNNING or last.aborted or last.kind is MoveKind.FAILBACK
        return groups if under_way else groups & set(last.moved)

    async def _with_topics(self, groups: set[str]) -> set[str]:
        """Those with a topic that the source still has: a source that lost everything deletes nothing."""
        if not groups:
            return set()
        topics = set(await self.source.list_topics())
        return {
            group
            for group in groups
            if any(
                origin is not None and origin.topic in topics
                for origin in map(self.origin_of, self.history.latest(group))
            )
        }

    @staticmethod
    async def _states(cluster: KafkaCluster, groups: set[str]) -> dict[str, str]:
        described = await cluster.describe_groups(groups) if groups else {}
        return {
            group: answer.state for group, answer in described.items() if not isinstance(answer, KafkaError)
        }
