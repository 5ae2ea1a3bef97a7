"""Topics, configs, ACLs and groups of a fake cluster."""

from collections.abc import Collection, Mapping, Sequence

from twinlog.errors import KafkaError, TransientKafkaError
from twinlog.kafka.admin.settings import to_wire
from twinlog.kafka.admin.topics import KAFKA_INTERNAL_TOPICS
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.errors import from_code
from twinlog.kafka.groups.offsets import LISTED_PROTOCOLS
from twinlog.kafka.outage import Outage
from twinlog.kafka.ports import (
    NO_BROKERS,
    AclBinding,
    CommittedOffset,
    ConfigChange,
    ConfigEntry,
    ConfigSource,
    GroupDescription,
    NewTopic,
    Presence,
    TopicDescription,
)
from twinlog.local.broker import new_kafka_id
from twinlog.model import TopicPartition
from twinlog.testing.broker.configs import TOPIC_CONFIG_DEFAULTS
from twinlog.testing.fakes.cluster_base import FakeClusterBase, operation
from twinlog.testing.fakes.cluster_state import (
    FakeGroup,
    FakeLog,
    FakeTopic,
    check_config,
    check_topic_name,
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
    async def presence(self) -> Presence:
        every = range(1, self._broker_count + 1)
        return Presence(self._cluster_id, {number: self._address(number) for number in every})

    @operation
    async def outage(self, present: Presence, whole: Mapping[int, str] = NO_BROKERS) -> Outage:
        return Outage(brokers={number: self._address(number) for number in self.silent_brokers})

    def _address(self, number: int) -> str:
        return f"{self.alias}:{_FIRST_PORT + number}"

    @operation
    async def list_topics(self) -> Collection[str]:
        return sorted(self.topics.keys() - KAFKA_INTERNAL_TOPICS)

    async def describe_topics(self, names: Collection[str]) -> Mapping[str, TopicDescription | KafkaError]:
        """As with a real cluster, an outage is an error of each topic."""
        try:
            return await self._describe_topics(names)
        except TransientKafkaError as error:
            return dict.fromkeys(names, error)

    @operation
    async def _describe_topics(self, names: Collection[str]) -> Mapping[str, TopicDescription | KafkaError]:
        return self.each(names, self._description)

    @operation
    async def create_topics(self, topics: Collection[NewTopic]) -> Mapping[str, KafkaError | None]:
        by_name = {topic.name: topic for topic in topics}
        return self.each(by_name, lambda name: self._create(by_name[name]))

    @operation
    async def create_partitions(self, counts: Mapping[str, int]) -> Mapping[str, KafkaError | None]:
        def grow(name: str) -> None:
            logs, count = self.topic(name, "add partitions").logs, counts[name]
            if count <= len(logs):
                raise self.refusal(ErrorCode.invalid_partitions, "add partitions")
            logs += [FakeLog() for _ in range(count - len(logs))]

        outcome = self.each(counts, grow)
        self.changed()
        return outcome

    @operation
    async def delete_topics(self, names: Collection[str]) -> Mapping[str, KafkaError | None]:
        def delete(name: str) -> None:
            for group in self.groups.values():
                group.offsets = {at: offset for at, offset in group.offsets.items() if at.topic != name}
            self.topic(name, "delete topics")
            del self.topics[name]

        outcome = self.each(names, delete)
        self.changed()
        return outcome

    def _description(self, name: str) -> TopicDescription:
        topic = self.topic(name, "describe topics")
        return TopicDescription(
            name=name,
            topic_id=topic.topic_id,
            partition_count=len(topic.logs),
            replication_factor=topic.replication_factor,
            internal=name in KAFKA_INTERNAL_TOPICS,
        )

    def _create(self, topic: NewTopic) -> None:
        doing, factor = f"create topic {topic.name}", topic.replication_factor
        if topic.name in self.topics:
            raise self.refusal(ErrorCode.topic_already_exists, doing)
        if topic.partition_count < 1:
            raise self.refusal(ErrorCode.invalid_partitions, doing)
        if not (factor == -1 or 0 < factor <= self._broker_count):
            raise self.refusal(ErrorCode.invalid_replication_factor, doing)
        check_topic_name(topic.name, doing, self.alias)
        for name, value in topic.configs.items():
            check_config(name, value, doing, self.alias)
        self.add_topic(topic.name, topic.partition_count, topic.configs)
        self.topics[topic.name].replication_factor = max(1, factor)


class FakeConfigAdmin(FakeClusterBase):
    """`ConfigAdmin` in memory."""

    @operation
    async def describe_topic_configs(
        self, names: Collection[str], *, keys: Collection[str] = ()
    ) -> Mapping[str, Sequence[ConfigEntry] | KafkaError]:
        def configs(name: str) -> Sequence[ConfigEntry]:
            topic = self.topic(name, "describe topic configs")
            return [
                ConfigEntry(
                    name=key,
                    value=topic.config(key),
                    source=ConfigSource.TOPIC if key in topic.configs else ConfigSource.DEFAULT,
                )
                for key in sorted(TOPIC_CONFIG_DEFAULTS)
                if not keys or key in keys
            ]

        return self.each(names, configs)

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
        return self.each(changes, lambda name: self._alter(name, changes[name]))

    def _alter(self, name: str, wanted: Sequence[ConfigChange]) -> None:
        doing = "alter topic configs"
        topic = self.topic(name, doing)
        for change in wanted:
            check_config(change.name, change.value, doing, self.alias)
        for change in wanted:
            if change.value is None:
                topic.configs.pop(change.name, None)
            else:
                topic.configs[change.name] = change.value


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
            return self.refusal(ErrorCode.security_disabled, doing)
        try:
            to_wire(binding)
        except KeyError as error:
            detail = f"Kafka has no {error.args[0]}"
            return from_code(ErrorCode.invalid_request, doing, alias=self.alias, detail=detail)
        return None


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

    def _group(self, group_id: str, doing: str) -> FakeGroup:
        """One that does not exist is dead. Raises FatalKafkaError."""
        group = self.groups.get(group_id) or FakeGroup(state="DEAD")
        if group.refusal_code:
            raise self.refusal(group.refusal_code, f"{doing} {group_id}")
        return group

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
        def describe(group_id: str) -> GroupDescription:
            group = self._group(group_id, "describe group")
            return GroupDescription(
                group_id=group_id,
                state=group.state,
                group_type=group.group_type,
                member_count=group.member_count,
            )

        return self.each(group_ids, describe)

    @operation
    async def group_offsets(
        self, group_ids: Collection[str]
    ) -> Mapping[str, Mapping[TopicPartition, CommittedOffset] | KafkaError]:
        return self.each(group_ids, lambda each: dict(self._group(each, "read offsets of group").offsets))

    @operation
    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> Mapping[TopicPartition, KafkaError | None]:
        doing = f"commit for group {group_id}"
        group = self.groups.get(group_id, FakeGroup())

        def commit(partition: TopicPartition) -> None:
            if group.state not in _INACTIVE_STATES:
                raise self.refusal(ErrorCode.unknown_member_id, doing)
            self.log(partition, doing)
            self.groups.setdefault(group_id, group).offsets[partition] = offsets[partition]

        return self.each(offsets, commit)

    @operation
    async def delete_groups(self, group_ids: Collection[str]) -> Mapping[str, KafkaError | None]:
        def delete(group_id: str) -> None:
            if group_id not in self.groups:
                raise self.refusal(ErrorCode.group_id_not_found, "delete groups")
            if self.groups[group_id].state not in _INACTIVE_STATES:
                raise self.refusal(ErrorCode.non_empty_group, "delete groups")
            del self.groups[group_id]

        return self.each(group_ids, delete)
