"""What both clusters report about copies that are about to begin, for the decision about their offsets."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from twinlog.config import AutoOffsetReset, OffsetsMode
from twinlog.errors import KafkaError
from twinlog.kafka.errors import UNSUPPORTED
from twinlog.kafka.ports import ConfigAdmin, KafkaCluster, OffsetSpec
from twinlog.model import TopicPartition
from twinlog.policy.expected_offsets import OffsetsRule
from twinlog.service.feeds.replicated_topics import ReplicatedTopic, Topics
from twinlog_source.log.topic_facts import TopicFacts
from twinlog_source.partitions.copy_mode import CommonLog, NewCopy, OffsetsReason
from twinlog_source.partitions.rows import PartitionRow
from twinlog_source.preserved.target_probe import TargetProbe
from twinlog_source.topics.common_search import CommonLogs, Suspect
from twinlog_source.topics.start_positions import StartPositions

CLEANUP_POLICY = "cleanup.policy"
_REFUSALS = frozenset((UNSUPPORTED.name, "TOPIC_UNAUTHORIZED", "CLUSTER_UNAUTHORIZED"))
"""Reasons that retrying does not heal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCopies:
    rule: OffsetsRule
    exactly_once: bool
    marks: TopicFacts
    starts: StartPositions
    source: KafkaCluster
    target: KafkaCluster
    probe: TargetProbe
    common_logs: CommonLogs
    is_both_ways: Callable[[ReplicatedTopic], bool]

    async def look(
        self, rows: Collection[PartitionRow], topics: Topics
    ) -> Mapping[TopicPartition, NewCopy | KafkaError]:
        """Return the facts about each copy, or why they are unknown now. Raises KafkaError."""
        targets = {row.partition: target_of(row, topics) for row in rows}
        ends = await self.target.list_offsets(OffsetSpec.LATEST, targets.values())
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
                    wanted=self.rule.wanted(partition.topic),
                    begins_at=begin,
                    exactly_once=self.exactly_once,
                    cleanup_policies=policies[partition.topic],
                    # A position of 0 means that nothing was copied, and so does an empty target.
                    position_stored=row.stored
                    and bool(row.position)
                    and not self.has_new_target(row, topics),
                    target_end=end,
                    common=there,
                    not_before=begin if self.starts.are_told else 0,
                    has_topic_id=bool(topics[partition.topic].target_topic_id),
                    both_ways=self.is_both_ways(topics[partition.topic]),
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
            and self.rule.wanted(row.partition.topic) is not OffsetsMode.TRANSLATED
            and not any("compact" in policy for policy in policies[row.partition.topic])
        }
        return await self._compare(suspects, ends, topics)

    async def written_by_others(
        self, rows: Collection[PartitionRow], topics: Topics
    ) -> Mapping[TopicPartition, tuple[CommonLog, int] | KafkaError]:
        """What preserved copies now have of the source, and where they end, if no task of ours has written
        their end and they end behind their stored position with foreign records. A copy is left out if it is
        not known to have more than its position says. Raises KafkaError."""
        targets = {row.partition: target_of(row, topics) for row in rows}
        positions = {row.partition: row.position or 0 for row in rows}
        ends = await self.target.list_offsets(OffsetSpec.LATEST, targets.values()) if targets else {}
        longer = {
            target: end
            for partition, target in targets.items()
            if isinstance(end := ends[target], int) and end > positions[partition]
        }
        producers = await self.probe.last_producers(longer)
        writer = self.marks.control.writer
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
        starts = await self.source.list_offsets(OffsetSpec.EARLIEST, suspects)
        source_ends = await self.source.list_offsets(latest, suspects)
        target_starts = await self.target.list_offsets(OffsetSpec.EARLIEST, suspects.values())
        stable = await self.target.list_offsets(latest, suspects.values())
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
        topic, known = topics[row.partition.topic], self.marks.control.copies.get(row.partition)
        if known is not None and known.target_topic_id and topic.target_topic_id:
            return self.marks.has_new_target(row.partition, topic)
        return (row.stored or known is not None) and self.marks.target_was_recreated(topic)

    async def _begins(
        self, rows: Collection[PartitionRow], topics: Topics
    ) -> Mapping[TopicPartition, int | KafkaError]:
        """Where the copies would begin: at their position, or at the beginning for a new target topic."""
        new = [row.partition for row in rows if self.has_new_target(row, topics)]
        starts = await self.starts.resolve(dict.fromkeys(new, AutoOffsetReset.EARLIEST))
        return {row.partition: starts.get(row.partition, row.position or 0) for row in rows}

    async def _cleanup_policies(self, names: Collection[str], topics: Topics) -> Mapping[str, frozenset[str]]:
        """The policies of source and target; one that may not be read is left out."""
        there = await _policies(self.target, {topics[name].target_topic for name in names})
        here = await _policies(
            self.source, {name for name in names if not topics[name].source_cleanup_policy}
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
            refused |= await self.target.delete_records(dict.fromkeys(filled, 0))
        refused |= {target: known for target, known in producers.items() if isinstance(known, KafkaError)}
        return {
            target: refusal(error)
            for target, error in refused.items()
            if error is not None and error.reason in _REFUSALS
        }


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
