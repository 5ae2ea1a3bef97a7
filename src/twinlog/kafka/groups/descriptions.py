"""State and members of groups of the classic protocol, and the client's rights on any group.

librdkafka is not usable: it refuses to describe a group whose protocol is not `consumer`, such as Twinlog's
own and Kafka Connect's; it sends one request for each group; and after a restart of the cluster its first
call waits for a dead connection until it times out. Source: DescribeGroupsRequest.json.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from twinlog.errors import KafkaError
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.errors import from_code
from twinlog.kafka.groups.asking import ask_about_groups
from twinlog.kafka.groups.coordinators import BrokerSession, GroupCoordinators
from twinlog.kafka.protocol.encoding import INT16, INT32, Frame, string, take_int32, take_string
from twinlog.kafka.protocol.requests import HandWrittenRequest, Pieces

_DESCRIBE_GROUPS = 15
_VERSION = 3
"""The first with rights, and the last one without tagged fields; brokers from 2.3 to 4.x know it. To it a
group of another protocol than the classic one is DEAD, and its rights are told all the same."""
_STATES = {
    "PreparingRebalance": "PREPARING_REBALANCING",
    "CompletingRebalance": "COMPLETING_REBALANCING",
    "Stable": "STABLE",
    "Empty": "EMPTY",
    "Dead": "DEAD",
}
_NOT_TOLD = -(1 << 31)
_THROTTLE_BYTES = 4
_MEMBER_TEXTS = 3
"""Member id, client id and host."""
_MEMBER_BYTES = 2
"""Metadata and assignment."""


class DescribedGroup(NamedTuple):
    """A coordinator's answer about one group."""

    error_code: int
    state: str
    """By the names of `GroupDescription`; DEAD for a group that does not exist, or has another protocol."""
    member_count: int
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
            request = describe_groups_request(names, with_rights=with_rights)
            try:
                answers = await self._session.send(node_id, request, f"{doing}s")
            except KafkaError as error:
                return dict.fromkeys(names, error)
            return {name: self._judged(name, answers.get(name), doing) for name in names}

        return await ask_about_groups(self._session, self._coordinators, group_ids, ask, doing=doing)

    def _judged(self, name: str, answer: DescribedGroup | None, doing: str) -> DescribedGroup | KafkaError:
        code = ErrorCode.NOT_COORDINATOR if answer is None else answer.error_code
        if answer is None or code:
            return from_code(code, f"{doing} {name}", alias=self._session.alias)
        return answer


def describe_groups_request(
    group_ids: Collection[str], *, with_rights: bool
) -> HandWrittenRequest[Mapping[str, DescribedGroup]]:
    """For groups that one broker coordinates."""

    def encode(version: int) -> Pieces:
        names = [string(group_id) for group_id in group_ids]
        return [b"".join((INT32.pack(len(names)), *names, bytes((with_rights,))))]

    return HandWrittenRequest(_DESCRIBE_GROUPS, range(_VERSION, _VERSION + 1), encode, _read)


def _read(data: Frame, position: int, version: int) -> Mapping[str, DescribedGroup]:
    found: dict[str, DescribedGroup] = {}
    count, position = take_int32(data, position + _THROTTLE_BYTES)
    for _ in range(count):
        (code,) = INT16.unpack_from(data, position)
        group_id, position = take_string(data, position + INT16.size)
        state, position = take_string(data, position)
        _, position = take_string(data, position)  # protocol type
        _, position = take_string(data, position)  # protocol
        members, position = take_int32(data, position)
        for _ in range(members):
            for _ in range(_MEMBER_TEXTS):
                _, position = take_string(data, position)
            for _ in range(_MEMBER_BYTES):
                size, position = take_int32(data, position)
                position += max(size, 0)
        operations, position = take_int32(data, position)
        found[group_id] = DescribedGroup(
            code, _STATES.get(state, "UNKNOWN"), members, 0 if operations == _NOT_TOLD else operations
        )
    return found
