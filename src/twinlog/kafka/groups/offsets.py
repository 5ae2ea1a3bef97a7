"""Committed offsets of consumer groups, read and written by requests of our own.

confluent-kafka's calls cannot be used. `list_consumer_group_offsets`: when a coordinator moves or is not
there yet, librdkafka (2.16.1) handles the answer as a consumer's and ends the whole process with a
segmentation fault (`rd_kafka_handle_OffsetFetch` -> `rd_kafka_cgrp_op` without a group).
`alter_consumer_group_offsets`: it commits metadata with a NUL byte at its end.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from aiokafka.protocol.commit import OffsetCommitRequest, OffsetFetchRequest

from twinlog.errors import KafkaError, TransientKafkaError
from twinlog.kafka.deadline import deadline, pause
from twinlog.kafka.errors import TIMEOUT, UNSUPPORTED, from_code, from_reason
from twinlog.kafka.groups.coordinators import COORDINATOR_MOVED, BrokerSession, GroupCoordinators
from twinlog.kafka.groups.requests import FetchedGroup, fetch_offsets_request
from twinlog.kafka.ports import CommittedOffset
from twinlog.model import TopicPartition

_GROUP_UNKNOWN = 69
_NOT_ANSWERED = FetchedGroup(16, {})
"""A group that the broker left out: it is asked for again."""
GROUPS_PER_REQUEST = 50
"""A group may have thousands of partitions, and an answer is decoded in one go."""
_AT_ONCE_PER_BROKER = 4
_PAUSE_SECONDS = 0.1
_GROUP_SHARE = 0.9
"""Share of the time-out that one group gets, so that its own error, which says more, comes first."""

GroupOffsets = Mapping[TopicPartition, CommittedOffset]


class GroupOffsetsClient:
    """Speaks on a session; remembers each group's coordinator.

    Each call is bounded by the session's time-out.
    """

    def __init__(self, session: BrokerSession) -> None:
        self._session = session
        self._coordinators = GroupCoordinators(session)

    async def read(self, group_ids: Collection[str]) -> dict[str, GroupOffsets | KafkaError]:
        """All committed offsets of each group, or why they cannot be read; a group that is not there has
        none.

        A coordinator is asked for many groups in one request (for one at a time where it is older than Kafka
        3.0).
        """
        reading = _Reading(self._session, self._coordinators)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._session.timeout_seconds):
                await reading.run(sorted(set(group_ids)))
        return {
            group_id: reading.found[group_id] if group_id in reading.found else reading.problem(group_id)
            for group_id in set(group_ids)
        }

    async def commit(
        self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Commit as an administrator does, outside any generation; a group with members is refused
        (GROUP_ACTIVE)."""
        doing = f"commit for group {group_id}"
        by_topic: dict[str, list[tuple[int, int, str]]] = {}
        for partition, committed in offsets.items():
            entry = (partition.partition, committed.next_offset, committed.metadata)
            by_topic.setdefault(partition.topic, []).append(entry)
        request = OffsetCommitRequest(group_id, -1, "", -1, list(by_topic.items()))
        try:
            answer = await self._with_coordinator(group_id, request, doing, _moved_by_commit)
        except KafkaError as error:
            return dict.fromkeys(offsets, error)
        return {
            TopicPartition(topic, number): (
                from_code(code, f"{doing}, {topic}-{number}", alias=self._session.alias) if code else None
            )
            for topic, partitions in answer.topics
            for number, code in partitions
        }

    async def _with_coordinator(
        self, group_id: str, request: Any, doing: str, moved: Callable[[Any], int]
    ) -> Any:
        """Ask until a coordinator answers, whoever it is by then; `moved` gives the code when it is not."""
        last: KafkaError | None = None
        try:
            seconds = self._session.timeout_seconds * _GROUP_SHARE
            async with deadline(seconds, doing, alias=self._session.alias):
                while True:
                    try:
                        node_id = await self._coordinators.node(group_id, doing)
                        answer = await self._session.send(node_id, request, doing)
                        code = moved(answer)
                        if not code:
                            return answer
                        last = from_code(code, doing, alias=self._session.alias)
                    except TransientKafkaError as error:
                        last = error
                    self._coordinators.forget(group_id)
                    await pause(_PAUSE_SECONDS)
        except TransientKafkaError as error:
            raise last or error from error


class _Reading:
    """One look at the offsets of many groups. A broker that does not answer delays the groups that it
    coordinates, and no others.
    """

    def __init__(self, session: BrokerSession, coordinators: GroupCoordinators) -> None:
        self._session = session
        self._coordinators = coordinators
        self._places: defaultdict[int, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(_AT_ONCE_PER_BROKER)
        )
        self.found: dict[str, GroupOffsets | KafkaError] = {}
        self._last: dict[str, KafkaError] = {}
        """Why a group is asked for again."""

    def problem(self, group_id: str) -> KafkaError:
        """Of a group without an answer when the time is up."""
        return self._last.get(group_id) or from_reason(
            TIMEOUT, f"read offsets of group {group_id}", alias=self._session.alias
        )

    async def run(self, group_ids: Sequence[str]) -> None:
        """Return when each group has its answer in `found`. The caller bounds it."""
        async with asyncio.TaskGroup() as tasks:
            await self._round(group_ids, tasks)

    async def _round(self, group_ids: Sequence[str], tasks: asyncio.TaskGroup) -> None:
        """Look for the coordinators, then ask each of them."""
        doing = "read offsets of groups"
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
            tasks.create_task(later(), name="read offsets of groups again")

    async def _ask(self, node_id: int, group_ids: Sequence[str], tasks: asyncio.TaskGroup) -> None:
        async with self._places[node_id]:
            answers = await self._answers(node_id, group_ids)
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

    async def _answers(
        self, node_id: int, group_ids: Sequence[str]
    ) -> Mapping[str, GroupOffsets | KafkaError]:
        """Of each group, from a broker that should be its coordinator."""
        doing = "read offsets of groups"
        try:
            fetched = await self._session.send(node_id, fetch_offsets_request(group_ids), doing)
        except KafkaError as error:
            if error.reason != UNSUPPORTED.name:
                return dict.fromkeys(group_ids, error)
            return {group_id: await self._single_answer(node_id, group_id) for group_id in group_ids}
        return {
            group_id: self._judged(group_id, fetched.get(group_id, _NOT_ANSWERED)) for group_id in group_ids
        }

    async def _single_answer(self, node_id: int, group_id: str) -> GroupOffsets | KafkaError:
        """Of a broker that is asked for one group at a time."""
        doing = f"read offsets of group {group_id}"
        try:
            answer = await self._session.send(node_id, OffsetFetchRequest(group_id, None), doing)
        except KafkaError as error:
            return error
        offsets: dict[TopicPartition, CommittedOffset] = {}
        refusal = int(answer.error_code)
        for topic, partitions in answer.topics:
            for number, offset, metadata, code in partitions:
                refusal = refusal or int(code)
                if offset >= 0:
                    offsets[TopicPartition(topic, number)] = CommittedOffset(
                        next_offset=offset, metadata=metadata or ""
                    )
        return self._judged(group_id, FetchedGroup(refusal, offsets))

    def _judged(self, group_id: str, fetched: FetchedGroup) -> GroupOffsets | KafkaError:
        if fetched.error_code in (0, _GROUP_UNKNOWN):
            return fetched.offsets
        return from_code(fetched.error_code, f"read offsets of group {group_id}", alias=self._session.alias)


def _moved_by_commit(answer: Any) -> int:
    codes = {code for _, partitions in answer.topics for _, code in partitions}
    return int(min(codes & COORDINATOR_MOVED, default=0))
