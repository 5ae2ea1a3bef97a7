"""A Kafka cluster in memory behind the ports of `twinlog.kafka.ports`, for tests without brokers.

It passes the same contract suite as the real one. Beyond the ports it has what tests need: transactions
(`append_transaction`), holes (`punch_holes`), truncation, group states (`set_group`), an outage (`take_away`,
`bring_back`) and `intercept`, which runs a test's function before or after any operation:

    def refuse(call: Call) -> None:
        raise FatalKafkaError("no", reason="TOPIC_UNAUTHORIZED", code=29)

    undo = cluster.intercept("append", refuse)

It knows no principals: ACLs are kept and never enforced. Closing it keeps its state, so it can be opened by
several owners, one after the other or together.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from twinlog.clock import Clock, SystemClock
from twinlog.errors import KafkaError
from twinlog.kafka.errors import from_code
from twinlog.kafka.ports import (
    AclBinding,
    BrokerDescription,
    CommittedOffset,
    ConfigChange,
    ConfigEntry,
    ConfigSource,
    GroupDescription,
    KafkaCluster,
    ManagedReader,
    ManagedWriter,
    NewTopic,
    OffsetSpec,
    TopicDescription,
)
from twinlog.model import Record, TopicPartition
from twinlog.testing.fake_cluster_hooks import Call, Hook, Hooks, operation
from twinlog.testing.fake_cluster_io import FakeReader, FakeWriter
from twinlog.testing.fake_cluster_state import (
    TOPIC_CONFIG_DEFAULTS,
    FakeGroup,
    FakeLog,
    FakeTopic,
    Transaction,
    acl_problem,
    config_problem,
    new_kafka_id,
    topic_name_problem,
)

__all__ = ["Call", "FakeCluster", "Hook"]

_INACTIVE_STATES = frozenset({"EMPTY", "DEAD"})
_FIRST_PORT = 9092
KAFKA_INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


class FakeCluster:
    """`KafkaCluster` in memory. For one event loop."""

    def __init__(
        self,
        alias: str = "fake",
        *,
        clock: Clock | None = None,
        broker_count: int = 1,
        cluster_id: str | None = None,
        authorizer: bool = True,
        broker_configs: Mapping[str, str] | None = None,
    ) -> None:
        """`authorizer` False: ACL calls answer as a cluster without one.

        `broker_configs` are static configs of every broker.
        """
        self.alias = alias
        self.clock: Clock = clock or SystemClock()
        self.hooks = Hooks(alias)
        self.topics: dict[str, FakeTopic] = {}
        self.groups: dict[str, FakeGroup] = {}
        self.acls: set[AclBinding] = set()
        self._cluster_id = cluster_id or new_kafka_id()
        self._broker_count = broker_count
        self._broker_configs = dict(broker_configs or {})
        self._authorizer = authorizer
        self._change: asyncio.Future[None] | None = None

    async def __aenter__(self) -> KafkaCluster:
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Keeps everything."""

    def __repr__(self) -> str:
        return f"<FakeCluster {self.alias}>"

    def reader(self, *, read_committed: bool = True) -> ManagedReader:
        return FakeReader(self, read_committed=read_committed)

    def writer(self) -> ManagedWriter:
        return FakeWriter(self)

    # -------------------------------------------------------------------------------- what tests may do to it

    def intercept(self, operation: str, hook: Hook, *, after: bool = False) -> Callable[[], None]:
        """Call `hook` before (or after) every call of a port's method, e.g. "append" or "create_topics".

        Returns what takes the hook away again.
        """
        return self.hooks.add(operation, hook, after=after)

    def take_away(self) -> None:
        """Every operation now raises TransientKafkaError (KAFKA_UNAVAILABLE), until `bring_back`."""
        self.hooks.available = False
        self.changed()

    def bring_back(self) -> None:
        self.hooks.available = True

    def add_topic(
        self, name: str, partition_count: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        """Make a topic at once; one of that name is replaced, with a new topic id and empty logs."""
        self.topics[name] = FakeTopic(
            topic_id=new_kafka_id(),
            replication_factor=1,
            logs=[FakeLog() for _ in range(partition_count)],
            configs=dict(configs or {}),
        )
        self.changed()

    def append_transaction(
        self, partition: TopicPartition, records: Iterable[Record], outcome: Transaction
    ) -> int:
        """Append records of one transaction, and its marker unless `outcome` is OPEN.

        Returns the transaction's number for `finish_transaction`. The records' own offsets are ignored.
        """
        log = self.log(partition, "append")
        number = log.begin()
        for record in records:
            log.append(record, number)
        if outcome is not Transaction.OPEN:
            log.finish(number, outcome)
        self.changed()
        return number

    def finish_transaction(self, partition: TopicPartition, number: int, outcome: Transaction) -> None:
        self.log(partition, "finish").finish(number, outcome)
        self.changed()

    def punch_holes(self, partition: TopicPartition, offsets: Collection[int]) -> None:
        """Remove single records, as compaction does."""
        self.log(partition, "compact").remove(set(offsets))

    def truncate(self, partition: TopicPartition, end: int) -> None:
        """Lose the log's tail, as an unclean leader election may."""
        self.log(partition, "truncate").truncate(end)
        self.changed()

    def records(self, partition: TopicPartition) -> Sequence[Record]:
        """Every record in a log, also of open and aborted transactions."""
        return self.log(partition, "look").records()

    def set_group(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int] | None = None,
        *,
        state: str = "EMPTY",
        group_type: str = "classic",
        member_count: int = 0,
    ) -> None:
        """Make or change a group; given offsets (next to read) are added to those it has."""
        group = self.groups.setdefault(group_id, FakeGroup())
        group.state, group.group_type, group.member_count = state, group_type, member_count
        for partition, next_offset in (offsets or {}).items():
            group.offsets[partition] = CommittedOffset(next_offset=next_offset)

    # ------------------------------------------------------------------------------ for its reader and writer

    def log(self, partition: TopicPartition, doing: str) -> FakeLog:
        """A partition's log. Raises FatalKafkaError TOPIC_UNKNOWN."""
        topic = self.topics.get(partition.topic)
        if topic is None or not 0 <= partition.partition < len(topic.logs):
            raise from_code(3, doing, alias=self.alias)
        return topic.logs[partition.partition]

    def changed(self) -> None:
        """Wake readers that wait."""
        change, self._change = self._change, None
        if change is not None and not change.done():
            change.set_result(None)

    def next_change(self) -> "asyncio.Future[None]":
        """Done when something has changed after this call."""
        if self._change is None:
            self._change = asyncio.get_running_loop().create_future()
        return self._change

    # ------------------------------------------------------------------------------------------------ topics

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
    async def list_topics(self) -> Collection[str]:
        return sorted(name for name in self.topics if name not in KAFKA_INTERNAL_TOPICS)

    @operation
    async def describe_topics(self, names: Collection[str]) -> Mapping[str, TopicDescription | KafkaError]:
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
                outcome[name] = from_code(3, "add partitions", alias=self.alias)
            elif count <= len(topic.logs):
                outcome[name] = from_code(37, "add partitions", alias=self.alias)
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
            outcome[name] = None if known else from_code(3, "delete topics", alias=self.alias)
            for group in self.groups.values():
                for partition in [one for one in group.offsets if one.topic == name]:
                    del group.offsets[partition]
        self.changed()
        return outcome

    def _description(self, name: str) -> TopicDescription | KafkaError:
        topic = self.topics.get(name)
        if topic is None:
            return from_code(3, "describe topics", alias=self.alias)
        return TopicDescription(
            name=name,
            topic_id=topic.topic_id,
            partition_count=len(topic.logs),
            replication_factor=topic.replication_factor,
            internal=name in KAFKA_INTERNAL_TOPICS,
        )

    def _create(self, topic: NewTopic) -> KafkaError | None:
        doing = "create topics"
        if topic.name in self.topics:
            return from_code(36, doing, alias=self.alias)
        if topic.partition_count < 1:
            return from_code(37, doing, alias=self.alias)
        if not (topic.replication_factor == -1 or 0 < topic.replication_factor <= self._broker_count):
            return from_code(38, doing, alias=self.alias)
        problems = [topic_name_problem(topic.name, doing, self.alias)]
        problems += [config_problem(name, value, doing, self.alias) for name, value in topic.configs.items()]
        for problem in problems:
            if problem is not None:
                return problem
        self.add_topic(topic.name, topic.partition_count, topic.configs)
        self.topics[topic.name].replication_factor = max(1, topic.replication_factor)
        return None

    # ------------------------------------------------------------------------------------------------ configs

    @operation
    async def describe_topic_configs(
        self, names: Collection[str]
    ) -> Mapping[str, Sequence[ConfigEntry] | KafkaError]:
        return {name: self._topic_configs(name) for name in names}

    @operation
    async def describe_broker_configs(self, node_id: int) -> Sequence[ConfigEntry]:
        if not 1 <= node_id <= self._broker_count:
            raise from_code(7, f"describe the configs of broker {node_id}", alias=self.alias)
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
            return from_code(3, "describe topic configs", alias=self.alias)
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
            return from_code(3, doing, alias=self.alias)
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

    # --------------------------------------------------------------------------------------------------- ACLs

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
        self.acls -= set(bindings)
        return {binding: self._acl_problem(binding, "delete an ACL") for binding in bindings}

    def _acl_problem(self, binding: AclBinding, doing: str) -> KafkaError | None:
        if not self._authorizer:
            return from_code(54, doing, alias=self.alias)
        return acl_problem(binding, doing, self.alias)

    # ------------------------------------------------------------------------------------------------- groups

    @operation
    async def list_groups(self) -> Mapping[str, str]:
        return {group_id: group.group_type for group_id, group in self.groups.items()}

    @operation
    async def describe_groups(
        self, group_ids: Collection[str]
    ) -> Mapping[str, GroupDescription | KafkaError]:
        found: dict[str, GroupDescription | KafkaError] = {}
        for group_id in group_ids:
            group = self.groups.get(group_id, FakeGroup(state="DEAD"))
            found[group_id] = GroupDescription(
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
            group_id: dict(self.groups[group_id].offsets) if group_id in self.groups else {}
            for group_id in group_ids
        }

    @operation
    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> Mapping[TopicPartition, KafkaError | None]:
        doing = f"commit for group {group_id}"
        group = self.groups.get(group_id, FakeGroup())
        if group.state not in _INACTIVE_STATES:
            return {partition: from_code(25, doing, alias=self.alias) for partition in offsets}
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
                outcome[group_id] = from_code(69, "delete groups", alias=self.alias)
            elif group.state not in _INACTIVE_STATES:
                outcome[group_id] = from_code(68, "delete groups", alias=self.alias)
            else:
                del self.groups[group_id]
                outcome[group_id] = None
        return outcome

    # ---------------------------------------------------------------------------------------------------- log

    @operation
    async def list_offsets(
        self, spec: OffsetSpec, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int | KafkaError]:
        def answer(log: FakeLog) -> int:
            if spec is OffsetSpec.EARLIEST:
                return log.start
            return log.end if spec is OffsetSpec.LATEST else log.last_stable

        return {one: self._of_log(one, f"list {spec} offsets", answer) for one in partitions}

    @operation
    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int | KafkaError | None]:
        found: dict[TopicPartition, int | KafkaError | None] = {}
        for partition, timestamp_ms in timestamps_ms.items():
            try:
                found[partition] = self.log(partition, "look up offsets by time").first_at(timestamp_ms)
            except KafkaError as error:
                found[partition] = error
        return found

    @operation
    async def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, KafkaError | None]:
        outcome: dict[TopicPartition, KafkaError | None] = {}
        for partition, offset in before.items():
            try:
                log = self.log(partition, "delete records")
            except KafkaError as error:
                outcome[partition] = error
                continue
            beyond = offset > log.end
            outcome[partition] = from_code(1, "delete records", alias=self.alias) if beyond else None
            if not beyond:
                log.delete_before(offset)
        return outcome

    def _of_log(
        self, partition: TopicPartition, doing: str, answer: Callable[[FakeLog], int]
    ) -> int | KafkaError:
        try:
            return answer(self.log(partition, doing))
        except KafkaError as error:
            return error
