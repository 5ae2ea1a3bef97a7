"""Which topics and partitions of a flow are verified, and why others cannot be."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from twinlog.comparison.model import NotCompared, NotComparedReason, PartitionProof, Side
from twinlog.config import FlowConfig
from twinlog.errors import ConfigError, KafkaError
from twinlog.kafka.ports import KafkaCluster, TopicDescription
from twinlog.kafka.reasons import KafkaReason
from twinlog.model import Flow, TopicPartition
from twinlog.selection import TopicSelector
from twinlog.service.feeds.replicated_topics import ReplicatedTopic, StoredRoute, TopicState
from twinlog.transforms.expressions import OnError, expressions_of
from twinlog.verify.report import FlowFailure
from twinlog_source.verify.request import VerifyRequest

_COMPACT, _MOST_BYTES = "compact", "max.message.bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPair:
    source: TopicDescription
    target: TopicDescription
    source_compacted: bool
    target_compacted: bool


@dataclass(slots=True, kw_only=True)
class VerifiedTopics:
    flow: FlowConfig
    request: VerifyRequest
    selector: TopicSelector
    source: KafkaCluster
    target: KafkaCluster
    pairs: dict[str, TopicPair] = field(default_factory=dict)
    """By source topic."""
    failures: list[FlowFailure] = field(default_factory=list)
    routed_from: dict[str, str] = field(default_factory=dict)
    """By route: the topic whose records take it. A route is one more of the `pairs`, by its name."""
    gone_routes: set[str] = field(default_factory=set)
    """Those whose topics were deleted on the target, and are not asked for again."""
    made_again: set[str] = field(default_factory=set)
    """Routes whose topics were deleted and came back with a record: they do not have what was before it."""
    refused: list[PartitionProof] = field(default_factory=list)
    """Partitions that cannot be compared at all."""

    async def find(self) -> None:
        """Raises KafkaError when a cluster does not answer, ConfigError for a topic that the flow does not
        have."""
        asked = {self.selector.topic_named(name) for name in self.request.topics}
        there = await self.source.list_topics()
        for topic in sorted(asked):
            decision = self.selector.decide(topic)
            if topic not in there:
                raise ConfigError(
                    f"--topic {topic}: cluster {self.flow.flow.source} has no such topic",
                    metadata={"topic": topic},
                )
            if not decision.selected:
                raise ConfigError(
                    f"--topic {topic}: {self.flow.flow} does not copy it: {decision.rule}",
                    metadata={"topic": topic},
                )
        names = sorted(topic for topic in (asked or there) if self.selector.selects(topic))
        if not names:
            self.failures.append(
                FlowFailure(
                    reason="NO_TOPICS_SELECTED",
                    detail=f"{self.flow.flow} selects none of the topics of cluster {self.flow.flow.source}",
                )
            )
            return
        copies = {
            name: self.selector.policy.format_remote_topic(self.flow.flow.source, name) for name in names
        }
        on_source = await self.source.describe_topics(names)
        on_target = await self.target.describe_topics(list(copies.values()))
        source_compacted = await _compacted(self.source, names)
        target_compacted = await _compacted(self.target, list(copies.values()))
        for name, copy in copies.items():
            here, its_copy = on_source[name], on_target[copy]
            of_source, of_target = source_compacted[name], target_compacted[copy]
            if isinstance(here, KafkaError):
                self._refuse_topic(name, here)
            elif isinstance(its_copy, KafkaError):
                missing = (
                    NotComparedReason.TARGET_MISSING if its_copy.reason == KafkaReason.TOPIC_UNKNOWN else None
                )
                self._refuse_topic(name, its_copy, missing)
            elif isinstance(of_source, KafkaError):
                self._refuse_topic(name, of_source)
            elif isinstance(of_target, KafkaError):
                self._refuse_topic(name, of_target)
            else:
                self.pairs[name] = TopicPair(
                    source=here, target=its_copy, source_compacted=of_source, target_compacted=of_target
                )

    async def find_routes(
        self, stored: Mapping[str, StoredRoute], known: Mapping[str, ReplicatedTopic]
    ) -> None:
        """Those that records of the found topics take; `known` are configsync's. Raises KafkaError."""
        self.gone_routes = {name for name, route in stored.items() if route.is_gone(known.get(name))}
        topics = {
            name: route.source_topic
            for name, route in stored.items()
            if route.source_topic in self.pairs and name not in self.pairs and name not in self.gone_routes
        }
        policy, source = self.selector.policy, self.flow.flow.source
        copies = {name: policy.format_remote_topic(source, name) for name in topics}
        on_target = await self.target.describe_topics(list(copies.values())) if copies else {}
        compacted = await _compacted(self.target, list(copies.values()))
        for name, copy in copies.items():
            found, is_compacted = on_target[copy], compacted[copy]
            if isinstance(found, KafkaError):
                missing = (
                    NotComparedReason.TARGET_MISSING if found.reason == KafkaReason.TOPIC_UNKNOWN else None
                )
                self._refuse_topic(name, found, missing)
            elif isinstance(is_compacted, KafkaError):
                self._refuse_topic(name, is_compacted)
            else:
                of_topic = self.pairs[topics[name]]
                self.pairs[name] = replace(of_topic, target=found, target_compacted=is_compacted)
                self.routed_from[name] = topics[name]
                if stored[name].instead_of not in ("", found.topic_id):
                    self.made_again.add(name)

    def log_of(self, partition: TopicPartition) -> TopicPartition:
        """The partition of the source that has the records."""
        return TopicPartition(self.routed_from.get(partition.topic, partition.topic), partition.partition)

    def _refuse_topic(self, topic: str, error: KafkaError, reason: str | None = None) -> None:
        self.failures.append(FlowFailure(topic=topic, reason=reason or error.reason, detail=str(error)))

    async def changed(self) -> dict[str, FlowFailure]:
        """Topics that were recreated during the comparison; their results mean nothing."""
        changed: dict[str, FlowFailure] = {}
        for cluster, side in ((self.source, Side.SOURCE), (self.target, Side.TARGET)):
            names = {topic: getattr(pair, side).name for topic, pair in self.pairs.items()}
            try:
                found = await cluster.describe_topics(sorted(set(names.values())))
            except KafkaError:
                continue  # The results stand: nothing shows that the topics were recreated.
            for topic, name in names.items():
                answer, before = found[name], getattr(self.pairs[topic], side)
                if isinstance(answer, KafkaError):
                    if answer.reason == KafkaReason.TOPIC_UNKNOWN:
                        changed[topic] = FlowFailure(
                            topic=topic, reason=answer.reason, detail=f"{name} was deleted meanwhile"
                        )
                elif answer.topic_id != before.topic_id:
                    changed[topic] = FlowFailure(
                        topic=topic,
                        reason="TOPIC_CHANGED",
                        detail=f"{name} was deleted and created again meanwhile",
                    )
        return changed

    def copy_of(self, partition: TopicPartition) -> TopicPartition:
        return TopicPartition(self.pairs[partition.topic].target.name, partition.partition)

    async def most_bytes_of_changed(self) -> dict[str, int]:
        """By source topic, the size above which the copy leaves out what Spark makes of a record. Raises
        KafkaError."""
        expressions = expressions_of(self.flow.policy_config)
        if expressions is None or expressions.on_error is OnError.STOP:
            return {}
        copies = {pair.target.name: name for name, pair in self.pairs.items()}
        found = await self.target.describe_topic_configs(copies, keys=(_MOST_BYTES,))
        return {
            copies[copy]: int(entry.value)
            for copy, entries in found.items()
            if not isinstance(entries, KafkaError)
            for entry in entries
            if entry.name == _MOST_BYTES and entry.value
        }

    def partitions(self) -> list[TopicPartition]:
        """Raises ConfigError for a number that no topic has."""
        counts = [
            max(pair.source.partition_count, pair.target.partition_count) for pair in self.pairs.values()
        ]
        most = max(counts, default=None)
        for number in sorted(self.request.partitions):
            if most is not None and number >= most:
                raise ConfigError(
                    f"--partition {number}: no topic that is verified has it", key="--partition"
                )
        found = []
        for topic, pair in self.pairs.items():
            for number in range(pair.source.partition_count):
                if self.request.partitions and number not in self.request.partitions:
                    continue
                partition = TopicPartition(topic, number)
                if self.request.ends is not None and self.log_of(partition) not in self.request.ends:
                    continue
                if number < pair.target.partition_count:
                    found.append(partition)
                else:
                    detail = f"{pair.target.name} has {pair.target.partition_count} partitions"
                    copy = TopicPartition(pair.target.name, number)
                    self.refuse(partition, copy, NotComparedReason.TARGET_MISSING, detail)
        return found

    def refuse(self, partition: TopicPartition, copy: TopicPartition, reason: str, detail: str) -> None:
        proof = PartitionProof(
            source=partition, target=copy, source_from=0, source_to=0, target_from=0, target_to=0
        )
        proof.not_compared.append(
            NotCompared(side=Side.SOURCE, from_offset=0, to_offset=0, reason=reason, detail=detail)
        )
        self.refused.append(proof)


async def _compacted(cluster: KafkaCluster, topics: Sequence[str]) -> dict[str, bool | KafkaError]:
    """Whether each topic is compacted. One that cannot be read may be, so nothing that its copy lacks counts
    as lost."""
    if not topics:
        return {}
    found = await cluster.describe_topic_configs(topics, keys=("cleanup.policy",))
    return {
        topic: entries
        if isinstance(entries, KafkaError)
        else any(entry.name == "cleanup.policy" and _COMPACT in (entry.value or "") for entry in entries)
        for topic, entries in found.items()
    }


def replicated_topic(flow: Flow, pair: TopicPair) -> ReplicatedTopic:
    """As configsync tells it of a topic that is in step."""
    return ReplicatedTopic(
        source_topic=pair.source.name,
        target_topic=pair.target.name,
        partition_count=pair.source.partition_count,
        target_partition_count=pair.target.partition_count,
        source_topic_id=pair.source.topic_id,
        target_topic_id=pair.target.topic_id,
        state=TopicState.READY,
    )
