"""The topics that the source service owns besides the copies: positions, offset syncs, dead letters."""

from dataclasses import dataclass

from twinlog.errors import FatalKafkaError, KafkaError, required
from twinlog.kafka.admin.compacted_topic import TopicMaking, compact_soon, ensure_compacted_topic
from twinlog.kafka.ports import KafkaCluster, TopicAdmin, TopicDescription
from twinlog.kafka.reasons import KafkaReason
from twinlog.policy.internal_topics import source_offsets_topic
from twinlog.transforms.expressions import DEAD_LETTERS
from twinlog_source.config import SourceFlow


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalTopics:
    """Creates the internal topics of a flow that do not exist, and keeps the positions topic small: every
    process reads it whole at its start."""

    flow: SourceFlow
    source: KafkaCluster
    target: KafkaCluster

    async def ensure(self) -> TopicDescription:
        """Create what is missing; return the positions topic.

        Raises KafkaError; if the replication factor is the cause, the message names the key to change.
        """
        positions = await self._ensure_positions()
        await self.ensure_syncs()
        dead_letters = self.flow.expressions.dead_letters if self.flow.expressions is not None else ""
        if dead_letters:
            await _ensure(
                self.target,
                self.flow.flow.target,
                dead_letters,
                key=DEAD_LETTERS,
                replication_factor=-1,
                partition_count=1,
                configs={"cleanup.policy": "delete"},
            )
        return positions

    async def positions(self) -> TopicDescription:
        """The positions topic, created if it does not exist. Raises as `ensure`."""
        described = await self._described()
        if not isinstance(described, KafkaError):
            return described
        if described.reason != KafkaReason.TOPIC_UNKNOWN:
            raise described
        return await self._ensure_positions()

    async def _ensure_positions(self) -> TopicDescription:
        storage = self.flow.settings.offset_storage
        made = await _ensure(
            self.target,
            self.flow.flow.target,
            storage.topic,
            key="offset.storage.replication.factor",
            replication_factor=storage.replication_factor,
            partition_count=storage.partitions,
            configs=dict(storage.topic_configs),
            is_read_whole=True,
        )
        # Another name is that of a Connect cluster's topic, which has other connectors' positions, too.
        if made is TopicMaking.EXISTED and storage.topic == source_offsets_topic(self.flow.flow.source):
            await compact_soon(self.target, storage.topic, leave=storage.topic_configs)
        return required(await self._described())

    async def _described(self) -> TopicDescription | KafkaError:
        topic = self.flow.settings.offset_storage.topic
        return (await self.target.describe_topics([topic]))[topic]

    async def ensure_syncs(self) -> None:
        """Create the topic of offset syncs if it does not exist. Raises as `ensure`."""
        syncs, settings = self.flow.offset_syncs, self.flow.settings.offset_syncs
        if syncs is None:
            return
        on_source = syncs.cluster == self.flow.flow.source
        await _ensure(
            self.source if on_source else self.target,
            syncs.cluster,
            syncs.topic,
            key="offset-syncs.topic.replication.factor",
            replication_factor=settings.replication_factor,
            partition_count=1,
            configs={"min.compaction.lag.ms": str(int(settings.min_compaction_lag_seconds * 1000))},
        )


async def _ensure(
    admin: TopicAdmin,
    alias: str,
    topic: str,
    *,
    key: str,
    replication_factor: int,
    partition_count: int,
    configs: dict[str, str],
    is_read_whole: bool = False,
) -> TopicMaking:
    try:
        return await ensure_compacted_topic(
            admin,
            topic,
            replication_factor=replication_factor,
            partition_count=partition_count,
            configs=configs,
            is_read_whole=is_read_whole,
        )
    except KafkaError as error:
        if error.reason != KafkaReason.REPLICATION_FACTOR_INVALID:
            raise
        brokers = len((await admin.presence()).brokers)
        raise FatalKafkaError(
            f"cluster {alias}: cannot create {topic} with {key}={replication_factor}:"
            f" it has {brokers} broker(s); set {key} to at most {brokers}",
            reason=error.reason,
            metadata={"cluster": alias, "topic": topic, "key": key, "brokers": str(brokers)},
            code=error.code,
        ) from error
