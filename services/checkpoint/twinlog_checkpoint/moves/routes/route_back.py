"""The direction of a failback: from a flow's target back to its source."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from twinlog.kafka.ports import KafkaCluster
from twinlog.model import ClusterAlias, Flow, TopicPartition
from twinlog.moves.record import MoveKind, Moves
from twinlog.policy import ReplicationPolicy
from twinlog_checkpoint.flow.parts import FlowParts
from twinlog_checkpoint.groups.directory import TRANSLATABLE_TYPES
from twinlog_checkpoint.moves.routes.offset_router import OffsetRouter
from twinlog_checkpoint.moves.routes.route import (
    CopiedPartition,
    KnownPlace,
    copied_partitions,
    fenceable,
    other_rules_apply,
    unread,
)
from twinlog_checkpoint.moves.topic_backlog import TopicBacklog
from twinlog_checkpoint.translation.exact import LogSide


@dataclass(frozen=True, slots=True, kw_only=True)
class FailbackRoute:
    """From the flow's target back to its source.

    Progress on copies is translated back to the originals. Progress on the target's own topics is translated
    to their copies on the source, if a reverse flow writes them.
    """

    parts: FlowParts
    reverse: FlowParts | None
    """The parts of the flow in the other direction; None if the file does not have it."""
    unknown: str = ""
    """Why the flow in the other direction is not known; "" when it is."""

    @property
    def kind(self) -> MoveKind:
        return MoveKind.FAILBACK

    @property
    def flow(self) -> Flow:
        return self.parts.flow

    @property
    def from_alias(self) -> ClusterAlias:
        return self.parts.flow.target

    @property
    def to_alias(self) -> ClusterAlias:
        return self.parts.flow.source

    @property
    def here(self) -> LogSide:
        return self.parts.target_log

    @property
    def there(self) -> LogSide:
        return self.parts.source_log

    @property
    def from_cluster(self) -> KafkaCluster:
        return self.parts.target

    @property
    def to_cluster(self) -> KafkaCluster:
        return self.parts.source

    def blocker(self, *, from_reachable: bool) -> str | None:
        if not self.parts.checkpointer.rules_known:
            return unread(self.parts, "changed rules")
        # This process drains and fences by the rules of the reverse flow. Another one may own that flow: then
        # its checkpointer does not run here, but its rules and offset syncs are read here, too.
        for parts in (self.parts, *(() if self.reverse is None else (self.reverse,))):
            if parts.rules.problem:
                return other_rules_apply(parts)
            if not parts.syncs_are_read:
                return unread(parts, "offset syncs")
        return self.unknown or None

    async def refresh(self) -> None:
        if self.reverse is not None:
            await self.reverse.refresh()

    @property
    def policy(self) -> ReplicationPolicy:
        return (self.reverse or self.parts).entry.policy

    @property
    def reverse_flow(self) -> Flow | None:
        """The flow itself: it writes to the cluster that groups leave."""
        return self.parts.flow

    @property
    def copying_flow(self) -> Flow | None:
        return None if self.reverse is None else self.reverse.flow

    def is_copy(self, topic: str) -> bool:
        return self.parts.has_had_copy(topic)

    def may_be_fenced(self, topic: str, *, here: bool) -> bool:
        return fenceable(self.reverse if here else self.parts, topic)

    async def groups(self, moves: Moves) -> Collection[str]:
        """Those of the rules, and those that a failover moved before they left the rules."""
        listed = await self.parts.target.list_groups()
        there = moves.groups_on_target
        moved = moves.homes.keys() if there is None else there
        rules = self.parts.entry.groups
        return [
            group
            for group, kind in listed.items()
            if kind in TRANSLATABLE_TYPES and (group in moved or rules.should_replicate_group(group))
        ]

    async def only_here(self, groups: Collection[str], moves: Moves) -> Collection[str]:
        checkpointer = self.parts.checkpointer
        came = checkpointer.history.groups() | await checkpointer.groups.present()
        return set(groups) - came - moves.homes.keys()

    @property
    def unsupported(self) -> Mapping[str, str]:
        """Empty: a failback moves only groups that a failover moved."""
        return {}

    def is_own(self, group: str, partition: TopicPartition, next_offset: int) -> bool:
        """Always true: a failback also moves offsets that the failover committed."""
        return True

    def may_be_synced(self, group: str, partition: TopicPartition, next_offset: int) -> bool:
        return self.ways.may_be_synced(group, partition, next_offset)

    def wrote(
        self, group: str, to_partition: TopicPartition | None, offset: int | None, *, upstream: int
    ) -> bool:
        if self.reverse is None or to_partition is None:
            return False
        return self.reverse.history.wrote(group, to_partition, offset, upstream=upstream)

    def wrote_further(
        self, group: str, to_partition: TopicPartition | None, offset: int | None, *, upstream: int
    ) -> bool:
        if self.reverse is None or to_partition is None:
            return False
        history = self.reverse.history
        return history.wrote_further(group, to_partition, offset, upstream=upstream)

    @property
    def ways(self) -> OffsetRouter:
        return OffsetRouter(away=self.reverse, home=self.parts, home_first=True)

    async def written(self) -> Collection[CopiedPartition]:
        return [] if self.reverse is None else await copied_partitions(self.reverse)

    async def known_places(self) -> Collection[KnownPlace]:
        return []

    def last_seen_backlog(self) -> Collection[TopicBacklog]:
        return []
