"""The way of a move: a failover goes from a flow's source to its target, a failback back."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from twinlog.errors import KafkaError
from twinlog.kafka.ports import CommittedOffset, KafkaCluster
from twinlog.model import ClusterAlias, Flow, TopicPartition
from twinlog.moves.record import MoveKind, Moves
from twinlog.policy import ReplicationPolicy
from twinlog.wire import Checkpoint
from twinlog.write_blocks import holder_name
from twinlog_checkpoint.flow.parts import FlowParts
from twinlog_checkpoint.groups.directory import (
    TRANSLATABLE_TYPES,
    CopyIdentity,
    FoundGroups,
    OffsetsOf,
    found_groups,
    placed,
)
from twinlog_checkpoint.moves.group_place import GroupPlace
from twinlog_checkpoint.moves.routes.offset_router import OffsetRouter
from twinlog_checkpoint.moves.topic_backlog import TopicBacklog
from twinlog_checkpoint.translation.exact import LogSide
from twinlog_checkpoint.translation.history import Pairs
from twinlog_checkpoint.translation.log_sides import is_absent
from twinlog_checkpoint.translation.translation import Translation, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedPartition:
    """A partition on the cluster that groups leave, and its copy on the other one."""

    here: TopicPartition
    there: TopicPartition
    pairs: Pairs | None
    """The known pairs; None when nothing is copied yet."""
    identity: CopyIdentity = CopyIdentity.UNKNOWN
    """Whether the known offsets belong to these two logs."""
    is_both_ways: bool = False
    """What was copied here from there is among its records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One direction of a flow's moves.

    Progress on topics of the cluster that groups leave is translated to their copies, which the flow *away*
    from it writes. Progress on copies there, which the flow *home* wrote, is translated back to the
    originals. A failover goes away by the flow itself, and a failback home.
    """

    kind: MoveKind
    parts: FlowParts
    reverse: FlowParts | None = None
    """The parts of the flow in the other direction; None if the file does not have it."""
    unknown: str = ""
    """Why the flow in the other direction is not known; "" when it is."""

    @property
    def away(self) -> FlowParts | None:
        """The flow from the cluster that groups leave; None when the file has none."""
        return self.parts if self._is_failover else self.reverse

    @property
    def home(self) -> FlowParts | None:
        """The flow that writes to the cluster that groups leave; None when the file has none."""
        return self.reverse if self._is_failover else self.parts

    @property
    def home_flow(self) -> Flow | None:
        return None if self.home is None else self.home.flow

    @property
    def _is_failover(self) -> bool:
        return self.kind is MoveKind.FAILOVER

    @property
    def flow(self) -> Flow:
        return self.parts.flow

    @property
    def from_alias(self) -> ClusterAlias:
        return self.flow.source if self._is_failover else self.flow.target

    @property
    def to_alias(self) -> ClusterAlias:
        return self.flow.target if self._is_failover else self.flow.source

    def changed(self, moved: Iterable[tuple[TopicPartition, TopicPartition]]) -> Collection[str]:
        """The topics of the flow's source whose records transforms change or drop; `moved`: partitions here
        and there."""
        origins = {(here if self._is_failover else there).topic for here, there in moved}
        return [topic for topic in origins if self.parts.entry.transforms.changes_records(topic)]

    @property
    def here(self) -> LogSide:
        return self.parts.source_log if self._is_failover else self.parts.target_log

    @property
    def there(self) -> LogSide:
        return self.parts.target_log if self._is_failover else self.parts.source_log

    @property
    def from_cluster(self) -> KafkaCluster:
        return self.parts.source if self._is_failover else self.parts.target

    @property
    def to_cluster(self) -> KafkaCluster:
        return self.parts.target if self._is_failover else self.parts.source

    @property
    def policy(self) -> ReplicationPolicy:
        """The policy of the flow away."""
        return (self.away or self.parts).entry.policy

    @property
    def ways(self) -> OffsetRouter:
        """Maps offsets of the cluster that groups leave to the other one."""
        return OffsetRouter(away=self.away, home=self.home, home_first=not self._is_failover)

    def blocker(self, *, from_reachable: bool) -> str | None:
        """Why offsets cannot be translated yet; None when they can."""
        if not self.parts.checkpointer.rules_known:
            return unread(self.parts, "changed rules")
        # A failback drains and fences by the rules of the reverse flow. Another process may own that flow:
        # then its checkpointer does not run here, but its rules and offset syncs are read here, too.
        needed = [self.parts]
        if not self._is_failover and self.reverse is not None:
            needed.append(self.reverse)
        for parts in needed:
            if parts.rules.problem:
                return other_rules_apply(parts)
            if self._is_failover and not from_reachable:
                return None if parts.checkpointer.restored else unread(parts, "checkpoints")
            if not parts.syncs_are_read:
                return unread(parts, "offset syncs")
        if not self.parts.checkpointer.rules_back_known:
            return unread(self.parts, "changed rules of the flow back")
        return self.unknown or None

    async def refresh(self) -> None:
        """Read what other processes have written for the flow in the other direction. Raises KafkaError."""
        if self.reverse is not None:
            await self.reverse.refresh()

    async def holder(self) -> str:
        """The name under which this flow's moves hold fences. Raises KafkaError."""
        return holder_name(self.flow, await self.parts.target.cluster_id())

    def may_be_fenced(self, topic: str, *, here: bool) -> bool:
        """Whether a topic of the cluster that groups leave (`here`), or of the other one, is or was the
        flow's. Only fences on such topics are Twinlog's."""
        parts = self.away if here else self.home
        return parts is not None and parts.has_had(topic)

    def is_copy(self, topic: str) -> bool:
        """Whether a topic of the flow's target is a copy that the flow writes, or wrote. Only grants on such
        topics are Twinlog's."""
        return self.parts.has_had_copy(topic)

    async def groups(self, moves: Moves) -> FoundGroups:
        """The groups that can move now: for a failover those of the source; for a failback those of the
        rules, and those that a failover moved before they left the rules."""
        checkpointer = self.parts.checkpointer
        if self._is_failover:
            return await checkpointer.groups.present(checkpointer.history.groups(), moved=moves.homes)
        there = moves.groups_on_target
        moved = moves.homes.keys() if there is None else there
        rules, target = self.parts.entry.groups, self.parts.target

        async def listed() -> Collection[str]:
            return [
                group
                for group, kind in (await target.list_groups()).items()
                if kind in TRANSLATABLE_TYPES and (group in moved or rules.takes(group))
            ]

        synced = filter(rules.takes, checkpointer.history.groups())
        return await found_groups(self.offsets_of, listed, {*moved, *synced}, moved=moves.homes)

    @property
    def offsets_of(self) -> OffsetsOf:
        """Of groups on the cluster that they leave."""
        return (
            self.parts.checkpointer.groups.offsets_of
            if self._is_failover
            else self.parts.target.group_offsets
        )

    async def only_here(self, groups: Collection[str], moves: Moves) -> FoundGroups:
        """Those of `groups` that the other cluster never had: no move brought them here. A failback moves
        them only if they are named."""
        if self._is_failover:
            return FoundGroups(groups=())
        checkpointer = self.parts.checkpointer
        found = await checkpointer.groups.present(())
        came = checkpointer.history.groups() | set(found.groups)
        return FoundGroups(groups=set(groups) - came - moves.homes.keys(), problem=found.problem)

    @property
    def unsupported(self) -> Mapping[str, str]:
        """Id and type of the groups that cannot be translated, as of the last call of `groups`. A failback
        moves only groups that a failover moved."""
        return self.parts.checkpointer.groups.unsupported if self._is_failover else {}

    @property
    def without_offsets(self) -> Collection[str]:
        """Groups that had no offset to move when the cluster that they leave was last read."""
        return self.parts.checkpointer.groups.without_offsets if self._is_failover else ()

    def with_routes(
        self, held: Mapping[TopicPartition, CommittedOffset]
    ) -> Mapping[TopicPartition, CommittedOffset]:
        """A group's offsets on the cluster that it leaves, also for the routes that records take from
        there."""
        if not self._is_failover:
            return held
        routes = self.parts.checkpointer.topics.routes()
        return {partition: offset for partition, _, offset in placed(held, routes)}

    def is_own(self, group: str, partition: TopicPartition, next_offset: int) -> bool:
        """Whether a move takes this offset of the group, on the cluster that it leaves, into account. A
        failback also moves offsets that the failover committed."""
        return not self._is_failover or self.ways.is_own(group, partition, next_offset)

    def may_be_synced(self, group: str, partition: TopicPartition, next_offset: int) -> bool:
        """Whether sync.group.offsets may have committed this offset, on the cluster that the group leaves:
        then it is no progress of the group there."""
        if self._is_failover:
            return not self.ways.is_own(group, partition, next_offset)
        return self.ways.may_be_synced(group, partition, next_offset)

    def wrote(
        self, group: str, to_partition: TopicPartition | None, offset: int | None, *, upstream: int
    ) -> bool:
        """Whether a flow committed `offset` for the group there when the group had read no further than
        `upstream`; then a lower translation proves the offset wrong."""
        if self.away is None or to_partition is None:
            return False
        return self.away.history.wrote(group, to_partition, offset, upstream=upstream)

    def wrote_further(
        self, group: str, to_partition: TopicPartition | None, offset: int | None, *, upstream: int
    ) -> bool:
        """Whether a flow committed `offset` for the group there, and only when the group had read further
        than `upstream`: it was put back since."""
        if self.away is None or to_partition is None:
            return False
        return self.away.history.wrote_further(group, to_partition, offset, upstream=upstream)

    def last_known(self, group: str, to_partition: TopicPartition | None) -> int | None:
        """Where the last translation, or else the last checkpoint, puts a group there; None where there is
        none. While a cluster is away a new owner has no checkpoints yet."""
        if self.away is None or to_partition is None:
            return None
        checkpoint = self.away.history.latest(group).get(to_partition)
        if checkpoint is not None and self.away.is_void(checkpoint):
            return None
        known = self.away.checkpointer.table.last_translation(group, to_partition) or checkpoint
        return None if known is None else known.downstream_offset

    async def written(self) -> Collection[CopiedPartition]:
        """The partitions that are copied from the cluster that groups leave; the backlog is measured on
        these. Raises KafkaError."""
        return [] if self.away is None else await copied_partitions(self.away)

    async def known_places(self) -> Collection[GroupPlace]:
        """The offsets from checkpoints, without a request to the cluster that groups leave; none for a
        failback. Raises KafkaError."""
        if not self._is_failover:
            return []
        checkpointer = self.parts.checkpointer
        await self.parts.shared.look()
        await checkpointer.look_at_copies(
            {to.topic for group in checkpointer.history.groups() for to in checkpointer.history.latest(group)}
        )
        return [
            GroupPlace(
                group=group,
                from_partition=self.parts.origin_of(partition) or partition,
                to_partition=partition,
                from_offset=checkpoint.upstream_offset,
                translation=self._known_translation(checkpoint),
                metadata=checkpoint.metadata,
            )
            for group in sorted(checkpointer.history.groups())
            if self.parts.entry.groups.takes(group)
            for partition, checkpoint in sorted(checkpointer.history.latest(group).items())
            if not self.parts.is_void(checkpoint)
        ]

    async def last_places(self, moves: Moves) -> Collection[GroupPlace]:
        """Where the groups stood last on the cluster that they leave: for a failback where failovers left
        them, or else where their checkpoints are. Raises KafkaError."""
        if self._is_failover:
            return await self.known_places()
        history = self.parts.checkpointer.history
        left = {
            (group, partition): checkpoint.downstream_offset
            for group in history.groups()
            for partition, checkpoint in history.latest(group).items()
        } | {
            (group, partition): offset
            for group, home in moves.homes.items()
            for partition, offset in home.left_at.items()
            if home.where == self.from_alias
        }
        return [
            GroupPlace(
                group=group,
                from_partition=partition,
                to_partition=to_partition,
                from_offset=offset,
                translation=Translation(verdict=Verdict.NOT_READY, downstream_offset=None),
            )
            for (group, partition), offset in sorted(left.items())
            if (to_partition := self.ways.destination(partition)) is not None
        ]

    def _known_translation(self, checkpoint: Checkpoint) -> Translation:
        """Return the verdict of the checkpoint if this process wrote it; it stays valid."""
        known = self.parts.checkpointer.table.last_translation(checkpoint.group, checkpoint.partition)
        if known is not None and known.downstream_offset == checkpoint.downstream_offset:
            return known
        return Translation(
            verdict=Verdict.FLOOR,
            downstream_offset=checkpoint.downstream_offset,
            message="from the last checkpoint",
        )

    def last_seen_backlog(self) -> Collection[TopicBacklog]:
        """What may be missing on the other cluster, as far as this process saw the logs before their cluster
        went down; nothing for a failback."""
        if not self._is_failover:
            return []
        ends = {
            row.source: row.upstream_offset + row.source_lag
            for row in self.parts.checkpointer.table.rows()
            if row.source_lag is not None and self.parts.copies(row.source.topic)
        }
        return [_last_seen(self.parts, partition, end) for partition, end in sorted(ends.items())]


def other_rules_apply(parts: FlowParts) -> str:
    """Why other rules than the stored ones may apply, by which a move could leave out a topic or a group."""
    return f"flow {parts.flow}: {parts.rules.problem}"


def unread(parts: FlowParts, what: str) -> str:
    why = parts.checkpointer.tail.problem or parts.blocker
    return f"flow {parts.flow}: the {what} have not been read yet{f': {why}' if why else ''}"


def _last_seen(parts: FlowParts, partition: TopicPartition, end: int) -> TopicBacklog:
    """The newest offset sync lies before the end of the copy, so at most this much is missing."""
    pairs = parts.pairs(partition)
    newest = None if pairs is None else pairs.newest()
    copied_to = None if newest is None else newest.upstream + 1
    if copied_to is None:
        message = f"its log ended at {end} when it was last read; none of its records is known to be copied"
    else:
        missing = max(0, end - copied_to)
        of_that = "all of these records are copied"
        if missing:
            of_that = f"at most {missing} {'record is' if missing == 1 else 'records are'} missing"
        message = f"its log ended at {end} when it was last read: {of_that}"
    return TopicBacklog(
        partition=partition, end_offset=end, records_not_copied=None, copied_to=copied_to, message=message
    )


async def copied_partitions(parts: FlowParts) -> list[CopiedPartition]:
    """Return every partition of the flow's topics on its source, without heartbeats, sorted. Raises
    KafkaError."""
    topics = [
        topic
        for topic in await parts.source.list_topics()
        if parts.copies(topic) and not parts.entry.policy.is_heartbeats_topic(topic)
    ]
    described = await parts.source.describe_topics(topics)
    copies = {topic: parts.copy_of(TopicPartition(topic, 0)).topic for topic in topics}
    copied = await parts.target.describe_topics(copies.values())
    found: list[CopiedPartition] = []
    for topic in sorted(topics):
        description, copy = described[topic], copied[copies[topic]]
        if isinstance(description, KafkaError):
            if is_absent(description):
                continue
            raise description
        identity = parts.checkpointer.topics.identity(
            topic,
            source_id=description.topic_id,
            target_id="" if isinstance(copy, KafkaError) else copy.topic_id,
        )
        for number in range(description.partition_count):
            here = TopicPartition(topic, number)
            found.append(
                CopiedPartition(
                    here=here,
                    there=parts.copy_of(here),
                    pairs=parts.pairs(here),
                    identity=identity,
                    is_both_ways=parts.checkpointer.is_both_ways(here),
                )
            )
    return found
