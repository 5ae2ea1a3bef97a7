"""Topics and configs of a fake cluster."""

from collections.abc import Collection, Mapping, Sequence

from twinlog.errors import KafkaError, TransientKafkaError
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.errors import from_code
from twinlog.kafka.ports import (
    BrokerDescription,
    ConfigChange,
    ConfigEntry,
    ConfigSource,
    NewTopic,
    Outage,
    TopicDescription,
)
from twinlog.testing.fakes.cluster_base import KAFKA_INTERNAL_TOPICS, FakeClusterBase
from twinlog.testing.fakes.cluster_hooks import operation
from twinlog.testing.fakes.cluster_state import (
    TOPIC_CONFIG_DEFAULTS,
    FakeLog,
    FakeTopic,
    config_problem,
    new_kafka_id,
    topic_name_problem,
)

_FIRST_PORT = 9092


class FakeTopicAdmin(FakeClusterBase):
    """`TopicAdmin` in memory."""

    def add_topic(
        self, name: str, partition_count: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic at once; one of that name is replaced, with a new topic id and empty logs."""
        self.topics[name] = FakeTopic(
            topic_id=new_kafka_id(),
            replication_factor=1,
            logs=[FakeLog() for _ in range(partition_count)],
            configs=dict(configs or {}),
        )
        self.changed()

    def replace_id(self, cluster_id: str) -> None:
        """Become another cluster with the same topics."""
        self._cluster_id = cluster_id

    @operation
    async def cluster_id(self) -> str:
        return self._cluster_id

    @operation
    async def brokers(self) -> Sequence[BrokerDescription]:
        return [
            BrokerDescription(node_id=number, host=self.alias, port=_FIRST_PORT + number, rack=None)
            for number in range(1, self._broker_count + 1)
        ]

    @operation
    async def outage(self, whole: Collection[int] = ()) -> tuple[frozenset[int], Outage]:
        up = frozenset(range(1, self._broker_count + 1)) - self.silent_brokers
        return up, Outage(brokers=frozenset(self.silent_brokers))

    @operation
    async def list_topics(self) -> Collection[str]:
        return sorted(name for name in self.topics if name not in KAFKA_INTERNAL_TOPICS)

    async def describe_topics(self, names: Collection[str]) -> Mapping[str, TopicDescription | KafkaError]:
        """As with a real cluster, an outage is an error of each topic."""
        try:
            return await self._describe_topics(names)
        except TransientKafkaError as error:
            return dict.fromkeys(names, error)

    @operation
    async def _describe_topics(self, names: Collection[str]) -> Mapping[str, TopicDescription | KafkaError]:
        return {name: self._description(name) for name in names}

    @operation
    async def create_topics(self, topics: Collection[NewTopic]) -> Mapping[str, KafkaError | None]:
        return {topic.name: self._create(topic) for topic in topics}

    @operation
    async def create_partitions(self, counts: Mapping[str, int]) -> Mapping[str, KafkaError | None]:
        outcome: dict[str, KafkaError | None] = {}
        for name, count in counts.items():
            topic = self.topics.get(name)
            if topic is None:
                outcome[name] = from_code(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "add partitions", alias=self.alias
                )
            elif count <= len(topic.logs):
                outcome[name] = from_code(ErrorCode.INVALID_PARTITIONS, "add partitions", alias=self.alias)
            else:
                topic.logs += [FakeLog() for _ in range(count - len(topic.logs))]
                outcome[name] = None
        self.changed()
        return outcome

    @operation
    async def delete_topics(self, names: Collection[str]) -> Mapping[str, KafkaError | None]:
        outcome: dict[str, KafkaError | None] = {}
        for name in names:
            known = self.topics.pop(name, None) is not None
            outcome[name] = (
                None
                if known
                else from_code(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "delete topics", alias=self.alias)
            )
            for group in self.groups.values():
                for partition in [one for one in group.offsets if one.topic == name]:
                    del group.offsets[partition]
        self.changed()
        return outcome

    def _description(self, name: str) -> TopicDescription | KafkaError:
        topic = self.topics.get(name)
        if topic is None:
            return from_code(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "describe topics", alias=self.alias)
        return TopicDescription(
            name=name,
            topic_id=topic.topic_id,
            partition_count=len(topic.logs),
            replication_factor=topic.replication_factor,
            internal=name in KAFKA_INTERNAL_TOPICS,
        )

    def _create(self, topic: NewTopic) -> KafkaError | None:
        doing = f"create topic {topic.name}"
        if topic.name in self.topics:
            return from_code(ErrorCode.TOPIC_ALREADY_EXISTS, doing, alias=self.alias)
        if topic.partition_count < 1:
            return from_code(ErrorCode.INVALID_PARTITIONS, doing, alias=self.alias)
        if not (topic.replication_factor == -1 or 0 < topic.replication_factor <= self._broker_count):
            return from_code(ErrorCode.INVALID_REPLICATION_FACTOR, doing, alias=self.alias)
        problems = [topic_name_problem(topic.name, doing, self.alias)]
        problems += [config_problem(name, value, doing, self.alias) for name, value in topic.configs.items()]
        for problem in problems:
            if problem is not None:
                return problem
        self.add_topic(topic.name, topic.partition_count, topic.configs)
        self.topics[topic.name].replication_factor = max(1, topic.replication_factor)
        return None


class FakeConfigAdmin(FakeClusterBase):
    """`ConfigAdmin` in memory."""

    @operation
    async def describe_topic_configs(
        self, names: Collection[str], *, keys: Collection[str] = ()
    ) -> Mapping[str, Sequence[ConfigEntry] | KafkaError]:
        found = {name: self._topic_configs(name) for name in names}
        return {
            name: entries
            if isinstance(entries, KafkaError) or not keys
            else [entry for entry in entries if entry.name in keys]
            for name, entries in found.items()
        }

    @operation
    async def describe_broker_configs(self) -> Sequence[ConfigEntry]:
        return [
            ConfigEntry(name=name, value=value, source=ConfigSource.STATIC_BROKER, read_only=True)
            for name, value in sorted(self._broker_configs.items())
        ]

    @operation
    async def alter_topic_configs(
        self, changes: Mapping[str, Sequence[ConfigChange]]
    ) -> Mapping[str, KafkaError | None]:
        return {name: self._alter(name, wanted) for name, wanted in changes.items()}

    def _topic_configs(self, name: str) -> Sequence[ConfigEntry] | KafkaError:
        topic = self.topics.get(name)
        if topic is None:
            return from_code(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "describe topic configs", alias=self.alias)
        return [
            ConfigEntry(
                name=key,
                value=topic.config(key),
                source=ConfigSource.TOPIC if key in topic.configs else ConfigSource.DEFAULT,
            )
            for key in sorted(TOPIC_CONFIG_DEFAULTS)
        ]

    def _alter(self, name: str, wanted: Sequence[ConfigChange]) -> KafkaError | None:
        doing = "alter topic configs"
        topic = self.topics.get(name)
        if topic is None:
            return from_code(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, doing, alias=self.alias)
        for change in wanted:
            problem = config_problem(change.name, change.value, doing, self.alias)
            if problem is not None:
                return problem
        for change in wanted:
            if change.value is None:
                topic.configs.pop(change.name, None)
            else:
                topic.configs[change.name] = change.value
        return None
