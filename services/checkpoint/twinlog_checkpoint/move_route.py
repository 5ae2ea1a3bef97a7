"""The two ways groups move along a flow: from its source to its target, and back."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from twinlog.errors import KafkaError
from twinlog.kafka.ports import KafkaCluster
from twinlog.model import ClusterAlias, Flow, TopicPartition
from twinlog_checkpoint.exact import LogSide
from twinlog_checkpoint.flow_parts import FlowParts
from twinlog_checkpoint.history import Pairs
from twinlog_checkpoint.moves import MoveKind
from twinlog_checkpoint.translation import SourcePosition, Translation, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedPartition:
    """A partition that is written where the groups come from, and its copy where they move to."""

    here: TopicPartition
    there: TopicPartition
    pairs: Pairs | None
    """None when nothing of it has been copied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownPlace:
    """A group's translated offset as its last checkpoint says it: all there is when its cluster is gone."""

    group: str
    to_partition: TopicPartition
    from_offset: int
    translation: Translation
    metadata: str


class Route(Protocol):
    """One direction."""

    @property
    def kind(self) -> MoveKind: ...

    @property
    def flow(self) -> Flow: ...

    @property
    def from_alias(self) -> ClusterAlias: ...

    @property
    def to_alias(self) -> ClusterAlias: ...

    @property
    def here(self) -> LogSide: ...

    @property
    def there(self) -> LogSide: ...

    @property
    def from_cluster(self) -> KafkaCluster: ...

    @property
    def to_cluster(self) -> KafkaCluster: ...

    @property
    def ready(self) -> bool:
        """The offset syncs are read."""
        ...

    async def groups(self) -> Collection[str]:
        """Groups that can move, present now. Raises KafkaError."""
        ...

    def destination(self, partition: TopicPartition) -> TopicPartition | None:
        """Where a group's partition goes on; None when it cannot."""
        ...

    async def translate(
        self, positions: Collection[SourcePosition]
    ) -> Mapping[SourcePosition, Translation]: ...

    async def written(self) -> Collection[CopiedPartition]:
        """What is written here and copied there: the backlog is of these. Raises KafkaError."""
        ...

    def known_places(self) -> Collection[KnownPlace]:
        """What checkpoints say, without asking the cluster that is left."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverRoute:
    """From the flow's source to its target."""

    parts: FlowParts

    @property
    def kind(self) -> MoveKind:
        return MoveKind.FAILOVER

    @property
    def flow(self) -> Flow:
        return self.parts.flow

    @property
    def from_alias(self) -> ClusterAlias:
        return self.parts.flow.source

    @property
    def to_alias(self) -> ClusterAlias:
        return self.parts.flow.target

    @property
    def here(self) -> LogSide:
        return self.parts.source_log

    @property
    def there(self) -> LogSide:
        return self.parts.target_log

    @property
    def from_cluster(self) -> KafkaCluster:
        return self.parts.source

    @property
    def to_cluster(self) -> KafkaCluster:
        return self.parts.target

    @property
    def ready(self) -> bool:
        return self.parts.syncs_are_read

    async def groups(self) -> Collection[str]:
        return await self.parts.checkpointer.groups.present()

    def destination(self, partition: TopicPartition) -> TopicPartition | None:
        if self.parts.checkpointer.topics.refusal(partition.topic) is not None:
            return None
        return self.parts.copy_of(partition)

    async def translate(self, positions: Collection[SourcePosition]) -> Mapping[SourcePosition, Translation]:
        return await self.parts.forward.translate(positions)

    async def written(self) -> Collection[CopiedPartition]:
        return await copied_partitions(self.parts)

    def known_places(self) -> Collection[KnownPlace]:
        checkpointer = self.parts.checkpointer
        verdicts = {(row.group, row.target): row.translation for row in checkpointer.table.rows()}
        places: list[KnownPlace] = []
        for group in sorted(checkpointer.history.groups()):
            for partition, checkpoint in sorted(checkpointer.history.latest(group).items()):
                row = verdicts.get((group, partition))
                same = row is not None and row.downstream_offset == checkpoint.downstream_offset
                places.append(
                    KnownPlace(
                        group=group,
                        to_partition=partition,
                        from_offset=checkpoint.upstream_offset,
                        translation=row
                        if same and row is not None
                        else Translation(
                            verdict=Verdict.FLOOR,
                            downstream_offset=checkpoint.downstream_offset,
                            message="as the last checkpoint says",
                        ),
                        metadata=checkpoint.metadata,
                    )
                )
        return places


@dataclass(frozen=True, slots=True, kw_only=True)
class FailbackRoute:
    """From the flow's target back to its source.

    Progress on copies goes back to the originals. Progress on the target's own topics goes to their copies on
    the source, which the reverse flow makes, if there is one.
    """

    parts: FlowParts
    reverse: FlowParts | None
    """Of the flow in the other direction; None when this process has none."""

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

    @property
    def ready(self) -> bool:
        return self.parts.syncs_are_read and (self.reverse is None or self.reverse.syncs_are_read)

    async def groups(self) -> Collection[str]:
        listed = await self.parts.target.list_groups()
        return [group for group in listed if self.parts.entry.groups.should_replicate_group(group)]

    def destination(self, partition: TopicPartition) -> TopicPartition | None:
        origin = self.parts.origin_of(partition)
        if origin is not None:
            return origin
        if self.reverse is None or self.reverse.checkpointer.topics.refusal(partition.topic) is not None:
            return None
        return self.reverse.copy_of(partition)

    async def translate(self, positions: Collection[SourcePosition]) -> Mapping[SourcePosition, Translation]:
        home = [position for position in positions if self.parts.origin_of(position.partition) is not None]
        away = [position for position in positions if self.parts.origin_of(position.partition) is None]
        answers = dict(await self.parts.back.translate(home))
        if away and self.reverse is not None:
            answers.update(await self.reverse.forward.translate(away))
        return answers

    async def written(self) -> Collection[CopiedPartition]:
        return [] if self.reverse is None else await copied_partitions(self.reverse)

    def known_places(self) -> Collection[KnownPlace]:
        return []


async def copied_partitions(parts: FlowParts) -> list[CopiedPartition]:
    """Every partition of the flow's topics on its source, without heartbeats, sorted. Raises KafkaError."""
    topics = [
        topic
        for topic in await parts.source.list_topics()
        if parts.checkpointer.topics.refusal(topic) is None
        and parts.checkpointer.topics.why_never_copied(topic) is None
        and not parts.entry.policy.is_heartbeats_topic(topic)
    ]
    described = await parts.source.describe_topics(topics)
    found: list[CopiedPartition] = []
    for topic in sorted(topics):
        description = described[topic]
        if isinstance(description, KafkaError):
            continue
        for number in range(description.partition_count):
            here = TopicPartition(topic, number)
            found.append(CopiedPartition(here=here, there=parts.copy_of(here), pairs=parts.pairs(here)))
    return found
