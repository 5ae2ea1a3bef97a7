"""Members of consumer groups (KIP-848), share groups (KIP-932) and streams groups (KIP-1071), by their
heartbeat alone: no Python client has them all."""

import base64
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from twinlog.kafka.clients import aiokafka_client_options
from twinlog.kafka.errors import from_code
from twinlog.kafka.groups.coordinators import GroupCoordinators
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.protocol.requests import SchemaRequest
from twinlog.testing.brokers import eventually

_JOIN, _LEAVE = 0, -1
_REBALANCE_MS = 30_000
_REQUESTS = {
    "consumer": ("consumer_group_heartbeat", range(2)),
    "share": ("share_group_heartbeat", range(1, 2)),
    "streams": ("streams_group_heartbeat", range(1)),
}


def _heartbeat(group_type: str, group_id: str, member_id: str, epoch: int, topic: str) -> SchemaRequest:
    joins = epoch == _JOIN
    subtopology = {
        "subtopology_id": "0",
        "source_topics": [topic],
        "source_topic_regex": (),
        "state_changelog_topics": (),
        "repartition_sink_topics": (),
        "repartition_source_topics": (),
        "copartition_groups": (),
    }
    asked: dict[str, Any] = {
        "group_id": group_id,
        "member_id": member_id,
        "member_epoch": epoch,
        "rack_id": None,
        "subscribed_topic_names": [topic],
        "rebalance_timeout": _REBALANCE_MS if joins else -1,
        "topic_partitions": () if joins else None,
        "endpoint_information_epoch": 0,
        "topology": {"epoch": 0, "subtopologies": [subtopology]} if joins else None,
        "active_tasks": () if joins else None,
        "standby_tasks": () if joins else None,
        "warmup_tasks": () if joins else None,
        "process_id": "process" if joins else None,
        "client_tags": () if joins else None,
        "task_offsets": None,
        "task_end_offsets": None,
    }
    api, versions = _REQUESTS[group_type]
    return SchemaRequest(api, versions, asked)


@asynccontextmanager
async def modern_member(
    properties: Mapping[str, str], group_id: str, topic: str, *, group_type: str
) -> AsyncIterator[None]:
    """One member that is in the group for as long as a session lasts without another heartbeat (45 s)."""
    member_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    session = DataClientPool("A", aiokafka_client_options(properties, alias="A"), timeout_seconds=30.0)
    coordinators = GroupCoordinators(session)

    async def told(epoch: int) -> bool:
        nonlocal member_id
        node_id = await coordinators.node(group_id, "heartbeat")
        request = _heartbeat(group_type, group_id, member_id, epoch, topic)
        answer = await session.send(node_id, request, "heartbeat")
        if answer.error_code:
            error = from_code(int(answer.error_code), f"heartbeat of a {group_type} group")
            if not error.retriable:
                raise error
            return False
        member_id = answer.member_id
        return True

    try:
        assert await eventually(lambda: told(_JOIN))
        yield
        assert await eventually(lambda: told(_LEAVE))
    finally:
        await session.close()
