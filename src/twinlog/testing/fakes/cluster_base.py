"""The state of a fake cluster, which its admin calls, readers and writers share."""

import asyncio
from collections.abc import Mapping
from itertools import count
from typing import TYPE_CHECKING

from twinlog.clock import Clock, SystemClock
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.errors import from_code
from twinlog.kafka.ports import AclBinding, QuotaEntity
from twinlog.model import TopicPartition
from twinlog.testing.fakes.cluster_hooks import Hooks
from twinlog.testing.fakes.cluster_state import FakeGroup, FakeLog, FakeTopic, new_kafka_id

if TYPE_CHECKING:
    from twinlog.testing.fakes.cluster_members import FakeMemberGroup

KAFKA_INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


class FakeClusterBase:
    """Topics, groups and ACLs; waking of readers."""

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
        self.quotas: dict[QuotaEntity, dict[str, float]] = {}
        self.member_groups: dict[str, FakeMemberGroup] = {}
        self.users: dict[str, frozenset[str]] = {}
        self._cluster_id = cluster_id or new_kafka_id()
        self._broker_count = broker_count
        self.silent_brokers: set[int] = set()
        """Node ids of those that do not answer, of 1 to `broker_count`."""
        self._broker_configs = dict(broker_configs or {})
        self._authorizer = authorizer
        self._change: asyncio.Future[None] | None = None
        self._producers = count(1_000)

    def new_producer_id(self) -> int:
        return next(self._producers)

    def log(self, partition: TopicPartition, doing: str) -> FakeLog:
        """A partition's log. Raises FatalKafkaError TOPIC_UNKNOWN."""
        topic = self.topics.get(partition.topic)
        if topic is None or not 0 <= partition.partition < len(topic.logs):
            raise from_code(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, doing, alias=self.alias)
        return topic.logs[partition.partition]

    def changed(self) -> None:
        """Wake waiting readers."""
        change, self._change = self._change, None
        if change is not None and not change.done():
            change.set_result(None)

    def next_change(self) -> "asyncio.Future[None]":
        """Returns at the first change after this call."""
        if self._change is None:
            self._change = asyncio.get_running_loop().create_future()
        return self._change
