"""Requests about many groups: asks each coordinator, retries while it moves; no group waits for another's."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Generic, TypeVar

from twinlog.errors import KafkaError
from twinlog.kafka.deadline import pause
from twinlog.kafka.errors import TIMEOUT, from_reason
from twinlog.kafka.groups.coordinators import BrokerSession, GroupCoordinators

GROUPS_PER_REQUEST = 50
"""A group may have thousands of partitions or members, and an answer is decoded in one go."""
_AT_ONCE_PER_BROKER = 4
_PAUSE_SECONDS = 0.1

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
) -> dict[str, T | KafkaError]:
    """The answer of each group, or its error. Bounded by the session's time-out. Errors contain `doing`,
    followed by the group's name."""
    asking = _Asking(session, coordinators, ask, doing)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(session.timeout_seconds):
            await asking.run(sorted(set(group_ids)))
    return {
        group_id: asking.found[group_id] if group_id in asking.found else asking.problem(group_id)
        for group_id in set(group_ids)
    }


class _Asking(Generic[T]):
    """One request about many groups. A broker that does not answer delays only the groups that it
    coordinates."""

    def __init__(
        self, session: BrokerSession, coordinators: GroupCoordinators, ask: Ask[T], doing: str
    ) -> None:
        self._session = session
        self._coordinators = coordinators
        self._ask_broker = ask
        self._doing = doing
        self._places: defaultdict[int, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(_AT_ONCE_PER_BROKER)
        )
        self.found: dict[str, T | KafkaError] = {}
        self._last: dict[str, KafkaError] = {}
        """Why a group has to be asked for again."""

    def problem(self, group_id: str) -> KafkaError:
        """Why a group has no answer when the time is up."""
        return self._last.get(group_id) or from_reason(
            TIMEOUT, f"{self._doing} {group_id}", alias=self._session.alias
        )

    async def run(self, group_ids: Sequence[str]) -> None:
        """Return when each group has an answer in `found`. The caller bounds the time."""
        async with asyncio.TaskGroup() as tasks:
            await self._round(group_ids, tasks)

    async def _round(self, group_ids: Sequence[str], tasks: asyncio.TaskGroup) -> None:
        """Find the coordinators, then ask each of them."""
        doing = f"{self._doing}s"
        again: list[str] = []
        try:
            nodes = await self._coordinators.nodes(group_ids, doing)
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
            for begin in range(0, len(theirs), GROUPS_PER_REQUEST):
                chunk = theirs[begin : begin + GROUPS_PER_REQUEST]
                tasks.create_task(self._ask(node_id, chunk, tasks), name=f"{doing} of broker {node_id}")
        self._ask_again(again, tasks)

    def _ask_again(self, group_ids: Sequence[str], tasks: asyncio.TaskGroup) -> None:
        async def later() -> None:
            await pause(_PAUSE_SECONDS)
            await self._round(group_ids, tasks)

        for group_id in group_ids:
            self._coordinators.forget(group_id)
        if group_ids:
            tasks.create_task(later(), name=f"{self._doing}s again")

    async def _ask(self, node_id: int, group_ids: Sequence[str], tasks: asyncio.TaskGroup) -> None:
        async with self._places[node_id]:
            answers = await self._ask_broker(node_id, group_ids)
        again: list[str] = []
        for group_id in group_ids:
            answer = answers[group_id]
            if isinstance(answer, KafkaError) and not self._is_final(group_id, answer):
                again.append(group_id)
            else:
                self.found[group_id] = answer
        self._ask_again(again, tasks)

    def _is_final(self, group_id: str, error: KafkaError) -> bool:
        """Whether asking again would change nothing."""
        if error.retriable:
            self._last[group_id] = error
        return not error.retriable
