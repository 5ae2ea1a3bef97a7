"""`twinlog state import`: puts a flow's exported state back where there is none.

What is on the log says what was; where copies really end is looked up, and a partition of which that cannot
be told is refused (`judgement`). A mark is written first and taken off last: while it is there no process
copies the flow, so an import that was cut off is never taken for a whole one. To import the same file again
completes it.

| of the file | becomes |
|---|---|
| positions | as exported, or derived from both logs |
| topics, kinds of copies, their ends, the writer's identity, gaps, pauses, limits | as exported |
| leader epochs of what was copied | as exported, with their position; else left out |
| who claimed the flow | the import: whoever copied before is displaced |
| how many slots were ever used | as exported, or what the file allows if that is more |
| what the standing proof knows | left out: it is proven again |
| rules and registry, moves, checkpoints, offset syncs | as exported, where the topic is empty |
"""

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

from twinlog.config import AutoOffsetReset
from twinlog.errors import KafkaError, StateError, WireFormatError
from twinlog.kafka.admin.compacted_topic import ensure_compacted_topic
from twinlog.kafka.ports import LogWriter, OffsetSpec
from twinlog.model import TopicPartition
from twinlog.policy.internal_topics import HostedTopic
from twinlog.selection_configured import topic_selector
from twinlog.wire import decode_checkpoint
from twinlog.wire.murmur2 import partition_for_key
from twinlog.wire.offset_sync import decode_offset_sync
from twinlog.wire.source_offset import (
    decode_source_offset_key,
    encode_source_offset,
    source_offset_key,
)
from twinlog_source.log.fact_records import control_key, fact_record, parse_control
from twinlog_source.log.facts import MOST_SLOTS, ClaimFact, OwnerFact, RestoreFact, ZeroFact
from twinlog_source.log.gaps import parse_gap_identity
from twinlog_source.log.internal_topics import InternalTopics
from twinlog_source.state.clusters import (
    FlowClusters,
    all_records,
    newest,
    partition_count,
    require_stopped,
)
from twinlog_source.state.export import of_flow, settled_ends, topic_ids
from twinlog_source.state.judgement import LogsNow, Outcome, Verdict, judge, judge_new, not_derived
from twinlog_source.state.state_file import CopyLine, FlowState, Role, StateRecord
from twinlog_source.state.walk import Reached, Walk, walk

_IN_FLIGHT = 500
_WALKS_AT_ONCE = 8
_NOT_RESTORED = frozenset({"claim", "proof", "restore"})
"""Facts of the positions topic that are derived, or of the import itself."""
_OF_A_POSITION = frozenset({"zero", "epochs"})
_RULES_KEY = b'["rules"]'
_IMPORTER = "twinlog state import"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    role: Role
    topic: HostedTopic
    records: tuple[StateRecord, ...]
    """To be written; none where the topic keeps what it has."""
    kept: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPlan:
    """What an import does, or why it does nothing."""

    verdicts: Mapping[TopicPartition, tuple[CopyLine, Verdict]]
    topics: tuple[TopicPlan, ...]

    @property
    def refused(self) -> list[tuple[CopyLine, Verdict]]:
        return [each for each in self.verdicts.values() if each[1].outcome is Outcome.REFUSED]


@dataclass(frozen=True, slots=True, kw_only=True)
class StateImport:
    """`plan`, then `carry_out` of that plan. Both raise KafkaError, and StateError for what must not be."""

    clusters: FlowClusters
    state: FlowState
    allow_repeats: bool = False
    without_moves: bool = False

    async def plan(self) -> ImportPlan:
        """Changes nothing. Raises StateError: FLOW_RUNS, OTHER_CLUSTER, STATE_PRESENT, MOVE_UNFINISHED."""
        await self._require_the_clusters_of_the_file()
        require_stopped(self.clusters.flow.flow, await self.clusters.owners())
        is_continued = await self._require_no_other_state()
        verdicts = await self._verdicts()
        gone = {line.topic for line, verdict in verdicts.values() if verdict.outcome is Outcome.LEFT_OUT}
        plans = []
        for role, topic in self.clusters.topics().items():
            records = tuple(self._records(role, verdicts, gone))
            if role is Role.POSITIONS:
                plans.append(TopicPlan(role=role, topic=topic, records=records))
                continue
            there = await all_records(self.clusters.cluster_of(topic), topic.topic)
            kept = bool(there) and not is_continued
            if role is Role.MOVES and not kept:
                self._require_finished_moves(records)
            plans.append(TopicPlan(role=role, topic=topic, records=() if kept else records, kept=kept))
        return ImportPlan(verdicts=verdicts, topics=tuple(plans))

    async def carry_out(self, plan: ImportPlan) -> None:
        """Restore. After an error the mark stays, and the import of the same file completes it."""
        clusters = self.clusters
        for each in plan.topics:
            await self._make_topic(each)
        await InternalTopics(flow=clusters.flow, source=clusters.source, target=clusters.target).ensure()
        now_ms = clusters.clock.now_ms()
        mark = RestoreFact(import_id=self.state.import_id, at_ms=now_ms)
        claim = ClaimFact(instance=_IMPORTER, at_ms=now_ms)
        await self._write_facts(fact_record(clusters.flow.flow.source, each) for each in (mark, claim))
        # Whoever was elected meanwhile has read no positions: there were none yet. It must not copy by that.
        working = await clusters.owners()
        if working:
            await self._take_mark_off()
            require_stopped(clusters.flow.flow, working)
        for each in plan.topics:
            await self._restore(each)
        await self._take_mark_off()

    async def _require_the_clusters_of_the_file(self) -> None:
        header, clusters = self.state.header, self.clusters
        if header.flow != str(clusters.flow.flow):
            raise StateError(
                f"the file is of flow {header.flow}, not of {clusters.flow.flow}", reason="OTHER_CLUSTER"
            )
        sides = (
            (clusters.flow.flow.source, clusters.source, header.source_cluster_id),
            (clusters.flow.flow.target, clusters.target, header.target_cluster_id),
        )
        for alias, cluster, expected in sides:
            found = await cluster.cluster_id()
            if found != expected:
                raise StateError(
                    f"cluster {alias} is {found}; the file is of {expected}: its offsets mean nothing here",
                    reason="OTHER_CLUSTER",
                    metadata={"cluster": alias},
                )

    async def _require_no_other_state(self) -> bool:
        """Whether an import of this file was cut off here. Raises StateError (STATE_PRESENT)."""
        flow, topic = self.clusters.flow, self.clusters.topics()[Role.POSITIONS]
        alias = flow.flow.source
        there = newest(await all_records(self.clusters.target, topic.topic))
        ours = [each for each in there if of_flow(each.key, alias, flow.settings.connector_name)]
        facts = [parse_control(alias, each.key, each.value) for each in ours]
        mark = next((each.fact for each in facts if each is not None and each.kind == "restore"), None)
        if isinstance(mark, RestoreFact) and mark.import_id == self.state.import_id:
            return True
        # Somebody who was started without state may have claimed the flow; that is no progress.
        progress = [
            each
            for each, fact in zip(ours, facts, strict=True)
            if fact is None or fact.kind not in ("claim", "owner")
        ]
        if progress:
            raise StateError(
                f"{topic.topic} holds state of {flow.flow} already ({len(progress)} records): it is not"
                " overwritten. Where it is worth less than the file, delete that topic first",
                reason="STATE_PRESENT",
                metadata={"topic": topic.topic},
            )
        return False

    def _require_finished_moves(self, records: Sequence[StateRecord]) -> None:
        for record in records:
            try:
                name, state = (
                    json.loads(record.key or b"[]")[0],
                    json.loads(record.value or b"{}").get("state"),
                )
            except (ValueError, IndexError, AttributeError, KeyError):
                continue
            if name == "TwinlogMove" and state == "RUNNING":
                raise StateError(
                    "a move of groups was under way during the export: to continue it now could set groups"
                    " back. Give --without-moves, and look for write blocks that it left (kafka-acls --list)",
                    reason="MOVE_UNFINISHED",
                )

    async def _verdicts(self) -> dict[TopicPartition, tuple[CopyLine, Verdict]]:
        known = {line.source: line for line in self.state.copies}
        new = await self._unknown_copies(known)
        lines = [*known.values(), *new]
        now = await self._logs_now(lines)
        earliest = self.clusters.flow.settings.auto_offset_reset is AutoOffsetReset.EARLIEST
        verdicts: dict[TopicPartition, tuple[CopyLine, Verdict]] = {}
        walks: list[tuple[CopyLine, Walk]] = []
        for line in lines:
            here = now[line.source]
            found: Verdict | Walk | None
            if line.source in known:
                found = judge(line, here, begins_at_earliest=earliest)
            else:
                found = judge_new(line, here)
            if isinstance(found, Walk):
                walks.append((line, found))
            elif found is not None:
                if found.reason == "POSITION_NOT_DERIVABLE":
                    found = not_derived(line, found.message, allow_repeats=self.allow_repeats)
                verdicts[line.source] = line, found
        await self._walk_all(walks, verdicts)
        return dict(sorted(verdicts.items()))

    async def _unknown_copies(self, known: Mapping[TopicPartition, CopyLine]) -> list[CopyLine]:
        """Partitions that the flow selects and the export does not know: they may have been copied since."""
        clusters, policy = self.clusters, self.clusters.flow.policy
        selector, alias = topic_selector(clusters.entry), clusters.flow.flow.source
        on_target = set(await clusters.target.list_topics())
        may_select_more = policy.tracks_topic_sources and await self._has_changed_rules()
        topics = {
            topic: copy
            for topic in await clusters.source.list_topics()
            if (copy := policy.format_remote_topic(alias, topic)) in on_target
            and (selector.selects(topic) or (may_select_more and not policy.is_internal_topic(topic)))
        }
        described = await clusters.source.describe_topics(topics) if topics else {}
        counts = {
            topic: 0 if isinstance(found, KafkaError) else found.partition_count
            for topic, found in sorted(described.items())
        }
        return [
            CopyLine(
                topic=topic,
                partition=number,
                position=0,
                target_topic=topics[topic],
                source_topic_id="",
                target_topic_id="",
                preserved=False,
                anchor_position=None,
                anchor_end=None,
                target_end=None,
            )
            for topic, count in counts.items()
            for number in range(count)
            if TopicPartition(topic, number) not in known
        ]

    async def _has_changed_rules(self) -> bool:
        """Whether rules were changed while the flow ran: they may select more topics than the file."""
        topic = self.clusters.topics()[Role.CONFIGSYNC]
        there = await all_records(self.clusters.cluster_of(topic), topic.topic)
        stored = [(each.key, each.value) for each in self.state.of(Role.CONFIGSYNC)]
        stored += [(each.key, each.value) for each in newest(there)]
        return any(key == _RULES_KEY and not _is_reset(value) for key, value in stored)

    async def _logs_now(self, lines: Sequence[CopyLine]) -> dict[TopicPartition, LogsNow]:
        clusters = self.clusters
        copies, sources = [line.copy for line in lines], [line.source for line in lines]
        last = OffsetSpec.LAST_STABLE if clusters.flow.settings.read_committed else OffsetSpec.LATEST
        source_ids = await topic_ids(clusters.source, {line.topic for line in lines})
        target_ids = await topic_ids(clusters.target, {line.target_topic for line in lines})
        if not lines:
            return {}
        starts = await clusters.source.list_offsets(OffsetSpec.EARLIEST, sources)
        ends = await clusters.source.list_offsets(last, sources)
        copy_starts = await clusters.target.list_offsets(OffsetSpec.EARLIEST, copies)
        copy_ends = await clusters.target.list_offsets(OffsetSpec.LATEST, copies)
        settled = await settled_ends(clusters.target, copies)
        now = {}
        for line in lines:
            end, start = copy_ends[line.copy], copy_starts[line.copy]
            for answer in (end, start):
                if isinstance(answer, KafkaError) and answer.retriable and answer.reason != "TOPIC_UNKNOWN":
                    raise answer
            is_there = isinstance(end, int) and isinstance(start, int)
            now[line.source] = LogsNow(
                source_topic_id=source_ids.get(line.topic, ""),
                source_start=_number(starts[line.source]),
                source_end=_number(ends[line.source]),
                target_topic_id=target_ids.get(line.target_topic) if is_there else None,
                target_start=_number(start),
                target_end=_number(end),
                target_is_settled=line.copy in settled,
            )
        return now

    async def _walk_all(
        self,
        walks: Sequence[tuple[CopyLine, Walk]],
        verdicts: dict[TopicPartition, tuple[CopyLine, Verdict]],
    ) -> None:
        clusters, waiting = self.clusters, iter(walks)
        async with AsyncExitStack() as stack:
            committed = clusters.flow.settings.read_committed

            async def worker() -> None:
                # One of each: a reader answers one question at a time.
                source = await stack.enter_async_context(clusters.source.reader(read_committed=committed))
                target = await stack.enter_async_context(clusters.target.reader(read_committed=True))
                for line, way in waiting:
                    found = await walk(way, source, target)
                    verdicts[line.source] = line, self._verdict_of(line, found)

            async with asyncio.TaskGroup() as group:
                for number in range(min(_WALKS_AT_ONCE, len(walks))):
                    group.create_task(worker(), name=f"compare copies {number}")

    def _verdict_of(self, line: CopyLine, found: object) -> Verdict:
        if isinstance(found, Reached):
            return Verdict(
                outcome=Outcome.DERIVED,
                position=found.position,
                message=f"{found.records} records were copied after what the file says",
            )
        return not_derived(line, getattr(found, "why", ""), allow_repeats=self.allow_repeats)

    def _records(
        self,
        role: Role,
        verdicts: Mapping[TopicPartition, tuple[CopyLine, Verdict]],
        gone: set[str],
    ) -> Iterator[StateRecord]:
        if role is Role.POSITIONS:
            yield from self._position_records(verdicts, gone)
        elif role is not Role.MOVES or not self.without_moves:
            policy, alias = self.clusters.flow.policy, self.clusters.flow.flow.source
            copies = {policy.format_remote_topic(alias, topic) for topic in gone}
            for record in self.state.of(role):
                if not _is_about(record, gone, copies):
                    yield _without_timers(record) if role is Role.MOVES else record

    def _position_records(
        self, verdicts: Mapping[TopicPartition, tuple[CopyLine, Verdict]], gone: set[str]
    ) -> Iterator[StateRecord]:
        flow, connector = self.clusters.flow, self.clusters.flow.settings.connector_name
        alias = flow.flow.source
        stays = {
            each
            for each, (line, verdict) in verdicts.items()
            if verdict.outcome is Outcome.AS_EXPORTED
            or (verdict.outcome is Outcome.DERIVED and line.preserved)  # the end of its copy is its position
        }
        for record in self.state.of(Role.POSITIONS):
            position = decode_source_offset_key(record.key, connector=connector)
            if position is not None:
                if position.partition in stays:
                    yield record
                continue
            if parse_gap_identity(alias, record.key) is not None:
                yield record
                continue
            fact = parse_control(alias, record.key, record.value)
            if fact is None or fact.kind in _NOT_RESTORED or fact.topic in gone:
                continue
            if fact.kind in _OF_A_POSITION:
                if TopicPartition(fact.topic or "", fact.partition or 0) in stays:
                    yield record
            elif isinstance(fact.fact, OwnerFact):
                slots = min(MOST_SLOTS, max(fact.fact.slots, flow.settings.max_slots or 0))
                key, value = fact_record(alias, replace(fact.fact, slots=slots))
                yield replace(record, key=key, value=value)
            else:
                yield record
        now_ms = self.clusters.clock.now_ms()
        for partition, (_, verdict) in verdicts.items():
            if verdict.position is None or partition in stays:
                continue
            if verdict.position:
                mark: tuple[bytes, bytes | None] = (
                    source_offset_key(alias, partition, connector=connector),
                    encode_source_offset(verdict.position),
                )
            else:
                mark = fact_record(alias, ZeroFact(partition=partition))
            yield StateRecord(role=Role.POSITIONS, key=mark[0], value=mark[1], timestamp_ms=now_ms)

    async def _make_topic(self, plan: TopicPlan) -> None:
        """Before anything is written: a broker that refuses it leaves all as it was."""
        if not plan.records or plan.role in (Role.POSITIONS, Role.OFFSET_SYNCS):
            return
        entry = self.clusters.entry
        factor = (
            entry.source.offset_storage.replication_factor
            if plan.role is Role.CONFIGSYNC
            else entry.checkpoint.topic_replication_factor
        )
        await ensure_compacted_topic(
            self.clusters.cluster_of(plan.topic), plan.topic.topic, replication_factor=factor
        )

    async def _restore(self, plan: TopicPlan) -> None:
        if not plan.records:
            return
        cluster = self.clusters.cluster_of(plan.topic)
        there = {(each.key, each.value) for each in await all_records(cluster, plan.topic.topic)}
        missing = [each for each in plan.records if (each.key, each.value) not in there]
        count = await partition_count(cluster, plan.topic.topic)
        async with cluster.writer() as writer:
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


def _is_about(record: StateRecord, topics: set[str], copies: set[str]) -> bool:
    """Whether a record speaks of topics that are not restored, or of their copies."""
    try:
        if record.role is Role.OFFSET_SYNCS:
            return decode_offset_sync(record.key, record.value).partition.topic in topics
        if record.role is Role.CHECKPOINTS:
            return decode_checkpoint(record.key, record.value).partition.topic in copies
    except WireFormatError:
        return False
    return False


def _is_reset(rules: bytes | None) -> bool:
    """Whether rules are those of the file again. What cannot be read may be anything."""
    try:
        return not json.loads(rules or b"{}").get("values")
    except (ValueError, AttributeError):
        return False


def _without_timers(record: StateRecord) -> StateRecord:
    """Since when a group is gone from the source: it may have come back since. The grace begins again."""
    try:
        value = json.loads(record.value or b"")
    except ValueError:
        return record
    if not isinstance(value, dict) or "gone_ms" not in value:
        return record
    return replace(record, value=json.dumps({**value, "gone_ms": {}}, separators=(",", ":")).encode())


def _number(answer: int | KafkaError) -> int:
    return answer if isinstance(answer, int) else 0


async def _append(writer: LogWriter, topic: str, count: int, record: StateRecord) -> None:
    number = partition_for_key(record.key, count) if record.key is not None else 0
    await writer.append(
        TopicPartition(topic, number), key=record.key, value=record.value, timestamp_ms=record.timestamp_ms
    )


def _first(failures: ExceptionGroup[KafkaError]) -> KafkaError:
    for failure in failures.exceptions:
        return failure if isinstance(failure, KafkaError) else _first(failure)
    raise AssertionError("an exception group is never empty")
