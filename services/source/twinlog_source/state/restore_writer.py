"""Carries out a planned restore: writes the mark, then each topic's records, and removes the mark at the
end."""

import asyncio
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from twinlog.errors import KafkaError, WireFormatError, first_of
from twinlog.kafka.admin.compacted_topic import ensure_compacted_topic
from twinlog.kafka.ports import Introduce, LogWriter
from twinlog.model import TopicPartition
from twinlog.policy.internal_topics import HostedTopic
from twinlog.wire import decode_checkpoint
from twinlog.wire.murmur2 import partition_for_key
from twinlog.wire.offset_sync import decode_offset_sync
from twinlog.wire.source_offset import decode_source_offset_key, encode_source_offset, source_offset_key
from twinlog_source.config import SourceFlow
from twinlog_source.log.fact_records import control_key, fact_record, parse_control
from twinlog_source.log.facts import (
    JOURNAL,
    MOST_SLOTS,
    ClaimFact,
    OwnerFact,
    ProducerFact,
    RestoreFact,
    ZeroFact,
)
from twinlog_source.log.gaps import parse_gap_identity
from twinlog_source.log.internal_topics import InternalTopics
from twinlog_source.state.export import FlowClusters, all_records, partition_count, require_stopped
from twinlog_source.state.judgement import RestoreOutcome, RestoreVerdict
from twinlog_source.state.state_file import ExportedFlow, StateRecord, TopicRole

# The records that a restore writes: those of the file, corrected by the verdicts. No I/O.

_NOT_RESTORED = frozenset({"claim", "proof", "restore"})
"""Facts of the positions topic that are derived, or belong to the import itself."""
_OF_A_POSITION = frozenset({"zero", "epochs"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredRecords:
    state: ExportedFlow
    """The file."""
    flow: SourceFlow
    verdicts: Mapping[TopicPartition, tuple[bool, RestoreVerdict]]
    """By source partition: whether its copy keeps the source's offsets, and where it continues."""
    gone: Collection[str]
    """Source topics that are not restored."""
    without_moves: bool
    now_ms: int

    def of(self, role: TopicRole) -> Iterator[StateRecord]:
        """The records of one topic, in the file's order."""
        if role is TopicRole.POSITIONS:
            yield from self._positions()
        elif role is not TopicRole.MOVES or not self.without_moves:
            policy, alias = self.flow.policy, self.flow.flow.source
            copies = {policy.format_remote_topic(alias, topic) for topic in self.gone}
            for record in self.state.of(role):
                if not _is_about(record, self.gone, copies):
                    yield _without_timers(record) if role is TopicRole.MOVES else record

    def _positions(self) -> Iterator[StateRecord]:
        flow, connector = self.flow, self.flow.settings.connector_name
        alias = flow.flow.source
        stays = {
            each
            for each, (preserved, verdict) in self.verdicts.items()
            if verdict.outcome is RestoreOutcome.AS_EXPORTED
            or (
                verdict.outcome is RestoreOutcome.DERIVED and preserved
            )  # The end of the copy is its position.
        }
        for record in self.state.of(TopicRole.POSITIONS):
            position = decode_source_offset_key(record.key, connector=connector)
            if position is not None:
                if position.partition in stays:
                    yield record
                continue
            if parse_gap_identity(alias, record.key) is not None:
                yield record
                continue
            fact = parse_control(alias, record.key, record.value)
            if fact is None or fact.kind in _NOT_RESTORED or fact.topic in self.gone:
                continue
            if fact.kind in _OF_A_POSITION:
                if TopicPartition(fact.topic or "", fact.partition or 0) in stays:
                    yield record
            elif isinstance(fact.fact, OwnerFact):
                slots = min(MOST_SLOTS, max(fact.fact.slots, flow.settings.max_slots or 0))
                owner = replace(fact.fact, slots=slots, left_at=(), left_at_rest=False)
                key, value = fact_record(alias, owner)
                yield replace(record, key=key, value=value)
            else:
                yield record
        for partition, (_, verdict) in self.verdicts.items():
            if verdict.position is None or partition in stays:
                continue
            if verdict.position:
                mark: tuple[bytes, bytes | None] = (
                    source_offset_key(alias, partition, connector=connector),
                    encode_source_offset(verdict.position),
                )
            else:
                mark = fact_record(alias, ZeroFact(partition=partition))
            yield StateRecord(role=TopicRole.POSITIONS, key=mark[0], value=mark[1], timestamp_ms=self.now_ms)


def _is_about(record: StateRecord, topics: Collection[str], copies: Collection[str]) -> bool:
    """Whether a record is about topics that are not restored, or about their copies."""
    try:
        if record.role is TopicRole.OFFSET_SYNCS:
            return decode_offset_sync(record.key, record.value).partition.topic in topics
        if record.role is TopicRole.CHECKPOINTS:
            return decode_checkpoint(record.key, record.value).partition.topic in copies
    except WireFormatError:
        return False
    return False


def _without_timers(record: StateRecord) -> StateRecord:
    """Remove since when groups are gone from the source: they may have returned since. The grace period
    begins again."""
    try:
        value = json.loads(record.value or b"")
    except ValueError:
        return record
    if not isinstance(value, dict) or "gone_ms" not in value:
        return record
    return replace(record, value=json.dumps({**value, "gone_ms": {}}, separators=(",", ":")).encode())


_IN_FLIGHT = 500
_IMPORTER = "twinlog state import"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    role: TopicRole
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
        if not plan.records or plan.role in (TopicRole.POSITIONS, TopicRole.OFFSET_SYNCS):
            return
        entry = self.clusters.entry
        factor = (
            entry.source.offset_storage.replication_factor
            if plan.role is TopicRole.CONFIGSYNC
            else entry.checkpoint.topic_replication_factor
        )
        await ensure_compacted_topic(
            self.clusters.cluster_of(plan.topic),
            plan.topic.topic,
            replication_factor=factor,
            is_read_whole=plan.role is TopicRole.CHECKPOINTS,
        )

    async def _restore(self, plan: TopicPlan) -> None:
        if not plan.records:
            return
        cluster = self.clusters.cluster_of(plan.topic)
        there = {(each.key, each.value) async for each in all_records(cluster, plan.topic.topic)}
        missing = [each for each in plan.records if (each.key, each.value) not in there]
        count = await partition_count(cluster, plan.topic.topic)
        introduce = await self._introduction(count) if plan.role is TopicRole.POSITIONS else None
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
                    raise first_of(failures) from None

    async def _introduction(self, count: int) -> Introduce:
        """The restored positions are the flow's own."""
        clusters = self.clusters
        alias, topic = clusters.flow.flow.source, clusters.topics()[TopicRole.POSITIONS].topic
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
        topic = self.clusters.topics()[TopicRole.POSITIONS].topic
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
