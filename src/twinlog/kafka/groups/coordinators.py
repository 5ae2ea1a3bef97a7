"""Which broker coordinates a group, cached until it reports that it no longer does."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

from twinlog.backoff import backoff_seconds
from twinlog.errors import KafkaError, required
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.deadline import bounded, pause
from twinlog.kafka.errors import TIMEOUT, UNSUPPORTED, from_code, from_reason
from twinlog.kafka.protocol.requests import SchemaRequest

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
        return required((await self.nodes((group_id,), doing))[group_id])

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
        code = ErrorCode.coordinator_not_available if answer is None else int(answer.error_code)
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


# Requests about many groups: asks each coordinator, retries while it moves; no group waits for another's.

GROUPS_PER_REQUEST = 50
"""A group may have thousands of partitions or members, and an answer is decoded in one go."""
_AT_ONCE_PER_BROKER = 4
_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 1.0
_RETRY_SHARE = 0.3
"""Of a short patience: coordinators that answer, or load, may be asked about many groups in the rest."""


def is_loading(error: KafkaError) -> bool:
    """Whether a coordinator has answered that it will know its groups soon: it is not one that is away."""
    return error.code == ErrorCode.coordinator_load_in_progress


def pause_seconds(rounds: int) -> float:
    """Before the next of these rounds."""
    return backoff_seconds(rounds, first=_PAUSE_SECONDS, longest=_LONGEST_PAUSE_SECONDS)


T = TypeVar("T")

Ask = Callable[[int, Sequence[str]], Awaitable[Mapping[str, T | KafkaError]]]
"""Asks one broker, by its node id, about groups that it should coordinate; returns an answer for each."""


async def ask_about_groups(
    session: BrokerSession,
    coordinators: GroupCoordinators,
    group_ids: Collection[str],
    ask: Ask[T],
    *,
    doing: str,
    per_request: int = GROUPS_PER_REQUEST,
) -> dict[str, T | KafkaError]:
    """The answer of each group, or its error. Bounded by the session's time-out. Errors contain `doing`,
    followed by the group's name."""
    retry_until = asyncio.get_running_loop().time() + bounded(session.timeout_seconds, share=_RETRY_SHARE)
    asking = _Asking(session, coordinators, ask, doing, per_request, retry_until)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(bounded(session.timeout_seconds)):
            await asking.run(sorted(set(group_ids)))
    return {
        group_id: asking.found[group_id] if group_id in asking.found else asking.problem(group_id)
        for group_id in set(group_ids)
    }


@dataclass(slots=True, eq=False, repr=False)
class _Asking(Generic[T]):
    """One request about many groups. A broker that does not answer delays only the groups that it
    coordinates."""

    session: BrokerSession
    coordinators: GroupCoordinators
    ask: Ask[T]
    doing: str
    per_request: int
    retry_until: float
    _places: defaultdict[int, asyncio.Semaphore] = field(
        default_factory=lambda: defaultdict(lambda: asyncio.Semaphore(_AT_ONCE_PER_BROKER))
    )
    found: dict[str, T | KafkaError] = field(default_factory=dict)
    _last: dict[str, KafkaError] = field(default_factory=dict)
    """Why a group has to be asked for again."""

    def problem(self, group_id: str) -> KafkaError:
        """Why a group has no answer when the time is up."""
        return self._last.get(group_id) or from_reason(
            TIMEOUT, f"{self.doing} {group_id}", alias=self.session.alias
        )

    async def run(self, group_ids: Sequence[str]) -> None:
        """Return when each group has an answer in `found`. The caller bounds the time."""
        async with asyncio.TaskGroup() as tasks:
            await self._round(group_ids, tasks, 0)

    async def _round(self, group_ids: Sequence[str], tasks: asyncio.TaskGroup, rounds: int) -> None:
        """Find the coordinators, then ask each of them; `rounds` before had no answer for these groups."""
        doing = f"{self.doing}s"
        again: list[str] = []
        try:
            nodes = await self.coordinators.nodes(group_ids, doing)
        except KafkaError as error:
            nodes = dict.fromkeys(group_ids, error)
        by_node: defaultdict[int, list[str]] = defaultdict(list)
        for group_id, node in nodes.items():
            if not isinstance(node, KafkaError):
                by_node[node].append(group_id)
            elif self._is_final(group_id, node):
                self.found[group_id] = node
            else:
                again.append(group_id)
        for node_id, theirs in by_node.items():
            for begin in range(0, len(theirs), self.per_request):
                chunk = theirs[begin : begin + self.per_request]
                tasks.create_task(
                    self._ask(node_id, chunk, tasks, rounds), name=f"{doing} of broker {node_id}"
                )
        self._ask_again(again, tasks, rounds)

    def _ask_again(self, group_ids: Sequence[str], tasks: asyncio.TaskGroup, rounds: int) -> None:
        async def later() -> None:
            await pause(pause_seconds(rounds))
            await self._round(group_ids, tasks, rounds + 1)

        for group_id in group_ids:
            self.coordinators.forget(group_id)
        if asyncio.get_running_loop().time() >= self.retry_until:
            group_ids = [group_id for group_id in group_ids if is_loading(self._last[group_id])]
        if group_ids:
            tasks.create_task(later(), name=f"{self.doing}s again")

    async def _ask(
        self, node_id: int, group_ids: Sequence[str], tasks: asyncio.TaskGroup, rounds: int
    ) -> None:
        async with self._places[node_id]:
            answers = await self.ask(node_id, group_ids)
        again: list[str] = []
        for group_id in group_ids:
            answer = answers[group_id]
            if isinstance(answer, KafkaError) and not self._is_final(group_id, answer):
                again.append(group_id)
            else:
                self.found[group_id] = answer
        self._ask_again(again, tasks, rounds)

    def _is_final(self, group_id: str, error: KafkaError) -> bool:
        """Whether asking again would change nothing."""
        if error.retriable:
            self._last[group_id] = error
        return not error.retriable
