"""What a handler is given, and how handlers are found."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kio.schema.errors import ErrorCode

from twinlog.kafka.protocol.requests import API_KEYS
from twinlog.testing.broker.acls import OPERATIONS, Login, Operation, Resource
from twinlog.testing.broker.cluster import Cluster
from twinlog.testing.broker.codec import Fields
from twinlog.testing.broker.partitions import Node, Partition
from twinlog.testing.broker.releases import Release

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
        partition.retain(self.cluster.now_ms(self.node))
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
