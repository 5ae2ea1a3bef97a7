"""Topics, configs, ACLs and groups of a fake cluster."""

from collections.abc import Collection, Mapping, Sequence

from twinlog.errors import KafkaError, TransientKafkaError
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.errors import from_code
from twinlog.kafka.groups.offsets import LISTED_PROTOCOLS
from twinlog.kafka.ports import (
    AclBinding,
    BrokerDescription,
    CommittedOffset,
    ConfigChange,
    ConfigEntry,
    ConfigSource,
    GroupDescription,
    NewTopic,
    Outage,
    TopicDescription,
)
from twinlog.model import TopicPartition
from twinlog.testing.broker.configs import TOPIC_CONFIG_DEFAULTS
from twinlog.testing.fakes.cluster_base import KAFKA_INTERNAL_TOPICS, FakeClusterBase, operation
from twinlog.testing.fakes.cluster_state import (
    FakeGroup,
    FakeLog,
    FakeTopic,
    acl_problem,
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


# ACLs and groups of a fake cluster.

_PROTOCOLS = {"classic": "consumer", "consumer": "consumer", "share": "share", "streams": "streams"}
_INACTIVE_STATES = frozenset({"EMPTY", "DEAD"})


class FakeAclAdmin(FakeClusterBase):
    """`AclAdmin` in memory. Nothing is enforced."""

    @operation
    async def describe_acls(self, resource_type: str = "ANY") -> Collection[AclBinding] | None:
        if not self._authorizer:
            return None
        return sorted(binding for binding in self.acls if resource_type in ("ANY", binding.resource_type))

    @operation
    async def create_acls(self, bindings: Collection[AclBinding]) -> Mapping[AclBinding, KafkaError | None]:
        outcome = {binding: self._acl_problem(binding, "create an ACL") for binding in bindings}
        self.acls |= {binding for binding, problem in outcome.items() if problem is None}
        return outcome

    @operation
    async def delete_acls(self, bindings: Collection[AclBinding]) -> Mapping[AclBinding, KafkaError | None]:
        outcome = {binding: self._acl_problem(binding, "delete an ACL") for binding in bindings}
        self.acls -= {binding for binding, problem in outcome.items() if problem is None}
        return outcome

    def _acl_problem(self, binding: AclBinding, doing: str) -> KafkaError | None:
        if not self._authorizer:
            return from_code(ErrorCode.SECURITY_DISABLED, doing, alias=self.alias)
        return acl_problem(binding, doing, self.alias)


class FakeGroupAdmin(FakeClusterBase):
    """`GroupAdmin` in memory."""

    def set_group(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int] | None = None,
        *,
        state: str = "EMPTY",
        group_type: str = "classic",
        protocol_type: str | None = None,
        member_count: int = 0,
    ) -> None:
        """Create or change a group; the given offsets (next to read) are added to its own.

        Without a protocol it has that of its type.
        """
        group = self.groups.setdefault(group_id, FakeGroup())
        group.protocol_type = _PROTOCOLS[group_type] if protocol_type is None else protocol_type
        group.state, group.group_type, group.member_count = state, group_type, member_count
        for partition, next_offset in (offsets or {}).items():
            group.offsets[partition] = CommittedOffset(next_offset=next_offset)

    def refuse_group(self, group_id: str) -> None:
        """Answer every request about the group with GROUP_AUTHORIZATION_FAILED."""
        self.groups[group_id].refusal_code = 30

    def _refusal(self, group_id: str, doing: str) -> KafkaError | None:
        code = self.groups[group_id].refusal_code if group_id in self.groups else 0
        return from_code(code, f"{doing} {group_id}", alias=self.alias) if code else None

    @operation
    async def list_groups(self) -> Mapping[str, str]:
        return {
            group_id: group.group_type
            for group_id, group in self.groups.items()
            if group.protocol_type in LISTED_PROTOCOLS
        }

    @operation
    async def describe_groups(
        self, group_ids: Collection[str]
    ) -> Mapping[str, GroupDescription | KafkaError]:
        found: dict[str, GroupDescription | KafkaError] = {}
        for group_id in group_ids:
            group = self.groups.get(group_id, FakeGroup(state="DEAD"))
            found[group_id] = self._refusal(group_id, "describe group") or GroupDescription(
                group_id=group_id,
                state=group.state,
                group_type=group.group_type,
                member_count=group.member_count,
            )
        return found

    @operation
    async def group_offsets(
        self, group_ids: Collection[str]
    ) -> Mapping[str, Mapping[TopicPartition, CommittedOffset] | KafkaError]:
        return {
            group_id: self._refusal(group_id, "read offsets of group")
            or (dict(self.groups[group_id].offsets) if group_id in self.groups else {})
            for group_id in group_ids
        }

    @operation
    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> Mapping[TopicPartition, KafkaError | None]:
        doing = f"commit for group {group_id}"
        group = self.groups.get(group_id, FakeGroup())
        if group.state not in _INACTIVE_STATES:
            return {
                partition: from_code(ErrorCode.UNKNOWN_MEMBER_ID, doing, alias=self.alias)
                for partition in offsets
            }
        outcome: dict[TopicPartition, KafkaError | None] = {}
        for partition, committed in offsets.items():
            try:
                self.log(partition, doing)
            except KafkaError as error:
                outcome[partition] = error
                continue
            self.groups.setdefault(group_id, group).offsets[partition] = committed
            outcome[partition] = None
        return outcome

    @operation
    async def delete_groups(self, group_ids: Collection[str]) -> Mapping[str, KafkaError | None]:
        outcome: dict[str, KafkaError | None] = {}
        for group_id in group_ids:
            group = self.groups.get(group_id)
            if group is None:
                outcome[group_id] = from_code(ErrorCode.GROUP_ID_NOT_FOUND, "delete groups", alias=self.alias)
            elif group.state not in _INACTIVE_STATES:
                outcome[group_id] = from_code(ErrorCode.NON_EMPTY_GROUP, "delete groups", alias=self.alias)
            else:
                del self.groups[group_id]
                outcome[group_id] = None
        return outcome
