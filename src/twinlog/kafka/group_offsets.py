"""Committed offsets of consumer groups, read and written by requests of our own.

confluent-kafka's calls cannot be used. `list_consumer_group_offsets`: when a coordinator moves or is not
there yet, librdkafka (2.16.1) handles the answer as a consumer's and ends the whole process with a
segmentation fault (`rd_kafka_handle_OffsetFetch` -> `rd_kafka_cgrp_op` without a group).
`alter_consumer_group_offsets`: it commits metadata with a NUL byte at its end.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

from aiokafka.protocol.commit import OffsetCommitRequest, OffsetFetchRequest

from twinlog.errors import KafkaError, TransientKafkaError
from twinlog.kafka.connection import DataSession
from twinlog.kafka.deadline import deadline, pause
from twinlog.kafka.errors import TIMEOUT, from_code, from_reason
from twinlog.kafka.group_coordinators import COORDINATOR_MOVED, GroupCoordinators
from twinlog.kafka.ports import CommittedOffset
from twinlog.model import TopicPartition

_GROUP_UNKNOWN = 69
_AT_ONCE = 8
_PAUSE_SECONDS = 0.1
_GROUP_SHARE = 0.9
"""Share of the time-out that one group gets, so that its own error, which says more, comes first."""

GroupOffsets = Mapping[TopicPartition, CommittedOffset]


class GroupOffsetsClient:
    """Speaks on a session; remembers each group's coordinator.

    Each call is bounded by the session's time-out.
    """

    def __init__(self, session: DataSession) -> None:
        self._session = session
        self._coordinators = GroupCoordinators(session)

    async def read(self, group_ids: Collection[str]) -> dict[str, GroupOffsets | KafkaError]:
        """All committed offsets of each group, or why they cannot be read; a group that is not there has
        none."""
        found: dict[str, GroupOffsets | KafkaError] = {}
        places = asyncio.Semaphore(_AT_ONCE)

        async def one(group_id: str) -> None:
            async with places:
                try:
                    found[group_id] = await self._read(group_id)
                except KafkaError as error:
                    found[group_id] = error

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._session.timeout_seconds), asyncio.TaskGroup() as tasks:
                for group_id in sorted(set(group_ids)):
                    tasks.create_task(one(group_id), name=f"offsets of {group_id}")
        for group_id in set(group_ids) - set(found):
            found[group_id] = from_reason(
                TIMEOUT, f"read offsets of group {group_id}", alias=self._session.alias
            )
        return found

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

    async def _read(self, group_id: str) -> GroupOffsets:
        doing = f"read offsets of group {group_id}"
        request = OffsetFetchRequest(group_id, None)
        answer = await self._with_coordinator(group_id, request, doing, _moved_by_fetch)
        self._refuse(answer.error_code, doing)
        committed: dict[TopicPartition, CommittedOffset] = {}
        for topic, partitions in answer.topics:
            for number, offset, metadata, code in partitions:
                self._refuse(code, doing)
                if offset >= 0:
                    committed[TopicPartition(topic, number)] = CommittedOffset(
                        next_offset=offset, metadata=metadata or ""
                    )
        return committed

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

    def _refuse(self, code: int, doing: str) -> None:
        if code not in (0, _GROUP_UNKNOWN):
            raise from_code(code, doing, alias=self._session.alias)


def _moved_by_fetch(answer: Any) -> int:
    return int(answer.error_code) if answer.error_code in COORDINATOR_MOVED else 0


def _moved_by_commit(answer: Any) -> int:
    codes = {code for _, partitions in answer.topics for _, code in partitions}
    return int(min(codes & COORDINATOR_MOVED, default=0))
