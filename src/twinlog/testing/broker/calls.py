"""What a handler is given, and how handlers are found."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map

from twinlog.kafka.protocol.requests import API_KEYS
from twinlog.testing.broker.acls import OPERATIONS, Login, Operation, Resource
from twinlog.testing.broker.cluster import Cluster
from twinlog.testing.broker.codec import Fields, schema_versions
from twinlog.testing.broker.partitions import Node, Partition

# What brokers of a release offer in ApiVersions, so that clients negotiate as with them.

_HIGHEST_4 = {"init_producer_id": 5}
"""Where the newest schema is not offered: v6 is unstable (KIP-939)."""
_HIGHEST_3_9 = {
    "produce": 11, "fetch": 17, "list_offsets": 9, "metadata": 12, "offset_commit": 9, "offset_fetch": 9,
    "describe_groups": 5, "init_producer_id": 5, "end_txn": 4, "write_txn_markers": 1, "describe_cluster": 1,
}  # fmt: skip
_HIGHEST_3_3 = {
    **_HIGHEST_3_9, "api_versions": 3, "produce": 9, "fetch": 13, "list_offsets": 7, "find_coordinator": 4,
    "init_producer_id": 4, "add_partitions_to_txn": 3, "end_txn": 3, "list_groups": 4, "offset_commit": 8,
    "offset_fetch": 8, "describe_cluster": 0,
}  # fmt: skip
_HIGHEST_2_8 = {
    **_HIGHEST_3_3, "metadata": 11, "fetch": 12, "list_offsets": 6, "find_coordinator": 3, "join_group": 7,
    "leave_group": 4, "offset_fetch": 7, "describe_acls": 2, "create_acls": 2, "delete_acls": 2,
}  # fmt: skip


_GROUP_FEATURES = {
    "consumer": "group.version",
    "share": "share.version",
    "streams": "streams.version",
}


@dataclass(frozen=True)
class Release:
    """A broker release: the versions that it offers, and its features."""

    name: str
    highest: Mapping[str, int] = field(repr=False)
    """By kio's name of an API; for others the newest schema."""
    missing: Collection[str] = field(repr=False, default=())
    features: Mapping[str, int] = field(default_factory=dict)
    """The finalized level by name; `transaction.version` 2 lets producers write without
    AddPartitionsToTxn (KIP-890)."""

    def offered(self, api_key: int) -> tuple[int, int] | None:
        """The lowest and highest version, None for an API that it does not have."""
        return self._ranges.get(api_key)

    verifies_transactions: bool = True
    """Whether leaders ask the coordinator before the first batch of a transaction (since 3.6)."""

    @property
    def is_before_4(self) -> bool:
        return self.name < "4"

    @property
    def has_zookeeper(self) -> bool:
        return self.name < "3"

    @property
    def group_types(self) -> set[str]:
        """The protocols that groups can have."""
        return {"classic", *(kind for kind, name in _GROUP_FEATURES.items() if self.features.get(name))}

    @cached_property
    def _ranges(self) -> dict[int, tuple[int, int]]:
        ranges = {}
        for key, name in api_key_map.items():
            lowest, highest = schema_versions(key)
            if name not in self.missing:
                if self.is_before_4 or name == "produce":
                    lowest = 0  # KIP-896 dropped versions. Of these the oldest are told, but cannot be read.
                ranges[key] = (lowest, min(highest, self.highest.get(name, highest)))
        return ranges


_FEATURES_4_3 = {
    "eligible.leader.replicas.version": 1, "group.version": 1, "metadata.version": 30, "share.version": 1,
    "streams.version": 1, "transaction.version": 2,
}  # fmt: skip
KAFKA_4_4 = Release("4.4", _HIGHEST_4, features={**_FEATURES_4_3, "metadata.version": 33, "share.version": 2})
KAFKA_4_3 = Release("4.3", _HIGHEST_4, features=_FEATURES_4_3)
KAFKA_3_9 = Release("3.9", _HIGHEST_3_9, features={"metadata.version": 21})
KAFKA_3_3 = Release(
    "3.3",
    _HIGHEST_3_3,
    # KRaft: SCRAM users came with 3.5.
    {"describe_user_scram_credentials"},
    features={"metadata.version": 7},
    verifies_transactions=False,
)
KAFKA_2_8 = Release(
    "2.8",
    _HIGHEST_2_8,
    {"describe_transactions"},
    verifies_transactions=False,
)
"""With ZooKeeper."""
RELEASES = (KAFKA_4_4, KAFKA_4_3, KAFKA_3_9, KAFKA_3_3, KAFKA_2_8)


# Waits for partitions to change.


async def wait_until(partitions: Sequence[Partition], done: Callable[[], bool], seconds: float) -> bool:
    """Look again after each change of one of the partitions. Returns False when the time is up."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not done():
        if loop.time() >= deadline:
            return False
        changed: asyncio.Future[None] = loop.create_future()
        for partition in partitions:
            partition.waiting[changed] = None
        timer = loop.call_at(deadline, _end, changed)
        try:
            await changed
        finally:
            timer.cancel()
            for partition in partitions:
                partition.waiting.pop(changed, None)
    return True


def _end(changed: "asyncio.Future[None]") -> None:
    if not changed.done():
        changed.set_result(None)


_OPERATIONS = {
    API_KEYS["produce"]: Operation.WRITE,
    API_KEYS["fetch"]: Operation.READ,
    API_KEYS["list_offsets"]: Operation.DESCRIBE,
    API_KEYS["offset_for_leader_epoch"]: Operation.DESCRIBE,
    API_KEYS["delete_records"]: Operation.DELETE,
    API_KEYS["describe_producers"]: Operation.READ,
}
"""What a client does with the partitions that it names."""


@dataclass(slots=True, kw_only=True)
class Call:
    """One request on its way to an answer."""

    cluster: Cluster
    node: Node
    """The broker that was asked."""
    release: Release
    api_key: int
    version: int
    client_id: str
    client_host: str
    principal: str
    login: Login
    """Of the client's connection."""
    body: Any
    """The request: a class of kio."""
    injected: ErrorCode = ErrorCode.none
    """What a fault wants to be answered, per partition or coordinator where the API has them."""
    offered: Mapping[int, tuple[int, int]]
    """By API key: the lowest and highest version that this broker serves."""

    def get(self, name: str, default: Any = None) -> Any:
        """A field of the request that not every version has."""
        return getattr(self.body, name, default)

    def allows(self, operation: Operation, resource: Resource, name: str) -> bool:
        """Whether the client may do that."""
        authorizer = self.cluster.authorizer
        return authorizer is None or authorizer.allows(
            self.principal, self.client_host, operation, resource, name
        )

    def authorized_operations(self, resource: Resource, name: str) -> int:
        """A bit for each operation that the client may do (KIP-430)."""
        return sum(1 << each for each in OPERATIONS[resource] if self.allows(each, resource, name))

    def leader_partition(
        self, topic: str, index: int, known_epoch: int = -1
    ) -> "tuple[Partition | None, ErrorCode]":
        """The partition if this broker leads it, otherwise why not.

        `known_epoch` is the leader epoch that the client knows, -1 for none (KIP-320).
        """
        operation = _OPERATIONS.get(self.api_key)
        if operation is not None and not self.allows(operation, Resource.TOPIC, topic):
            return None, ErrorCode.topic_authorization_failed
        partition = self.cluster.partition(topic, index)
        if partition is None:
            return None, ErrorCode.unknown_topic_or_partition
        if self.injected:
            return partition, self.injected
        if partition.leader != self.node.node_id:
            return partition, ErrorCode.not_leader_or_follower
        partition.retain(self.cluster.clock.now_ms())
        return partition, epoch_error(partition, known_epoch)


def epoch_error(partition: Partition, known_epoch: int) -> ErrorCode:
    """KIP-320: a client that knows an older leader epoch is told, and so is one that knows a newer one."""
    if known_epoch < 0 or known_epoch == partition.leader_epoch:
        return ErrorCode.none
    if known_epoch < partition.leader_epoch:
        return ErrorCode.fenced_leader_epoch
    return ErrorCode.unknown_leader_epoch


Handler = Callable[[Call], Awaitable[Fields | None]]
"""Returns the answer's fields, None for no answer (Produce with acks=0)."""


class Handlers(dict[int, Handler]):
    """By API key; each module of handlers fills one of its own."""

    def serves(self, api: str) -> Callable[[Handler], Handler]:
        """Register the function for kio's name of an API."""

        def register(handler: Handler) -> Handler:
            self[API_KEYS[api]] = handler
            return handler

        return register
