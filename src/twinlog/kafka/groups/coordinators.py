"""Which broker coordinates a group, cached until it reports that it no longer does."""

import asyncio
from collections.abc import Collection, Sequence
from typing import Any, Final, Protocol

from twinlog.errors import KafkaError
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.errors import UNSUPPORTED, from_code
from twinlog.kafka.protocol.schemas import SchemaRequest

_API: Final = "find_coordinator"
_MANY: Final = range(4, 5)
"""Brokers take many groups at once from 3.0 on (KIP-699)."""
_SINGLE: Final = range(3)
_GROUP = 0
_GROUPS_PER_REQUEST = 1_000
_SINGLY_AT_ONCE = 8


class BrokerSession(Protocol):
    """The part of `twinlog.kafka.protocol.client_pool.DataClientPool` that is used."""

    @property
    def alias(self) -> str: ...

    @property
    def timeout_seconds(self) -> float: ...

    async def send_any(self, request: Any, doing: str) -> Any: ...

    async def make_known(self, node_ids: Collection[int], doing: str) -> None: ...

    async def send(self, node_id: int, request: Any, doing: str) -> Any: ...


class GroupCoordinators:
    """Uses a session. Not bounded: the caller's deadline applies."""

    def __init__(self, session: BrokerSession) -> None:
        self._session = session
        self._nodes: dict[str, int] = {}

    async def node(self, group_id: str, doing: str) -> int:
        """The node id of the group's coordinator. Raises KafkaError."""
        node = (await self.nodes((group_id,), doing))[group_id]
        if isinstance(node, KafkaError):
            raise node
        return node

    async def nodes(self, group_ids: Collection[str], doing: str) -> dict[str, int | KafkaError]:
        """The node id of each group's coordinator, or its error; one request for many groups. Raises
        KafkaError when no broker answers."""
        found: dict[str, int | KafkaError] = {}
        unknown: list[str] = []
        for group_id in group_ids:
            if group_id in self._nodes:
                found[group_id] = self._nodes[group_id]
            else:
                unknown.append(group_id)
        for begin in range(0, len(unknown), _GROUPS_PER_REQUEST):
            found.update(await self._looked_up(unknown[begin : begin + _GROUPS_PER_REQUEST], doing))
        nodes = {node for node in found.values() if not isinstance(node, KafkaError)}
        await self._session.make_known(nodes, doing)
        self._nodes.update(
            {group_id: node for group_id, node in found.items() if not isinstance(node, KafkaError)}
        )
        return found

    def forget(self, group_id: str) -> None:
        """Look it up again next time."""
        self._nodes.pop(group_id, None)

    async def _looked_up(self, group_ids: Sequence[str], doing: str) -> dict[str, int | KafkaError]:
        asked = {"key_type": _GROUP, "coordinator_keys": group_ids}
        try:
            answer = await self._session.send_any(SchemaRequest(_API, _MANY, asked), doing)
        except KafkaError as error:
            if error.reason != UNSUPPORTED.name:
                raise
            return await self._singly(group_ids, doing)
        answers = {each.key: each for each in answer.coordinators}
        return {group_id: self._told(answers.get(group_id), doing) for group_id in group_ids}

    def _told(self, answer: Any, doing: str) -> int | KafkaError:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE if answer is None else int(answer.error_code)
        return from_code(code, doing, alias=self._session.alias) if code else int(answer.node_id)

    async def _singly(self, group_ids: Collection[str], doing: str) -> dict[str, int | KafkaError]:
        """The coordinators, from a broker that takes one group at a time."""
        found: dict[str, int | KafkaError] = {}
        places = asyncio.Semaphore(_SINGLY_AT_ONCE)

        async def one(group_id: str) -> None:
            request = SchemaRequest(_API, _SINGLE, {"key": group_id, "key_type": _GROUP})
            async with places:
                try:
                    found[group_id] = self._told(await self._session.send_any(request, doing), doing)
                except KafkaError as error:
                    found[group_id] = error

        async with asyncio.TaskGroup() as tasks:
            for group_id in group_ids:
                tasks.create_task(one(group_id), name=f"coordinator of {group_id}")
        return found
