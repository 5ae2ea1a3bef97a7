"""The groups of a cluster, from every broker in the cluster's present metadata."""

import asyncio
import re
from typing import Any, NamedTuple

from twinlog.errors import KafkaError
from twinlog.kafka.deadline import deadline
from twinlog.kafka.errors import UNAVAILABLE, from_code, from_reason
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.protocol.schemas import SchemaRequest

LISTED_PROTOCOLS = frozenset({"consumer", "", "share", "streams"})
"""Protocol types of applications that read topics; a group that only committed offsets has none. Groups of
Kafka Connect and others have their own type, and are left out."""
_CLASSIC = "classic"
_WORD_START = re.compile(r"(?<=[a-z])(?=[A-Z])")


class ListedGroup(NamedTuple):
    group_type: str
    """classic, consumer, share or streams."""
    state: str
    """By the names of `GroupDescription`; "" if the broker does not report it (before Kafka 3.8)."""


async def list_groups(session: DataClientPool, doing: str) -> dict[str, ListedGroup]:
    """Every group of an application, by its id.

    Raises KafkaError when one broker of the cluster does not answer, because its groups would be missing.
    Bounded by the session's time-out.
    """
    found: dict[str, ListedGroup] = {}
    failures: list[KafkaError] = []

    async def ask(node_id: int) -> None:
        try:
            answer = await session.send(node_id, SchemaRequest("list_groups", range(6), {}), doing)
            if answer.error_code:
                raise from_code(answer.error_code, doing, alias=session.alias, detail=f"broker {node_id}")
            found.update(_listed(answer))
        except KafkaError as error:
            failures.append(error)

    async with deadline(session.timeout_seconds, doing, alias=session.alias):
        client = await session.client(doing)
        if not await client.refreshed():
            raise from_reason(UNAVAILABLE, doing, alias=session.alias)
        async with asyncio.TaskGroup() as group:
            for broker in client.cluster.brokers():
                group.create_task(ask(broker.nodeId), name=f"{doing} of broker {broker.nodeId}")
    if failures:
        raise failures[0]
    return found


def _listed(answer: Any) -> dict[str, ListedGroup]:
    """Brokers before 3.8 report no type (they only have classic groups), and before 2.6 no state. `NotReady`
    becomes NOT_READY, like the other states."""
    return {
        group.group_id: ListedGroup(
            getattr(group, "group_type", "").lower() or _CLASSIC,
            _WORD_START.sub("_", getattr(group, "group_state", "")).upper(),
        )
        for group in answer.groups
        if group.protocol_type in LISTED_PROTOCOLS
    }
