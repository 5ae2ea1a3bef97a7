"""Consumer groups: their committed offsets, their deletion, their state and members."""

import asyncio
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from twinlog.errors import KafkaError
from twinlog.kafka.codes import COORDINATOR_MOVED, ErrorCode
from twinlog.kafka.deadline import bounded, deadline, pause
from twinlog.kafka.errors import UNAVAILABLE, UNSUPPORTED, from_code, from_reason
from twinlog.kafka.groups.coordinators import (
    BrokerSession,
    GroupCoordinators,
    ask_about_groups,
    is_loading,
    pause_seconds,
)
from twinlog.kafka.ports import CommittedOffset
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.protocol.requests import SchemaRequest
from twinlog.model import TopicPartition

_MANY: Final = range(8, 9)
"""Brokers take many groups at once from 3.0 on (KIP-709)."""
_SINGLE: Final = range(2, 6)
_COMMIT: Final = range(2, 8)
_GROUP_SHARE = 0.9
"""The share of the time-out for one group, so that its own, more precise error comes first."""

GroupOffsets = Mapping[TopicPartition, CommittedOffset]


class GroupOffsetsClient:
    """Uses a session, and caches each group's coordinator.

    Each call is bounded by the session's time-out.
    """

    def __init__(self, session: BrokerSession, coordinators: GroupCoordinators) -> None:
        """`coordinators` may be shared with other clients of the session."""
        self._session = session
        self._coordinators = coordinators

    async def read(self, group_ids: Collection[str]) -> dict[str, GroupOffsets | KafkaError]:
        """All committed offsets of each group, or its error; a group that does not exist has none.

        A coordinator is asked for many groups in one request (for one at a time if it is older than Kafka
        3.0).
        """
        return await ask_about_groups(
            self._session, self._coordinators, group_ids, self._answers, doing="read offsets of group"
        )

    async def commit(
        self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Commit as an administrator, outside any generation; a group with members is refused
        (GROUP_ACTIVE)."""
        doing = f"commit for group {group_id}"
        by_topic: dict[str, list[Mapping[str, Any]]] = {}
        for partition, committed in offsets.items():
            entry = {
                "partition_index": partition.partition,
                "committed_offset": committed.next_offset,
                "committed_metadata": committed.metadata,
            }
            by_topic.setdefault(partition.topic, []).append(entry)
        topics = [{"name": topic, "partitions": entries} for topic, entries in by_topic.items()]
        asked = {"group_id": group_id, "member_id": "", "topics": topics}
        request = SchemaRequest("offset_commit", _COMMIT, asked)

        async def ask(
            node_id: int, _names: Sequence[str]
        ) -> Mapping[str, Mapping[TopicPartition, KafkaError | None] | KafkaError]:
            try:
                answer = await self._session.send(node_id, request, doing)
            except KafkaError as error:
                return {group_id: error}
            codes = {
                TopicPartition(topic.name, each.partition_index): int(each.error_code)
                for topic in answer.topics
                for each in topic.partitions
            }
            if moved := COORDINATOR_MOVED.intersection(codes.values()):
                return {group_id: from_code(min(moved), doing, alias=self._session.alias)}
            # A partition that is missing in the answer counts as not committed.
            codes = {partition: codes.get(partition, ErrorCode.unknown_server_error) for partition in offsets}
            return {
                group_id: {
                    partition: from_code(code, f"{doing}, {partition}", alias=self._session.alias)
                    if code
                    else None
                    for partition, code in codes.items()
                }
            }

        told = await ask_about_groups(
            self._session, self._coordinators, [group_id], ask, doing="commit for group"
        )
        found = told[group_id]
        return dict.fromkeys(offsets, found) if isinstance(found, KafkaError) else dict(found)

    async def _answers(
        self, node_id: int, group_ids: Sequence[str]
    ) -> Mapping[str, GroupOffsets | KafkaError]:
        """The offsets of each group, from a broker that should be its coordinator."""
        doing = "read offsets of groups"
        asked = [{"group_id": group_id, "topics": None} for group_id in group_ids]
        request = SchemaRequest("offset_fetch", _MANY, {"groups": asked})
        try:
            answer = await self._session.send(node_id, request, doing)
        except KafkaError as error:
            if error.reason != UNSUPPORTED.name:
                return dict.fromkeys(group_ids, error)
            return {group_id: await self._single_answer(node_id, group_id) for group_id in group_ids}
        fetched = {group.group_id: group for group in answer.groups}
        return {group_id: self._told(group_id, fetched.get(group_id)) for group_id in group_ids}

    async def _single_answer(self, node_id: int, group_id: str) -> GroupOffsets | KafkaError:
        """The offsets of one group, from a broker that takes one at a time."""
        request = SchemaRequest("offset_fetch", _SINGLE, {"group_id": group_id, "topics": None})
        try:
            answer = await self._session.send(node_id, request, f"read offsets of group {group_id}")
        except KafkaError as error:
            return error
        return self._told(group_id, answer)

    def _told(self, group_id: str, answer: Any) -> GroupOffsets | KafkaError:
        """What the coordinator told about one group; one that it left out is asked for again. Partitions
        without a committed offset are left out."""
        if answer is None:
            codes: list[int] = [ErrorCode.not_coordinator]
        else:
            partitions = [
                (TopicPartition(topic.name, each.partition_index), each)
                for topic in answer.topics
                for each in topic.partitions
            ]
            codes = [answer.error_code, *(each.error_code for _, each in partitions)]
        code = next((int(code) for code in codes if code), 0)
        if code not in (0, ErrorCode.group_id_not_found):
            return from_code(code, f"read offsets of group {group_id}", alias=self._session.alias)
        return {
            partition: CommittedOffset(next_offset=each.committed_offset, metadata=each.metadata or "")
            for partition, each in partitions
            if each.committed_offset >= 0
        }

    async def delete(self, group_ids: Collection[str]) -> dict[str, KafkaError | None]:
        """Delete groups with their offsets; one with members is refused (GROUP_ACTIVE)."""
        doing = "delete group"

        async def ask(node_id: int, names: Sequence[str]) -> Mapping[str, KafkaError | None]:
            request = SchemaRequest("delete_groups", range(2), {"groups_names": names})
            try:
                answer = await self._session.send(node_id, request, f"{doing}s")
            except KafkaError as error:
                return dict.fromkeys(names, error)
            codes = {result.group_id: int(result.error_code) for result in answer.results}
            return {
                name: from_code(code, f"{doing} {name}", alias=self._session.alias) if code else None
                for name in names
                for code in (codes.get(name, ErrorCode.not_coordinator),)
            }

        return await ask_about_groups(self._session, self._coordinators, group_ids, ask, doing=doing)


# State and members of groups of the classic protocol, and the client's rights on any group.

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

    Raises KafkaError when one broker of the cluster does not answer, because its groups would be missing, or
    loads too long. Bounded by the session's time-out.
    """
    found: dict[str, ListedGroup] = {}
    failures: list[KafkaError] = []
    give_up_at = asyncio.get_running_loop().time() + bounded(session.timeout_seconds, share=_GROUP_SHARE)

    async def ask(node_id: int, rounds: int = 0) -> None:
        try:
            found.update(await _listed_by(session, node_id, doing))
        except KafkaError as error:
            wait_seconds = pause_seconds(rounds)
            if not is_loading(error) or asyncio.get_running_loop().time() + wait_seconds > give_up_at:
                failures.append(error)
                return
            await pause(wait_seconds)
            await ask(node_id, rounds + 1)

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


async def _listed_by(session: BrokerSession, node_id: int, doing: str) -> dict[str, ListedGroup]:
    """Those that one broker coordinates. Raises KafkaError."""
    answer = await session.send(node_id, SchemaRequest("list_groups", range(6), {}), doing)
    if answer.error_code:
        raise from_code(answer.error_code, doing, alias=session.alias, detail=f"broker {node_id}")
    return _listed(answer)


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
            return await self._described_by(node_id, names, doing, with_rights=with_rights)

        return await ask_about_groups(self._session, self._coordinators, group_ids, ask, doing=doing)

    async def _described_by(
        self, node_id: int, names: Sequence[str], doing: str, *, with_rights: bool = False
    ) -> Mapping[str, DescribedGroup | KafkaError]:
        asked = {"groups": names, "include_authorized_operations": with_rights}
        request = SchemaRequest("describe_groups", _VERSIONS, asked)
        try:
            answer = await self._session.send(node_id, request, f"{doing}s")
        except KafkaError as error:
            return dict.fromkeys(names, error)
        groups = {group.group_id: group for group in answer.groups}
        return {name: self._told(name, groups.get(name), doing) for name in names}

    async def listed(self, group_ids: Collection[str]) -> dict[str, ListedGroup | KafkaError | None]:
        """How its coordinator lists each group; None for one that does not exist."""
        doing = "describe group"

        async def ask(node_id: int, names: Sequence[str]) -> Mapping[str, ListedGroup | KafkaError | None]:
            try:
                listed = await _listed_by(self._session, node_id, f"{doing}s")
            except KafkaError as error:
                return dict.fromkeys(names, error)
            # A listing leaves out what the broker coordinates no longer; a description says so.
            absent = [name for name in names if name not in listed]
            described = await self._described_by(node_id, absent, doing) if absent else {}
            lost = {name: each for name, each in described.items() if isinstance(each, KafkaError)}
            return {name: lost.get(name, listed.get(name)) for name in names}

        if not group_ids:
            return {}
        # A listing has all groups of the broker.
        return await ask_about_groups(
            self._session, self._coordinators, group_ids, ask, doing=doing, per_request=len(group_ids)
        )

    def _told(self, name: str, group: Any, doing: str) -> DescribedGroup | KafkaError:
        code = ErrorCode.not_coordinator if group is None else int(group.error_code)
        if code:
            return from_code(code, f"{doing} {name}", alias=self._session.alias)
        rights = group.authorized_operations
        return DescribedGroup(
            _STATES.get(group.group_state, "UNKNOWN"),
            tuple((each.member_id, each.member_metadata) for each in group.members),
            0 if rights == _NOT_TOLD else rights,
        )
