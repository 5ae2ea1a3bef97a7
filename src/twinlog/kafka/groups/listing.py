"""The groups of a cluster, from every broker in the cluster's present metadata.

librdkafka asks each broker it ever knew: with one of three brokers down, its list always fails. Source:
ListGroupsRequest.json; flexible from version 3, types from version 5 (KIP-848, Kafka 3.8).
"""

import asyncio
import re
from typing import Any, NamedTuple

from aiokafka.protocol.admin import ListGroupsResponse_v1
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import CompactArray, CompactString, Int16, Int32, Schema, TaggedFields

from twinlog.errors import KafkaError
from twinlog.kafka.deadline import deadline
from twinlog.kafka.errors import UNAVAILABLE, from_code, from_reason
from twinlog.kafka.protocol.client_pool import DataClientPool

_TEXT = CompactString("utf-8")
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


class ListGroupsResponseV2(Response):  # type: ignore[misc]  # aiokafka has no types
    API_KEY = 16
    API_VERSION = 2
    SCHEMA = ListGroupsResponse_v1.SCHEMA


class ListGroupsRequestV2(RequestStruct):  # type: ignore[misc]
    API_KEY = 16
    API_VERSION = 2
    RESPONSE_TYPE = ListGroupsResponseV2
    SCHEMA = Schema()


class ListGroupsResponseV5(Response):  # type: ignore[misc]
    API_KEY = 16
    API_VERSION = 5
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        (
            "groups",
            CompactArray(
                ("group_id", _TEXT),
                ("protocol_type", _TEXT),
                ("group_state", _TEXT),
                ("group_type", _TEXT),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class ListGroupsRequestV5(RequestStruct):  # type: ignore[misc]
    API_KEY = 16
    API_VERSION = 5
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = ListGroupsResponseV5
    SCHEMA = Schema(
        ("states_filter", CompactArray(_TEXT)),
        ("types_filter", CompactArray(_TEXT)),
        ("tags", TaggedFields),
    )


class ListGroups(Request[ListGroupsRequestV2 | ListGroupsRequestV5]):  # type: ignore[misc]
    API_KEY = 16

    def build(
        self, request_struct_class: type[ListGroupsRequestV2] | type[ListGroupsRequestV5]
    ) -> ListGroupsRequestV2 | ListGroupsRequestV5:
        if request_struct_class is ListGroupsRequestV5:
            return request_struct_class([], [], {})
        return request_struct_class()


async def list_groups(session: DataClientPool, doing: str) -> dict[str, ListedGroup]:
    """Every group of an application, by its id.

    Raises KafkaError when one broker of the cluster does not answer, because its groups would be missing.
    Bounded by the session's time-out.
    """
    found: dict[str, ListedGroup] = {}
    failures: list[KafkaError] = []

    async def ask(node_id: int) -> None:
        try:
            answer = await session.send(node_id, ListGroups(), doing)
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
    """Brokers before 3.8 report neither type nor state; they only have classic groups."""
    return {
        group_id: _told(*more[:2]) if len(more) > 1 else ListedGroup(_CLASSIC, "")
        for group_id, protocol_type, *more in answer.groups
        if protocol_type in LISTED_PROTOCOLS
    }


def _told(state: str, group_type: str) -> ListedGroup:
    """`NotReady` becomes NOT_READY, like the other states."""
    return ListedGroup(group_type.lower() or _CLASSIC, _WORD_START.sub("_", state).upper())
