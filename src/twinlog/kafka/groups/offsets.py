"""The committed offsets of consumer groups, read and written with requests of our own.

confluent-kafka is not usable. `list_consumer_group_offsets`: when a coordinator moves or does not exist yet,
librdkafka (2.16.1) handles the answer as a consumer's and ends the whole process with a segmentation fault
(`rd_kafka_handle_OffsetFetch` -> `rd_kafka_cgrp_op` without a group). `alter_consumer_group_offsets` commits
metadata with a NUL byte at the end.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from aiokafka.protocol.commit import OffsetCommitRequest, OffsetFetchRequest

from twinlog.errors import KafkaError, TransientKafkaError
from twinlog.kafka.codes import COORDINATOR_MOVED, ErrorCode
from twinlog.kafka.deadline import deadline, pause
from twinlog.kafka.errors import UNSUPPORTED, from_code
from twinlog.kafka.groups.asking import ask_about_groups
from twinlog.kafka.groups.coordinators import BrokerSession, GroupCoordinators
from twinlog.kafka.groups.requests import FetchedGroup, fetch_offsets_request
from twinlog.kafka.ports import CommittedOffset
from twinlog.model import TopicPartition

_NOT_ANSWERED = FetchedGroup(16, {})
"""A group that the broker left out is asked for again."""
_PAUSE_SECONDS = 0.1
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
        by_topic: dict[str, list[tuple[int, int, str]]] = {}
        for partition, committed in offsets.items():
            entry = (partition.partition, committed.next_offset, committed.metadata)
            by_topic.setdefault(partition.topic, []).append(entry)
        request = OffsetCommitRequest(group_id, -1, "", -1, list(by_topic.items()))
        try:
            answer = await self._with_coordinator(group_id, request, doing, _moved_by_commit)
        except KafkaError as error:
            return dict.fromkeys(offsets, error)
        codes = {
            TopicPartition(topic, number): int(code)
            for topic, partitions in answer.topics
            for number, code in partitions
        }
        # A partition that is missing in the answer counts as not committed.
        codes = {partition: codes.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR) for partition in offsets}
        return {
            partition: from_code(code, f"{doing}, {partition}", alias=self._session.alias) if code else None
            for partition, code in codes.items()
        }

    async def _with_coordinator(
        self, group_id: str, request: Any, doing: str, moved: Callable[[Any], int]
    ) -> Any:
        """Ask until a coordinator answers, which may be another one by then; `moved` returns the error code
        when a broker is not the coordinator."""
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

    async def _answers(
        self, node_id: int, group_ids: Sequence[str]
    ) -> Mapping[str, GroupOffsets | KafkaError]:
        """The offsets of each group, from a broker that should be its coordinator."""
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
        """The offsets of one group, from a broker that takes one at a time."""
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
        if fetched.error_code in (0, ErrorCode.GROUP_ID_NOT_FOUND):
            return fetched.offsets
        return from_code(fetched.error_code, f"read offsets of group {group_id}", alias=self._session.alias)


def _moved_by_commit(answer: Any) -> int:
    codes = {code for _, partitions in answer.topics for _, code in partitions}
    return int(min(codes & COORDINATOR_MOVED, default=0))
