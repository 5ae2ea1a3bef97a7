"""What both clusters report about copies that are about to begin, for the decision about their offsets."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace

import structlog

from twinlog.config import AutoOffsetReset, OffsetsMode
from twinlog.errors import FatalKafkaError, KafkaError
from twinlog.kafka.errors import UNSUPPORTED
from twinlog.kafka.ports import ConfigAdmin, OffsetSpec
from twinlog.model import Flow, TopicPartition
from twinlog.policy.expected_offsets import OffsetsRule
from twinlog.policy.internal_topics import transactional_id_prefix
from twinlog.service.feeds.replicated_topics import Topics
from twinlog_source.log.facts import CopyFact
from twinlog_source.partitions.copy_mode import CommonLog, NewCopy, OffsetsReason
from twinlog_source.partitions.events import (
    CopyChanged,
    CopyReread,
    CopyTranslated,
    TargetRecreated,
)
from twinlog_source.partitions.orders import ForeignWrite
from twinlog_source.partitions.rows import PartitionRow
from twinlog_source.preserved.append_steps import PreservedReason
from twinlog_source.preserved.target_probe import TargetProbe
from twinlog_source.reasons import PartitionReason
from twinlog_source.topics.common_search import CommonLogs, Suspect
from twinlog_source.topics.flow_book import FlowBook
from twinlog_source.topics.origins import Origins
from twinlog_source.topics.start_positions import StartPositions
from twinlog_source.topics.target_logs import topics_by_id

CLEANUP_POLICY = "cleanup.policy"
_REFUSALS = frozenset((UNSUPPORTED.name, "TOPIC_UNAUTHORIZED", "CLUSTER_UNAUTHORIZED"))
"""Reasons that retrying does not heal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCopies:
    book: FlowBook
    starts: StartPositions
    probe: TargetProbe
    common_logs: CommonLogs
    origins: Origins
    find_producers: Callable[[], Awaitable[None]]
    """Name the producers of the flow that only the target knows."""

    async def look(
        self, rows: Collection[PartitionRow], topics: Topics
    ) -> Mapping[TopicPartition, NewCopy | KafkaError]:
        """Return the facts about each copy, or why they are unknown now. Raises KafkaError."""
        targets = {row.partition: target_of(row, topics) for row in rows}
        ends = await self.book.target.list_offsets(OffsetSpec.LATEST, targets.values())
        producers = await self.probe.producers(targets.values())
        begins = await self._begins(rows, topics)
        policies = await self._cleanup_policies({row.partition.topic for row in rows}, topics)
        filled = [targets[partition] for partition, begin in begins.items() if begin != 0]
        refusals = await self._refusals(producers, filled)
        common = await self._common_logs(rows, topics, ends, begins, policies)
        found: dict[TopicPartition, NewCopy | KafkaError] = {}
        for row in rows:
            partition, target = row.partition, targets[row.partition]
            end, begin, known = ends[target], begins[partition], producers[target]
            if isinstance(end, KafkaError):
                found[partition] = end
            elif isinstance(begin, KafkaError):
                found[partition] = begin
            elif isinstance(known, KafkaError) and target not in refusals:
                found[partition] = known
            elif isinstance(there := common.get(partition), KafkaError):
                found[partition] = there
            else:
                found[partition] = NewCopy(
                    partition=partition,
                    wanted=self.book.flow.offsets.wanted(partition.topic),
                    begins_at=begin,
                    exactly_once=self.book.flow.settings.exactly_once,
                    cleanup_policies=policies[partition.topic],
                    # A position of 0 means that nothing was copied, and so does an empty target.
                    position_stored=row.stored
                    and bool(row.position)
                    and not self.has_new_target(row, topics),
                    target_end=end,
                    common=there,
                    not_before=begin if self.starts.are_told else 0,
                    has_topic_id=bool(topics[partition.topic].target_topic_id),
                    both_ways=self.origins.is_both_ways(topics[partition.topic]),
                    refusal=refusals.get(target),
                )
        return found

    async def _common_logs(
        self,
        rows: Collection[PartitionRow],
        topics: Topics,
        ends: Mapping[TopicPartition, int | KafkaError],
        begins: Mapping[TopicPartition, int | KafkaError],
        policies: Mapping[str, frozenset[str]],
    ) -> Mapping[TopicPartition, CommonLog | KafkaError | None]:
        """The common log of source and target, for copies whose target has records before they begin."""
        suspects = {
            row.partition: target
            for row in rows
            if isinstance(end := ends[target := target_of(row, topics)], int)
            and isinstance(begin := begins[row.partition], int)
            and begin < end
            and (not row.stored or self.has_new_target(row, topics))
            and not any("compact" in policy for policy in policies[row.partition.topic])
        }
        return await self._compare(suspects, ends, topics)

    async def held_before(
        self, rows: Collection[PartitionRow], topics: Topics
    ) -> Mapping[TopicPartition, ForeignWrite | KafkaError]:
        """What the targets of copies that begin hold already, and nobody has copied there as far as is known:
        no position is stored, the flow did not write last, and no flow copies it back. By whom, is known of
        the last records: nothing of a target that may not be read. Heartbeats are nobody's data. An error
        (NO_POSITION) where the flow has written and its position was lost, unless an operator has just said
        where it begins. Raises KafkaError."""
        targets = {
            row.partition: target_of(row, topics)
            for row in rows
            if not (row.stored and row.position) or self.has_new_target(row, topics)
            if self._begins_first(row, topics) or not self.origins.is_both_ways(topics[row.partition.topic])
            if not self.book.flow.policy.is_heartbeats_topic(row.partition.topic)
        }
        logs, unread = await self._logs(targets.values())
        found: dict[TopicPartition, ForeignWrite | KafkaError] = {
            each: unread[target] for each, target in targets.items() if target in unread
        }
        if not logs:
            return found
        await self.origins.read()
        held = [row for row in rows if targets.get(row.partition) in logs]
        told = {targets[row.partition] for row in held if row.is_told}
        first = [row for row in held if self._begins_first(row, topics) and not row.is_told]
        writers = await self._writers([targets[row.partition] for row in first])
        ends = {target: end for target, (_, end) in logs.items()}
        producers = await self._last_producers(ends, writers, told)
        await self._leave_out_aborted(writers, ends, producers)
        known = self._own_producers()
        written = await self._written(first, topics, writers)
        for row in held:
            partition, topic = row.partition, topics[row.partition.topic]
            producer = producers.get(target := targets[partition])
            if partition in written:
                found[partition] = _lost_position(target, self.book.flow.flow.target)
            elif isinstance(producer, KafkaError):
                if producer.reason not in _REFUSALS:
                    found[partition] = producer
            elif producer is None or producer in known or self.starts.are_told:
                continue
            elif not self.origins.is_both_ways(topic):
                begin, behind = logs[target]
                found[partition] = ForeignWrite(begin, behind, behind - begin, producer, -1, 0)
        return found

    async def _writers(self, copies: Collection[TopicPartition]) -> dict[TopicPartition, set[int]]:
        """The producers that the leaders remember, as far as they tell."""
        found = await self.probe.producers(copies) if copies else {}
        return {each: set() if isinstance(ids, KafkaError) else set(ids) for each, ids in found.items()}

    async def _last_producers(
        self,
        ends: Mapping[TopicPartition, int],
        writers: Mapping[TopicPartition, set[int]],
        told: Collection[TopicPartition],
    ) -> dict[TopicPartition, int | KafkaError | None]:
        """Who wrote last, which is added to the writers, once the flow's own producers have names again; an
        error where these are not known."""
        found, known = dict(await self.probe.last_producers(ends)), self._own_producers()
        by = {each: {last} if isinstance(last, int) else set() for each, last in found.items()}
        for each, ids in writers.items():
            ids |= by.get(each, set())
        unknown = [each for each, ids in {**by, **writers}.items() if not ids - {-1} <= known.keys()]
        try:
            if unknown:
                await self.find_producers()
        except KafkaError as error:
            # Who was told where to begin waits for no coordinator, which may be away for good.
            found |= {each: error for each in unknown if each not in told}
        return found

    async def _leave_out_aborted(
        self,
        writers: Mapping[TopicPartition, set[int]],
        ends: Mapping[TopicPartition, int],
        producers: dict[TopicPartition, int | KafkaError | None],
    ) -> None:
        """Take the flow's own out of the writers where all that they wrote was aborted, as by a task that was
        killed in its first round, which stores no position. They stay where the log does not tell."""
        own = self._own_transactional()
        unsure = {
            each: ends[each] for each, by in writers.items() if own & by and producers.get(each) not in own
        }
        for copy, found in (await self.probe.may_have_committed(own, unsure)).items():
            if found is not True:
                writers[copy] -= own
            if isinstance(found, KafkaError):
                producers[copy] = found

    def _own_transactional(self) -> frozenset[int]:
        prefix = transactional_id_prefix(self.book.flow.flow)
        return frozenset(each for each, name in self._own_producers().items() if name.startswith(prefix))

    def _own_producers(self) -> Mapping[int, str]:
        """The names of the flow's producers on this target. An imported log has those of the one before."""
        target_id = self.origins.cluster_id(self.book.flow.flow.target)
        producers = self.book.control.producers.values()
        return {each.producer_id: each.name for each in producers if each.cluster_id == target_id}

    async def _logs(
        self, copies: Collection[TopicPartition]
    ) -> tuple[dict[TopicPartition, tuple[int, int]], dict[TopicPartition, KafkaError]]:
        """Begin and end of those that are not empty, and why others cannot be read."""
        ends = await self.book.target.list_offsets(OffsetSpec.LATEST, copies) if copies else {}
        starts = await self.book.target.list_offsets(OffsetSpec.EARLIEST, copies) if copies else {}
        logs: dict[TopicPartition, tuple[int, int]] = {}
        unread: dict[TopicPartition, KafkaError] = {}
        for each in copies:
            match starts[each], ends[each]:
                case (KafkaError() as error, _) | (_, KafkaError() as error):
                    unread[each] = error
                case int(start), int(end) if start < end:
                    logs[each] = start, end
        return logs, unread

    def _begins_first(self, row: PartitionRow, topics: Topics) -> bool:
        """Whether the log knows of no record that the flow has copied."""
        return not row.stored and not self.has_new_target(row, topics)

    async def _written(
        self,
        rows: Collection[PartitionRow],
        topics: Topics,
        writers: Mapping[TopicPartition, set[int]],
    ) -> Collection[TopicPartition]:
        """Those to whose copies the flow has written and stored a position: a transactional id has committed
        both in one transaction; or a flow back knew copies by a positions topic that is gone."""
        control, former = self.book.control, {}
        for row in rows:
            former[row.partition] = self.origins.former_positions(row.partition, topics[row.partition.topic])
        there = await topics_by_id(self.book.target) if any(former.values()) else {}
        own = self._own_transactional()
        # A topic that has the name of a copy now may get what another one got before.
        owners = {(each.target_topic_id, each.topic) for each in control.topics.values()}
        found = set()
        for row in rows:
            topic = topics[row.partition.topic]
            others = {name for copy_id, name in owners if copy_id == topic.target_topic_id}
            is_own = not own.isdisjoint(writers[target_of(row, topics)]) and others <= {topic.source_topic}
            if is_own or former[row.partition] - there.keys():
                found.add(row.partition)
        return found

    async def written_by_others(
        self, rows: Collection[PartitionRow], topics: Topics
    ) -> Mapping[TopicPartition, tuple[CommonLog, int] | KafkaError]:
        """What preserved copies now have of the source, and where they end, if no task of ours has written
        their end and they end behind their stored position with foreign records. A copy is left out if it is
        not known to have more than its position says. Raises KafkaError."""
        targets = {row.partition: target_of(row, topics) for row in rows}
        positions = {row.partition: row.position or 0 for row in rows}
        ends = await self.book.target.list_offsets(OffsetSpec.LATEST, targets.values()) if targets else {}
        longer = {
            target: end
            for partition, target in targets.items()
            if isinstance(end := ends[target], int) and end > positions[partition]
        }
        producers = await self.probe.last_producers(longer)
        writer = self.book.control.writer
        ours = None if writer is None else writer.producer_id
        found: dict[TopicPartition, tuple[CommonLog, int] | KafkaError] = {}
        suspects: dict[TopicPartition, TopicPartition] = {}
        for partition, target in targets.items():
            producer = producers.get(target)
            if isinstance(producer, KafkaError):
                found[partition] = producer
            elif producer is not None and producer != ours:
                suspects[partition] = target
        for partition, common in (await self._compare(suspects, ends, topics)).items():
            if isinstance(common, KafkaError):
                found[partition] = common
            elif common is not None and common.end > positions[partition]:
                end = ends[targets[partition]]
                assert isinstance(end, int)
                found[partition] = common, end
        return found

    async def _compare(
        self,
        suspects: Mapping[TopicPartition, TopicPartition],
        ends: Mapping[TopicPartition, int | KafkaError],
        topics: Topics,
    ) -> Mapping[TopicPartition, CommonLog | KafkaError | None]:
        """`suspects` by source partition; `ends` of the target's partitions."""
        if not suspects:
            return {}
        latest = OffsetSpec.LAST_STABLE if self.common_logs.read_committed else OffsetSpec.LATEST
        starts = await self.book.source.list_offsets(OffsetSpec.EARLIEST, suspects)
        source_ends = await self.book.source.list_offsets(latest, suspects)
        target_starts = await self.book.target.list_offsets(OffsetSpec.EARLIEST, suspects.values())
        stable = await self.book.target.list_offsets(latest, suspects.values())
        asked: list[Suspect] = []
        unknown: dict[TopicPartition, CommonLog | KafkaError | None] = {}
        for partition, target in suspects.items():
            known = (
                starts[partition],
                source_ends[partition],
                target_starts[target],
                ends[target],
                stable[target],
            )
            match known:
                case (
                    int(source_start),
                    int(source_end),
                    int(target_start),
                    int(target_end),
                    int(readable_end),
                ):
                    asked.append(
                        Suspect(
                            source=partition,
                            target=target,
                            source_start=source_start,
                            source_end=source_end,
                            target_start=target_start,
                            target_end=target_end,
                            # It is read after the end, and a transaction may have ended meanwhile.
                            readable_end=min(readable_end, target_end),
                            topic_ids=(
                                topics[partition.topic].source_topic_id,
                                topics[partition.topic].target_topic_id,
                            ),
                        )
                    )
                case _:
                    unknown[partition] = next(each for each in known if isinstance(each, KafkaError))
        return {**unknown, **await self.common_logs.find(asked)}

    def has_new_target(self, row: PartitionRow, topics: Topics) -> bool:
        """Whether the known state is about an earlier target topic.

        This stays true until the kind of copy is decided, also when the new topic was put on the log
        meanwhile.
        """
        topic, known = topics[row.partition.topic], self.book.control.copies.get(row.partition)
        if known is not None and known.target_topic_id and topic.target_topic_id:
            return self.book.marks.has_new_target(row.partition, topic)
        return (row.stored or known is not None) and self.book.marks.target_was_recreated(topic)

    async def _begins(
        self, rows: Collection[PartitionRow], topics: Topics
    ) -> Mapping[TopicPartition, int | KafkaError]:
        """Where the copies would begin: at their position, or at the beginning for a new target topic."""
        new = [row.partition for row in rows if self.has_new_target(row, topics)]
        starts = await self.starts.resolve(dict.fromkeys(new, AutoOffsetReset.EARLIEST))
        return {row.partition: starts.get(row.partition, row.position or 0) for row in rows}

    async def _cleanup_policies(self, names: Collection[str], topics: Topics) -> Mapping[str, frozenset[str]]:
        """The policies of source and target; one that may not be read is left out."""
        there = await _policies(self.book.target, {topics[name].target_topic for name in names})
        here = await _policies(
            self.book.source, {name for name in names if not topics[name].source_cleanup_policy}
        )
        return {
            name: frozenset(
                (
                    topics[name].source_cleanup_policy or here.get(name, ""),
                    there.get(topics[name].target_topic, ""),
                )
            )
            for name in names
        }

    async def _refusals(
        self,
        producers: Mapping[TopicPartition, Collection[int] | KafkaError],
        filled: Collection[TopicPartition],
    ) -> dict[TopicPartition, tuple[str, str]]:
        """Reason and message for targets that refuse what a preserved copy needs."""
        refused: dict[TopicPartition, KafkaError | None] = {}
        if filled:
            # Whether records before an offset may be deleted, checked by deleting none.
            refused |= await self.book.target.delete_records(dict.fromkeys(filled, 0))
        refused |= {target: known for target, known in producers.items() if isinstance(known, KafkaError)}
        return {
            target: refusal(error)
            for target, error in refused.items()
            if error is not None and error.reason in _REFUSALS
        }


def _lost_position(copy: TopicPartition, alias: str) -> FatalKafkaError:
    words = f"{copy} on {alias} has records of the flow, whose position was lost, or which took a route there"
    remedy = "set the position behind those that the copy has of this topic, or delete the copy"
    return FatalKafkaError(
        f"{words}: copying from the start could double them; {remedy}", reason=PartitionReason.NO_POSITION
    )


def target_of(row: PartitionRow, topics: Topics) -> TopicPartition:
    return TopicPartition(topics[row.partition.topic].target_topic, row.partition.partition)


def refusal(error: KafkaError) -> tuple[str, str]:
    """Reason and message for a target that does not support what a preserved copy needs."""
    too_old = error.reason == UNSUPPORTED.name
    return (OffsetsReason.TARGET_TOO_OLD if too_old else OffsetsReason.RIGHTS_MISSING), str(error)


async def _policies(cluster: ConfigAdmin, topics: Collection[str]) -> dict[str, str]:
    if not topics:
        return {}
    found = await cluster.describe_topic_configs(sorted(topics), keys=[CLEANUP_POLICY])
    return {
        name: next((entry.value or "" for entry in entries if entry.name == CLEANUP_POLICY), "")
        for name, entries in found.items()
        if not isinstance(entries, KafkaError)
    }


# How preserved copies change, according to what their tasks have put on the log: they end, or leave out a
# range.
#
# Invariant A: a copy changes in one direction only, from preserved to translated, at one source offset that
# is on the log. Everything below it keeps the source's offsets.
#
# Invariant B: while a task has a copy, only the task stores what it leaves out and that it ends, in one
# transaction with the position. The driver does so between two epochs, for an operator.

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyChanges:
    """Methods that write raise KafkaError."""

    rule: OffsetsRule
    book: FlowBook

    def take_ended(self) -> bool:
        """Handle copies that their tasks have ended, as the log shows. Return whether there were any: they
        have to be assigned again, or set aside (their kind is undecided)."""
        rows = [row for row in self.book.table.rows.values() if row.needs_translation]
        for row in rows:
            assert row.report is not None
            assert row.copy is not None
            fact = _as_translated(row.copy, row.report.preserved_until, row.report.reason)
            self.book.control.record(fact)
            self.book.note(
                CopyTranslated(partition=row.partition, copy=self._kept(fact), position=row.report.position)
            )
            _log_translated(self.book.marks.flow, fact, fact.since, fact.reason)
        return bool(rows)

    def take_from_log(self, partitions: Collection[TopicPartition]) -> None:
        """The log was read after fencing, and decides about the copies of these partitions."""
        for partition in partitions:
            row, fact = self.book.table.rows.get(partition), self.book.control.copies.get(partition)
            if row is None or row.copy is None or fact is None or not row.copy.preserved:
                continue
            if fact.target_topic_id != row.copy.target_topic_id:
                continue
            self.book.note(CopyReread(partition=partition, copy=self._kept(fact)))

    async def translate_recreated(self, topics: Topics) -> None:
        """Translate the copies of recreated source topics: offsets begin at 0 again, so none of the copy's
        offsets are the source's any more. Also a copy that stayed preserved for a while, because its task
        found the topic shorter before the driver saw its id. Call it before positions are reset, and while
        nothing copies."""
        for partition in self.book.table.rows:
            topic = topics[partition.topic]
            fact = self.book.marks.copy_of(partition, topic)
            has_equal_offsets = fact is not None and (fact.preserved or fact.since > 0)
            if fact is None or not has_equal_offsets or not self.book.marks.source_was_recreated(topic):
                continue
            await self.book.record([_as_translated(fact, 0, OffsetsReason.SOURCE_RECREATED)])
            _log_translated(self.book.marks.flow, fact, 0, OffsetsReason.SOURCE_RECREATED)
            self.book.note(CopyChanged(partition=partition, copy=None))
            self.book.note(TargetRecreated(partition=partition))

    def take_skips(self) -> None:
        """Handle ranges that tasks have left out of preserved copies, as the log shows. Nothing is written
        here, because only the task writes about its copy."""
        for partition, row in self.book.table.rows.items():
            known = self.book.control.copies.get(partition)
            if row.copy is None or not row.copy.preserved or row.copy == known:
                continue
            if known is None or known.target_topic_id != row.copy.target_topic_id or not known.preserved:
                continue
            if known.skip_to > row.copy.skip_to:
                # It was read from the log, and is not reported yet: ranges only move forward.
                skipped = replace(row.copy, skip_from=known.skip_from, skip_to=known.skip_to)
                self.book.note(CopyChanged(partition=partition, copy=skipped))
            else:
                self.book.control.record(row.copy)

    async def leave_out(self, row: PartitionRow, skip_from: int | None, skip_to: int) -> None:
        """An operator moves a copy on, and no task has it: what it leaves out is filled."""
        assert row.copy is not None
        assert skip_from is not None
        copy = replace(row.copy, skip_from=skip_from, skip_to=skip_to)
        await self.book.record([copy])
        self.book.note(CopyChanged(partition=row.partition, copy=copy))

    async def end(self, row: PartitionRow, since: int, position: int) -> None:
        """An operator moves a copy that holds what the source lost from `since` on, and no task has it: it
        continues at `position` with other offsets."""
        assert row.copy is not None
        fact = _as_translated(row.copy, since, PreservedReason.SOURCE_TRUNCATED)
        await self.book.record([fact])
        self.book.note(CopyTranslated(partition=row.partition, copy=self._kept(fact), position=position))
        _log_translated(self.book.marks.flow, fact, since, fact.reason)

    def _kept(self, fact: CopyFact) -> CopyFact | None:
        """None for a copy that has ended although the configuration requires the source's offsets."""
        demanded = self.rule.wanted(fact.partition.topic) is OffsetsMode.PRESERVED
        return None if demanded and not fact.preserved else fact


def _as_translated(fact: CopyFact, since: int, reason: str) -> CopyFact:
    return replace(
        fact, preserved=False, since=since, reason=reason, skip_from=0, skip_to=0, leader_epoch=None
    )


def _log_translated(flow: Flow, fact: CopyFact, since: int, reason: str) -> None:
    log.warning(
        "offsets_translated",
        flow=str(flow),
        topic=fact.partition.topic,
        partition=fact.partition.partition,
        since=since,
        reason=reason,
    )
