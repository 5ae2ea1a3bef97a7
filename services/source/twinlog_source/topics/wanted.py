"""The topics that are to be copied now: configsync's list, corrected by what the clusters report."""

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from twinlog.backoff import Pace
from twinlog.batches import largest_batch_bytes
from twinlog.errors import KafkaError, TransientKafkaError
from twinlog.kafka.ports import KafkaCluster, TopicDescription
from twinlog.kafka.reasons import KafkaReason
from twinlog.service.feeds.registry import Decisions
from twinlog.service.feeds.replicated_topics import ReplicatedTopic
from twinlog_source.partitions.table import PartitionTable
from twinlog_source.preserved.append_steps import PreservedReason
from twinlog_source.reasons import PartitionReason
from twinlog_source.topics.flow_book import FlowBook

# The largest batch that the target accepts, and which topic has the copy's name, read by the source service
# itself while a topic's batches are refused.
#
# configsync reads them when it looks at topics, and the limit when it creates or changes one. If somebody
# lowers or raises it later, or creates the topic again, it is seen here: batches are split, a record that was
# too large is copied, or the new topic gets everything, without a command.

LOOK_SECONDS = 2.0
IDS_KEPT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    said: int
    """As configsync read it."""
    found: int
    """As read on the target."""


@dataclass(slots=True, kw_only=True)
class TargetTopics:
    target: KafkaCluster
    table: PartitionTable
    _seen: dict[str, _Seen] = field(default_factory=dict)
    """By source topic; a later value of configsync takes precedence."""
    _created_again: dict[str, tuple[str, TopicDescription]] = field(default_factory=dict)
    """By source topic: the id that configsync told, as long as it does, and the present topic."""
    _known_ids: dict[str, deque[str]] = field(default_factory=dict)
    """By source topic: the last ids that its copy has had. A broker that lags behind may report one of
    them."""
    _due_at: float = 0.0

    async def corrected(
        self, topics: Mapping[str, ReplicatedTopic], now: float, *, doubted: Collection[str] = ()
    ) -> dict[str, ReplicatedTopic]:
        """The topics with their present limits and copies; those of `doubted` ones are asked for now. Raises
        KafkaError."""
        await self._look_at_copies({name: topics[name].target_topic for name in doubted}, topics)
        if now >= self._due_at:
            self._due_at = now + LOOK_SECONDS
            await self._look(topics)
        corrected = {name: self._correct(topic) for name, topic in topics.items()}
        for name, topic in corrected.items():
            known = self._known_ids.setdefault(name, deque(maxlen=IDS_KEPT))
            if topic.target_topic_id not in known:
                known.append(topic.target_topic_id)
        return corrected

    async def _look(self, topics: Mapping[str, ReplicatedTopic]) -> None:
        for remembered in (self._seen, self._created_again, self._known_ids):
            for name in remembered.keys() - topics.keys():
                del remembered[name]
        changed = self._refused(topics, KafkaReason.TOPIC_CHANGED, PreservedReason.TARGET_RECREATED)
        await self._look_at_copies(changed, topics)
        refused = self._refused(topics, KafkaReason.RECORD_TOO_LARGE)
        configs = await self.target.describe_topic_configs(sorted(refused.values())) if refused else {}
        for name, target_topic in refused.items():
            entries = configs[target_topic]
            if isinstance(entries, KafkaError):
                continue
            largest = largest_batch_bytes({entry.name: entry.value for entry in entries})
            if largest is not None:
                said = topics[name].limits.max_message_bytes
                self._seen[name] = _Seen(said=said, found=largest)

    async def _look_at_copies(
        self, changed: Mapping[str, str], topics: Mapping[str, ReplicatedTopic]
    ) -> None:
        """By source topic: copies that may be other topics than configsync says."""
        described = await self.target.describe_topics(sorted(changed.values())) if changed else {}
        for name, target_topic in changed.items():
            found, said_id = described[target_topic], topics[name].target_topic_id
            known = self._known_ids.get(name, ())
            if not isinstance(found, KafkaError) and found.topic_id not in (said_id, *known):
                self._created_again[name] = said_id, found

    def _refused(self, topics: Mapping[str, ReplicatedTopic], *reasons: str) -> dict[str, str]:
        """The target topics whose batches are refused for one of these reasons, by source topic."""
        return {
            row.partition.topic: row.target_topic
            for row in self.table.rows.values()
            if row.task_reason in reasons and row.partition.topic in topics
        }

    def _correct(self, topic: ReplicatedTopic) -> ReplicatedTopic:
        if topic.source_topic in self._created_again:
            said_id, found = self._created_again[topic.source_topic]
            if topic.target_topic_id == said_id:
                counted = found.partition_count
                topic = replace(topic, target_topic_id=found.topic_id, target_partition_count=counted)
            else:
                del self._created_again[topic.source_topic]
        seen = self._seen.get(topic.source_topic)
        if seen is None or seen.said != topic.limits.max_message_bytes:
            return topic
        return replace(topic, limits=replace(topic.limits, max_message_bytes=seen.found))


IDS = Pace(shortest_seconds=1.0, per_second=10)
IDS_TOPICS_PER_SECOND = 200

BROKER_LAG_SECONDS = 30.0
"""For how long a broker may report the id of a deleted topic. Then it counts as the id of the topic."""


@dataclass(slots=True, kw_only=True)
class WantedTopics:
    book: FlowBook
    decisions: Decisions
    target_topics: TargetTopics
    flows: int = 1
    """The number of flows in the process."""
    _ids: dict[str, str] = field(default_factory=dict)
    """The ids of the source topics, as the source last reported them: an answer that fails changes none."""
    _id_problems: dict[str, KafkaError] = field(default_factory=dict)
    """Why the source has not reported the ids of topics that were recreated according to configsync."""
    _returned: dict[str, tuple[str, float]] = field(default_factory=dict)
    """The ids of deleted topics that the source reports again, and since when (monotonic seconds)."""
    _ids_due_at: float = 0.0

    async def now(self) -> dict[str, ReplicatedTopic]:
        """The topics that may be copied, by source topic. Raises KafkaError."""
        now = self.book.clock.monotonic()
        told = dict(self.decisions.topics(self.book.flow.flow))
        topics = await self.target_topics.corrected(told, now)
        await self._look_at_ids(topics, now)
        wanted = self._with_ids(topics)
        if doubted := [name for name, topic in wanted.items() if self._is_copy_doubted(topic)]:
            wanted = self._with_ids(await self.target_topics.corrected(told, now, doubted=doubted))
        return wanted

    def _with_ids(self, topics: Mapping[str, ReplicatedTopic]) -> dict[str, ReplicatedTopic]:
        return {
            # What the source reports is newer than what configsync has seen.
            name: self._with_id(name, topic)
            for name, topic in topics.items()
            if topic.copyable_partition_count > 0
        }

    def id_problem(self, name: str) -> KafkaError | None:
        """Why it is not known whether a source topic was recreated: configsync reports another id than that
        of its positions, and the source has not answered; or the source itself reports the id of a deleted
        topic, as a broker does that lags behind, or another cluster. The topic neither begins again nor is
        copied meanwhile; it counts as the one of its positions."""
        if name in self._returned:
            topic_id, _ = self._returned[name]
            return TransientKafkaError(f"the source reports the id of an earlier topic ({topic_id})")
        return self._id_problems.get(name)

    def forget(self) -> None:
        """Another process may have owned the flow, and seen other topics, since the clusters were asked."""
        self._ids.clear()
        self._id_problems.clear()
        self._returned.clear()
        self._ids_due_at = 0.0

    def _with_id(self, name: str, topic: ReplicatedTopic) -> ReplicatedTopic:
        topic_id = self._ids.get(name, topic.source_topic_id)
        mark = self.book.control.topics.get(name)
        is_unknown = name in self._id_problems or name in self._returned
        # What only configsync says may be older than the mark.
        is_outdated = mark is not None and name not in self._ids and topic_id in mark.former_ids
        if mark is not None and (is_unknown or is_outdated):
            topic_id = mark.topic_id
        # Mostly they agree, and copying all topics every second would be a large part of a flow's cost.
        return topic if topic_id == topic.source_topic_id else replace(topic, source_topic_id=topic_id)

    def _is_copy_doubted(self, topic: ReplicatedTopic) -> bool:
        """Whether the source topic was recreated, and its copy not, as far as is known: both may have been.
        Brokers before Kafka 4.1 take what is copied by the name, so it would be copied again once the new
        copy is noticed."""
        marks = self.book.marks
        return marks.source_was_recreated(topic) and not marks.target_was_recreated(topic)

    async def _look_at_ids(self, topics: Mapping[str, ReplicatedTopic], now: float) -> None:
        """Ask the source for the ids of its topics: a topic that was recreated within a moment must not be
        read from the old position for long."""
        due = now >= self._ids_due_at
        if due:
            self._ids_due_at = now + max(IDS.seconds(self.flows), len(topics) / IDS_TOPICS_PER_SECOND)
            # Ids of topics that leave are dropped. The others stay also while the source does not answer:
            # configsync may still report the id of the deleted topic.
            self._ids = {name: topic_id for name, topic_id in self._ids.items() if name in topics}
        suspected = {
            row.partition.topic
            for row in self.book.table.rows.values()
            if row.task_reason == PartitionReason.TRUNCATION_SUSPECTED
        }
        unconfirmed = {name for name, topic in topics.items() if self._is_unconfirmed(name, topic)}
        self._id_problems = {
            name: problem for name, problem in self._id_problems.items() if name in unconfirmed
        }
        self._returned = {name: since for name, since in self._returned.items() if name in topics}
        urgent = (
            (suspected & topics.keys()) | (unconfirmed - self._id_problems.keys()) | self._returned.keys()
        )
        asked = list(topics) if due else sorted(urgent)
        if not asked:
            return
        described = await self.book.source.describe_topics(asked)
        for name, found in described.items():
            if not isinstance(found, KafkaError):
                self._id_problems.pop(name, None)
                if found.topic_id and not self._is_returned(name, found.topic_id, now):
                    self._ids[name] = found.topic_id
            elif name in unconfirmed:
                self._id_problems[name] = found

    def _is_returned(self, name: str, topic_id: str, now: float) -> bool:
        """Whether the source reports the id of a deleted topic, and not for so long that it must be the
        topic's: then this is another cluster, or an earlier state of the same one."""
        mark = self.book.control.topics.get(name)
        if mark is None or topic_id not in mark.former_ids:
            self._returned.pop(name, None)
            return False
        before, since = self._returned.get(name, (topic_id, now))
        if before == topic_id and now - since >= BROKER_LAG_SECONDS:
            del self._returned[name]
            return False
        self._returned[name] = topic_id, since if before == topic_id else now
        return True

    def _is_unconfirmed(self, name: str, topic: ReplicatedTopic) -> bool:
        """Whether only configsync says that the topic was recreated."""
        mark = None if name in self._ids else self.book.control.topics.get(name)
        if mark is None or not mark.topic_id:
            return False
        return topic.source_topic_id not in ("", mark.topic_id, *mark.former_ids)
