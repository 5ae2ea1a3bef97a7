"""Carries out a planned restore: writes the mark, then each topic's records, and removes the mark at the
end."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from twinlog.errors import KafkaError
from twinlog.kafka.admin.compacted_topic import ensure_compacted_topic
from twinlog.kafka.ports import Introduce, LogWriter
from twinlog.model import TopicPartition
from twinlog.policy.internal_topics import HostedTopic
from twinlog.wire.murmur2 import partition_for_key
from twinlog_source.log.fact_records import control_key, fact_record
from twinlog_source.log.facts import JOURNAL, ClaimFact, ProducerFact, RestoreFact
from twinlog_source.log.internal_topics import InternalTopics
from twinlog_source.state.clusters import FlowClusters, all_records, partition_count, require_stopped
from twinlog_source.state.state_file import Role, StateRecord

_IN_FLIGHT = 500
_IMPORTER = "twinlog state import"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    role: Role
    topic: HostedTopic
    records: tuple[StateRecord, ...]
    """The records to write; none if the topic keeps its content."""
    kept: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreWriter:
    """Raises KafkaError, and StateError (FLOW_RUNS)."""

    clusters: FlowClusters
    import_id: str

    async def write(self, topics: Sequence[TopicPlan]) -> None:
        """After an error the mark stays."""
        clusters = self.clusters
        for each in topics:
            await self._make_topic(each)
        await InternalTopics(flow=clusters.flow, source=clusters.source, target=clusters.target).ensure()
        now_ms = clusters.clock.now_ms()
        mark = RestoreFact(import_id=self.import_id, at_ms=now_ms)
        claim = ClaimFact(instance=_IMPORTER, at_ms=now_ms)
        await self._write_facts(fact_record(clusters.flow.flow.source, each) for each in (mark, claim))
        # An owner that was elected meanwhile has read no positions, because there were none yet. It must not
        # copy without them.
        working = await clusters.owners()
        if working:
            await self._take_mark_off()
            require_stopped(clusters.flow.flow, working)
        for each in topics:
            await self._restore(each)
        await self._take_mark_off()

    async def _make_topic(self, plan: TopicPlan) -> None:
        """Called before anything is written: if a broker refuses the topic, nothing has changed."""
        if not plan.records or plan.role in (Role.POSITIONS, Role.OFFSET_SYNCS):
            return
        entry = self.clusters.entry
        factor = (
            entry.source.offset_storage.replication_factor
            if plan.role is Role.CONFIGSYNC
            else entry.checkpoint.topic_replication_factor
        )
        await ensure_compacted_topic(
            self.clusters.cluster_of(plan.topic),
            plan.topic.topic,
            replication_factor=factor,
            is_read_whole=plan.role is Role.CHECKPOINTS,
        )

    async def _restore(self, plan: TopicPlan) -> None:
        if not plan.records:
            return
        cluster = self.clusters.cluster_of(plan.topic)
        there = {(each.key, each.value) async for each in all_records(cluster, plan.topic.topic)}
        missing = [each for each in plan.records if (each.key, each.value) not in there]
        count = await partition_count(cluster, plan.topic.topic)
        introduce = await self._introduction(count) if plan.role is Role.POSITIONS else None
        async with cluster.writer(introduce=introduce) as writer:
            for start in range(0, len(missing), _IN_FLIGHT):
                try:
                    async with asyncio.TaskGroup() as group:
                        for record in missing[start : start + _IN_FLIGHT]:
                            group.create_task(
                                _append(writer, plan.topic.topic, count, record),
                                name=f"restore a record of {plan.topic.topic}",
                            )
                except* KafkaError as failures:
                    raise _first(failures) from None

    async def _introduction(self, count: int) -> Introduce:
        """The restored positions are the flow's own."""
        clusters = self.clusters
        alias, topic = clusters.flow.flow.source, clusters.topics()[Role.POSITIONS].topic
        source_id, target_id = await clusters.source.cluster_id(), await clusters.target.cluster_id()

        def introduce(producer_id: int) -> tuple[TopicPartition, bytes, bytes]:
            fact = ProducerFact(
                producer_id=producer_id,
                name=JOURNAL,
                cluster_id=target_id,
                source_cluster_id=source_id,
                at_ms=clusters.clock.now_ms(),
            )
            key, value = fact_record(alias, fact)
            return TopicPartition(topic, partition_for_key(key, count)), key, value

        return introduce

    async def _write_facts(self, pairs: Iterable[tuple[bytes, bytes | None]]) -> None:
        topic = self.clusters.topics()[Role.POSITIONS].topic
        count = await partition_count(self.clusters.target, topic)
        async with self.clusters.target.writer() as writer:
            for key, value in pairs:
                await writer.append(
                    TopicPartition(topic, partition_for_key(key, count)),
                    key=key,
                    value=value,
                    timestamp_ms=self.clusters.clock.now_ms(),
                )

    async def _take_mark_off(self) -> None:
        await self._write_facts([(control_key(self.clusters.flow.flow.source, "restore"), None)])


async def _append(writer: LogWriter, topic: str, count: int, record: StateRecord) -> None:
    number = partition_for_key(record.key, count) if record.key is not None else 0
    await writer.append(
        TopicPartition(topic, number), key=record.key, value=record.value, timestamp_ms=record.timestamp_ms
    )


def _first(failures: ExceptionGroup[KafkaError]) -> KafkaError:
    for failure in failures.exceptions:
        return failure if isinstance(failure, KafkaError) else _first(failure)
    raise AssertionError("an exception group is never empty")
