"""State and members of groups of the classic protocol, and the client's rights on any group."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from twinlog.errors import KafkaError
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.errors import from_code
from twinlog.kafka.groups.asking import ask_about_groups
from twinlog.kafka.groups.coordinators import BrokerSession, GroupCoordinators
from twinlog.kafka.protocol.schemas import SchemaRequest

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
