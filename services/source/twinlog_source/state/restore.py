"""`twinlog state import`: restores a flow's exported state where there is none.

The import looks up where the copies really end, and refuses a partition for which that is uncertain
(`judgement`). It writes a mark first and removes it last. While the mark exists no process copies the flow,
so an interrupted import is never taken for a complete one. Importing the same file again completes it.

| in the file | restored |
|---|---|
| positions | as exported, or derived from both logs |
| topics, kinds of copies, their ends, the writer's identity, gaps, pauses, limits | as exported |
| leader epochs of the copied records | as exported, with their position; else left out |
| the claim of the flow | the import's: the previous owner is displaced |
| the most slots that were ever used | as exported, or what the configuration allows if that is more |
| where the last owner stopped in order | left out: others may have owned the flow since |
| the state of continuous verification | left out: it begins again |
| rules and registry, moves, checkpoints, offset syncs | as exported, where the topic is empty |
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from twinlog.config import AutoOffsetReset
from twinlog.errors import ConfigError, KafkaError, StateError, WireFormatError
from twinlog.kafka.ports import OffsetSpec
from twinlog.kafka.reasons import KafkaReason
from twinlog.model import TopicPartition
from twinlog.selection import TopicSelector
from twinlog.selection_configured import topic_selector
from twinlog.service.feeds.rules import flow_in_effect, rules_remedy
from twinlog.service.feeds.rules_record import parsed_rules
from twinlog_source.log.fact_records import KINDS, kind_of, parse_control
from twinlog_source.log.facts import RestoreFact
from twinlog_source.state.export import (
    FlowClusters,
    all_records,
    newest,
    of_flow,
    require_stopped,
    settled_ends,
    topic_ids,
)
from twinlog_source.state.judgement import (
    InOrder,
    LogsNow,
    RestoreOutcome,
    RestoreVerdict,
    compare_in_order,
    judge,
    judge_new,
    not_derived,
)
from twinlog_source.state.restore_writer import RestoredRecords, RestoreWriter, TopicPlan
from twinlog_source.state.state_file import CopyLine, ExportedFlow, StateRecord, TopicRole

_COMPARED_AT_ONCE = 8
_RULES_KEY = b'["rules"]'


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPlan:
    """What an import does, or why it does nothing."""

    verdicts: Mapping[TopicPartition, tuple[CopyLine, RestoreVerdict]]
    topics: tuple[TopicPlan, ...]

    @property
    def refused(self) -> list[tuple[CopyLine, RestoreVerdict]]:
        return [each for each in self.verdicts.values() if each[1].outcome is RestoreOutcome.REFUSED]


@dataclass(frozen=True, slots=True, kw_only=True)
class StateImport:
    """Call `plan`, then `carry_out` of that plan. Both raise KafkaError, and StateError for an import that
    must not happen."""

    clusters: FlowClusters
    state: ExportedFlow
    allow_repeats: bool = False
    without_moves: bool = False

    async def plan(self) -> ImportPlan:
        """Changes nothing. Raises StateError: STATE_FILE_NEWER, FLOW_RUNS, OTHER_CLUSTER, STATE_PRESENT,
        MOVE_UNFINISHED."""
        self._require_known_facts()
        await self._require_the_clusters_of_the_file()
        require_stopped(self.clusters.flow.flow, await self.clusters.owners())
        is_continued = await self._require_no_other_state()
        verdicts = await self._verdicts()
        gone = {
            line.topic for line, verdict in verdicts.values() if verdict.outcome is RestoreOutcome.LEFT_OUT
        }
        restored = RestoredRecords(
            state=self.state,
            flow=self.clusters.flow,
            verdicts={each: (line.preserved, verdict) for each, (line, verdict) in verdicts.items()},
            gone=gone,
            without_moves=self.without_moves,
            now_ms=self.clusters.clock.now_ms(),
        )
        plans = []
        for role, topic in self.clusters.topics().items():
            records = tuple(restored.of(role))
            if role is TopicRole.POSITIONS:
                plans.append(TopicPlan(role=role, topic=topic, records=records))
                continue
            there = await newest(all_records(self.clusters.cluster_of(topic), topic.topic))
            kept = bool(there) and not is_continued
            if role is TopicRole.MOVES and not kept:
                self._require_finished_moves(records)
            plans.append(TopicPlan(role=role, topic=topic, records=() if kept else records, kept=kept))
        return ImportPlan(verdicts=verdicts, topics=tuple(plans))

    async def carry_out(self, plan: ImportPlan) -> None:
        """Restore. After an error the mark stays; importing the same file again completes the import."""
        await RestoreWriter(clusters=self.clusters, import_id=self.state.import_id).write(plan.topics)

    def _require_known_facts(self) -> None:
        """A fact that this version does not know could not be corrected, as the owner's is."""
        kinds = {kind_of(record.key) for record in self.state.of(TopicRole.POSITIONS)}
        unknown = sorted(kind for kind in kinds if kind is not None and kind not in KINDS)
        if unknown:
            version = self.state.header.version
            raise StateError(
                f"the file holds facts that this version does not know ({', '.join(unknown)}): Twinlog"
                f" {version} exported it. Import it with that version",
                reason="STATE_FILE_NEWER",
                metadata={"version": version},
            )

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
        """Whether an import of this file was interrupted here. Raises StateError (STATE_PRESENT)."""
        flow, topic = self.clusters.flow, self.clusters.topics()[TopicRole.POSITIONS]
        alias = flow.flow.source
        there = await newest(all_records(self.clusters.target, topic.topic))
        ours = [each for each in there if of_flow(each.key, alias, flow.settings.connector_name)]
        facts = [parse_control(alias, each.key, each.value) for each in ours]
        mark = next((each.fact for each in facts if each is not None and each.kind == "restore"), None)
        if isinstance(mark, RestoreFact) and mark.import_id == self.state.import_id:
            return True
        # A process that was started without state may have claimed the flow; that is no progress.
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

    async def _verdicts(self) -> dict[TopicPartition, tuple[CopyLine, RestoreVerdict]]:
        known = {line.source: line for line in self.state.copies}
        new = await self._unknown_copies(known)
        lines = [*known.values(), *new]
        now = await self._logs_now(lines)
        earliest = self.clusters.flow.settings.auto_offset_reset is AutoOffsetReset.EARLIEST
        verdicts: dict[TopicPartition, tuple[CopyLine, RestoreVerdict]] = {}
        unclear: list[tuple[CopyLine, InOrder]] = []
        for line in lines:
            here = now[line.source]
            found: RestoreVerdict | InOrder | None
            if line.source in known:
                found = judge(line, here, begins_at_earliest=earliest)
            else:
                found = judge_new(line, here)
            if isinstance(found, InOrder):
                if here.source_problem is not None:
                    raise here.source_problem
                unclear.append((line, found))
            elif found is not None:
                if found.reason == "POSITION_NOT_DERIVABLE":
                    found = not_derived(line, found.message, allow_repeats=self.allow_repeats)
                verdicts[line.source] = line, found
        await self._compare_all(unclear, verdicts)
        return dict(sorted(verdicts.items()))

    async def _unknown_copies(self, known: Mapping[TopicPartition, CopyLine]) -> list[CopyLine]:
        """Partitions that the flow selects and the export does not know: they may have been copied since."""
        clusters, policy = self.clusters, self.clusters.flow.policy
        selector, alias = topic_selector(clusters.entry), clusters.flow.flow.source
        on_target = set(await clusters.target.list_topics())
        changed = await self._changed_rules()
        may_select_more = policy.tracks_topic_sources and bool(changed)
        selectors = [selector, *(() if may_select_more else [self._selector_of(rules) for rules in changed])]
        topics = {
            topic: copy
            for topic in await clusters.source.list_topics()
            if (copy := policy.format_remote_topic(alias, topic)) in on_target
            and (
                any(each.selects(topic) for each in selectors)
                or (may_select_more and not policy.is_internal_topic(topic))
            )
        }
        described = await clusters.source.describe_topics(topics) if topics else {}
        counts: dict[str, int] = {}
        for topic, found in sorted(described.items()):
            if not isinstance(found, KafkaError):
                counts[topic] = found.partition_count
            elif found.reason != KafkaReason.TOPIC_UNKNOWN:
                raise found  # A copy that is left out of the plan would be repeated.
        return [
            CopyLine(topic=topic, partition=number, position=0, target_topic=topics[topic])
            for topic, count in counts.items()
            for number in range(count)
            if TopicPartition(topic, number) not in known
        ]

    async def _changed_rules(self) -> list[bytes]:
        """The rules that were changed while the flow ran, in the file and on the target: they may select more
        topics than the properties file. Empty where they were reset."""
        topic = self.clusters.topics()[TopicRole.CONFIGSYNC]
        there = all_records(self.clusters.cluster_of(topic), topic.topic)
        stored = [(each.key, each.value) for each in self.state.of(TopicRole.CONFIGSYNC)]
        stored += [(each.key, each.value) for each in await newest(there)]
        return [value for key, value in stored if key == _RULES_KEY and value and not _is_reset(value)]

    def _selector_of(self, rules: bytes) -> TopicSelector:
        """Raises StateError for rules that cannot be read or used: a name of the target does not tell whether
        it is a copy."""
        clusters = self.clusters
        flow = clusters.flow.flow
        try:
            values = parsed_rules(rules).values
            return topic_selector(flow_in_effect(clusters.configuration, flow, values))
        except (WireFormatError, ConfigError) as error:
            raise StateError(
                f"{flow}: which topics were copied is not known: {error}. {rules_remedy(error, flow)}",
                reason=error.reason,
            ) from error

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
                if (problem := _problem(answer)) is not None:
                    raise problem
            source_start, source_end = starts[line.source], ends[line.source]
            is_there = isinstance(end, int) and isinstance(start, int)
            now[line.source] = LogsNow(
                source_topic_id=source_ids.get(line.topic, ""),
                source_start=_number(source_start),
                source_end=_number(source_end),
                source_exists=not (_is_absent(source_start) and _is_absent(source_end)),
                source_problem=_problem(source_start) or _problem(source_end),
                target_topic_id=target_ids.get(line.target_topic) if is_there else None,
                target_start=_number(start),
                target_end=_number(end),
                target_is_settled=line.copy in settled,
            )
        return now

    async def _compare_all(
        self,
        unclear: Sequence[tuple[CopyLine, InOrder]],
        verdicts: dict[TopicPartition, tuple[CopyLine, RestoreVerdict]],
    ) -> None:
        clusters, waiting = self.clusters, iter(unclear)
        async with AsyncExitStack() as stack:
            committed = clusters.flow.settings.read_committed

            async def worker() -> None:
                # One reader for each, because a reader answers one request at a time.
                source = await stack.enter_async_context(clusters.source.reader(read_committed=committed))
                target = await stack.enter_async_context(clusters.target.reader(read_committed=True))
                for line, logs in waiting:
                    found = await compare_in_order(logs, source, target)
                    if isinstance(found, str):
                        found = not_derived(line, found, allow_repeats=self.allow_repeats)
                    verdicts[line.source] = line, found

            async with asyncio.TaskGroup() as group:
                for number in range(min(_COMPARED_AT_ONCE, len(unclear))):
                    group.create_task(worker(), name=f"compare copies {number}")


def _is_reset(rules: bytes | None) -> bool:
    """Whether rules were reset to those of the file. Unreadable rules may be anything."""
    try:
        return not json.loads(rules or b"{}").get("values")
    except (ValueError, AttributeError):
        return False


def _problem(answer: int | KafkaError) -> KafkaError | None:
    """Why the log did not answer. One that does not exist did: it has no records."""
    return answer if isinstance(answer, KafkaError) and not _is_absent(answer) else None


def _is_absent(answer: int | KafkaError) -> bool:
    return isinstance(answer, KafkaError) and answer.reason == KafkaReason.TOPIC_UNKNOWN


def _number(answer: int | KafkaError) -> int:
    return answer if isinstance(answer, int) else 0
