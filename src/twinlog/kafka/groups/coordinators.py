"""Which broker coordinates a group, cached until it reports that it no longer does."""

import asyncio
from collections.abc import Collection, Mapping
from typing import Any, Protocol

from aiokafka.protocol.coordination import FindCoordinatorRequest

from twinlog.errors import KafkaError
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.errors import UNSUPPORTED, from_code
from twinlog.kafka.groups.requests import FoundCoordinator, find_coordinators_request

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
        known = self._nodes.get(group_id)
        if known is not None:
            return known
        answer: Any = await self._session.send_any(FindCoordinatorRequest(group_id, _GROUP), doing)
        if answer.error_code:
            raise from_code(answer.error_code, doing, alias=self._session.alias)
        node_id = int(answer.coordinator_id)
        await self._session.make_known((node_id,), doing)
        self._nodes[group_id] = node_id
        return node_id

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
            chunk = unknown[begin : begin + _GROUPS_PER_REQUEST]
            try:
                answers = await self._session.send_any(find_coordinators_request(chunk), doing)
            except KafkaError as error:
                if error.reason != UNSUPPORTED.name:
                    raise
                found.update(await self._singly(chunk, doing))
                continue
            found.update({group_id: self._taken(group_id, answers, doing) for group_id in chunk})
        nodes = {node for node in found.values() if not isinstance(node, KafkaError)}
        await self._session.make_known(nodes, doing)
        self._nodes.update(
            {group_id: node for group_id, node in found.items() if not isinstance(node, KafkaError)}
        )
        return found

    def forget(self, group_id: str) -> None:
        """Look it up again next time."""
        self._nodes.pop(group_id, None)

    def _taken(self, group_id: str, answers: Mapping[str, FoundCoordinator], doing: str) -> int | KafkaError:
        answer = answers.get(group_id)
        if answer is None:
            return from_code(ErrorCode.COORDINATOR_NOT_AVAILABLE, doing, alias=self._session.alias)
        if answer.error_code:
            return from_code(answer.error_code, doing, alias=self._session.alias)
        return answer.node_id

    async def _singly(self, group_ids: Collection[str], doing: str) -> dict[str, int | KafkaError]:
        """The coordinators, from a broker that takes one group at a time."""
        found: dict[str, int | KafkaError] = {}
        places = asyncio.Semaphore(_SINGLY_AT_ONCE)

        async def one(group_id: str) -> None:
            async with places:
                try:
                    found[group_id] = await self.node(group_id, doing)
                except KafkaError as error:
                    found[group_id] = error

        async with asyncio.TaskGroup() as tasks:
            for group_id in group_ids:
                tasks.create_task(one(group_id), name=f"coordinator of {group_id}")
        return found
