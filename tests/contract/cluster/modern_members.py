"""Members of share groups (KIP-932) and streams groups (KIP-1071), by their heartbeat alone.

No Python client has them. Source: ShareGroupHeartbeatRequest.json, StreamsGroupHeartbeatRequest.json.
"""

import base64
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from twinlog.kafka.clients import aiokafka_client_options
from twinlog.kafka.errors import from_code
from twinlog.kafka.groups.coordinators import GroupCoordinators
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.protocol.encoding import (
    INT16,
    INT32,
    NO_TAGS,
    Frame,
    compact_length,
    compact_nullable_string,
    compact_string,
)
from twinlog.kafka.protocol.requests import HandWrittenRequest
from twinlog.testing.brokers import eventually

_JOIN, _LEAVE = 0, -1
_NULL = b"\0"
_NONE = b"\1"
_PRESENT = b"\1"
_NULL_STRUCT = b"\xff"
_NOT_SHUT_DOWN = b"\0"
_REBALANCE_MS = 30_000


def _share_heartbeat(group_id: str, member_id: str, epoch: int, topic: str) -> HandWrittenRequest[int]:
    body = b"".join(
        (
            compact_string(group_id),
            compact_string(member_id),
            INT32.pack(epoch),
            compact_nullable_string(None),
            compact_length(1),
            compact_string(topic),
            NO_TAGS,
        )
    )
    return HandWrittenRequest(76, range(1, 2), lambda version: [body], _error_code, flexible_from=1)


def _streams_heartbeat(group_id: str, member_id: str, epoch: int, topic: str) -> HandWrittenRequest[int]:
    subtopology = b"".join(
        (
            compact_string("0"),
            compact_length(1),
            compact_string(topic),
            _NONE,
            _NONE,
            _NONE,
            _NONE,
            _NONE,
            NO_TAGS,
        )
    )
    topology = b"".join((_PRESENT, INT32.pack(0), compact_length(1), subtopology, NO_TAGS))
    joins = epoch == _JOIN
    body = b"".join(
        (
            compact_string(group_id),
            compact_string(member_id),
            INT32.pack(epoch),
            INT32.pack(0),  # endpoint epoch
            compact_nullable_string(None),  # instance
            compact_nullable_string(None),  # rack
            INT32.pack(_REBALANCE_MS if joins else -1),
            topology if joins else _NULL_STRUCT,
            (_NONE if joins else _NULL) * 3,  # active, stand-by and warm-up tasks
            compact_nullable_string("process" if joins else None),
            _NULL_STRUCT,  # endpoint
            (_NONE if joins else _NULL),  # client tags
            _NULL * 2,  # offsets of tasks
            _NOT_SHUT_DOWN,
            NO_TAGS,
        )
    )
    return HandWrittenRequest(88, range(1), lambda version: [body], _error_code, flexible_from=0)


def _error_code(data: Frame, position: int, version: int) -> int:
    return int(INT16.unpack_from(data, position + INT32.size)[0])


@asynccontextmanager
async def modern_member(
    properties: Mapping[str, str], group_id: str, topic: str, *, group_type: str
) -> AsyncIterator[None]:
    """One member that is in the group for as long as a session lasts without another heartbeat (45 s)."""
    heartbeat = {"share": _share_heartbeat, "streams": _streams_heartbeat}[group_type]
    member_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    session = DataClientPool("A", aiokafka_client_options(properties, alias="A"), timeout_seconds=30.0)
    coordinators = GroupCoordinators(session)

    async def told(epoch: int) -> bool:
        node_id = await coordinators.node(group_id, "heartbeat")
        code = await session.send(node_id, heartbeat(group_id, member_id, epoch, topic), "heartbeat")
        if code and not from_code(code, "heartbeat").retriable:
            raise from_code(code, f"heartbeat of a {group_type} group")
        return not code

    try:
        assert await eventually(lambda: told(_JOIN))
        yield
        assert await eventually(lambda: told(_LEAVE))
    finally:
        await session.close()
