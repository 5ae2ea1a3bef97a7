"""Which broker coordinates a group, remembered until it says that it does so no longer."""

from typing import Any

from aiokafka.protocol.coordination import FindCoordinatorRequest

from twinlog.kafka.connection import DataSession
from twinlog.kafka.errors import from_code

_GROUP = 0

COORDINATOR_MOVED = frozenset((14, 15, 16))
"""Codes of a coordinator that is loading, not there, or another broker by now."""


class GroupCoordinators:
    """Speaks on a session. Not bounded: the caller's deadline is."""

    def __init__(self, session: DataSession) -> None:
        self._session = session
        self._nodes: dict[str, int] = {}

    async def node(self, group_id: str, doing: str) -> int:
        """Node id of the group's coordinator. Raises KafkaError."""
        known = self._nodes.get(group_id)
        if known is not None:
            return known
        any_node = await self._session.any_node(doing)
        answer: Any = await self._session.send(any_node, FindCoordinatorRequest(group_id, _GROUP), doing)
        if answer.error_code:
            raise from_code(answer.error_code, doing, alias=self._session.alias)
        node_id = int(answer.coordinator_id)
        client = await self._session.client(doing)
        if client.cluster.broker_metadata(node_id) is None:
            await client.force_metadata_update()
        self._nodes[group_id] = node_id
        return node_id

    def forget(self, group_id: str) -> None:
        """Look for it anew next time."""
        self._nodes.pop(group_id, None)
