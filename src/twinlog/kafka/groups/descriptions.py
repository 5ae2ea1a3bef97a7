"""State and members of groups of the classic protocol, and the client's rights on any group."""

import asyncio
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from twinlog.errors import KafkaError
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.deadline import deadline
from twinlog.kafka.errors import UNAVAILABLE, from_code, from_reason
from twinlog.kafka.groups.asking import ask_about_groups
from twinlog.kafka.groups.coordinators import BrokerSession, GroupCoordinators
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.protocol.schemas import SchemaRequest

# The groups of a cluster, from every broker in the cluster's present metadata.

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
            for broker in sorted(client.cluster.brokers()):
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


_VERSIONS: Final = range(3, 5)
"""From the first with rights, which brokers know since 2.3. To all of them a group of another protocol than
the classic one is DEAD, and its rights are told all the same; to version 6 it is an error."""
_STATES = {
    "PreparingRebalance": "PREPARING_REBALANCING",
    "CompletingRebalance": "COMPLETING_REBALANCING",
    "Stable": "STABLE",
    "Empty": "EMPTY",
    "Dead": "DEAD",
}
_NOT_TOLD = -(1 << 31)


class DescribedGroup(NamedTuple):
    """A coordinator's answer about one group."""

    state: str
    """By the names of `GroupDescription`; DEAD for a group that does not exist, or has another protocol."""
    members: tuple[tuple[str, bytes], ...]
    """Each one's id and what it says of itself."""
    operations: int
    """Bits by the numbers of AclOperation; 0 if they were not requested."""


class GroupDescriptionsClient:
    """Uses a session. Each call is bounded by the session's time-out."""

    def __init__(self, session: BrokerSession, coordinators: GroupCoordinators) -> None:
        """`coordinators` may be shared with other clients of the session."""
        self._session = session
        self._coordinators = coordinators

    async def describe(
        self, group_ids: Collection[str], *, with_rights: bool = False
    ) -> dict[str, DescribedGroup | KafkaError]:
        """Each group, or its error."""
        doing = "describe group"

        async def ask(node_id: int, names: Sequence[str]) -> Mapping[str, DescribedGroup | KafkaError]:
            asked = {"groups": names, "include_authorized_operations": with_rights}
            request = SchemaRequest("describe_groups", _VERSIONS, asked)
            try:
                answer = await self._session.send(node_id, request, f"{doing}s")
            except KafkaError as error:
                return dict.fromkeys(names, error)
            groups = {group.group_id: group for group in answer.groups}
            return {name: self._told(name, groups.get(name), doing) for name in names}

        return await ask_about_groups(self._session, self._coordinators, group_ids, ask, doing=doing)

    def _told(self, name: str, group: Any, doing: str) -> DescribedGroup | KafkaError:
        code = ErrorCode.NOT_COORDINATOR if group is None else int(group.error_code)
        if code:
            return from_code(code, f"{doing} {name}", alias=self._session.alias)
        rights = group.authorized_operations
        return DescribedGroup(
            _STATES.get(group.group_state, "UNKNOWN"),
            tuple((each.member_id, each.member_metadata) for each in group.members),
            0 if rights == _NOT_TOLD else rights,
        )
