"""Who leads which partition, and the bounds of logs, on one session."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any, TypeVar

from aiokafka.protocol.offset import OffsetRequest

from twinlog.errors import KafkaError, TransientKafkaError
from twinlog.kafka.deadline import deadline
from twinlog.kafka.errors import from_code
from twinlog.kafka.ports import OffsetSpec
from twinlog.kafka.protocol.connection import FIRST_CONNECTION_GROUP, DataClient, DataClientPool
from twinlog.kafka.protocol.requests import HandWrittenRequest
from twinlog.kafka.raw.errors import about, again, partition_error
from twinlog.model import TopicPartition

T = TypeVar("T")
LeaderAnswers = list[tuple[TopicPartition, int, T]]
"""Of each partition: error code, and the answer, which means something only with code 0."""

_UNAVAILABLE = 8
_UNKNOWN_TOPIC = 3
_LEADER_UNAVAILABLE = 5
_TOPIC_UNAUTHORIZED = 29
_METADATA_SECONDS = 10.0
_EARLIEST_TIMESTAMP, _LATEST_TIMESTAMP = -2, -1
_CONSUMER = -1


def leader_of(client: DataClient, partition: TopicPartition) -> int | None:
    """Node id of the leader as last heard; None while unknown or absent."""
    leader = client.cluster.leader_for_partition(partition)
    return int(leader) if leader is not None and leader >= 0 else None


async def refresh_metadata(session: DataClientPool, client: DataClient, topics: Collection[str] = ()) -> None:
    """Read the metadata again, from now on with these topics too. Raises KafkaError; at most 10 s."""
    doing = "read the metadata"
    async with deadline(_METADATA_SECONDS, doing, alias=session.alias):
        if not client._topics.issuperset(topics):
            client.set_topics(client._topics.union(topics))
        if not await client.force_metadata_update():
            session.suspect()
            raise from_code(_UNAVAILABLE, doing, alias=session.alias)


async def prepare_to_fetch(session: DataClientPool, topics: Collection[str]) -> None:
    """Find the leaders of topics and connect to them, so that the first fetch waits for neither. Raises
    KafkaError; at most 10 s."""
    await meet_leaders(session, topics, FIRST_CONNECTION_GROUP)


async def meet_leaders(session: DataClientPool, topics: Collection[str], connection_group: int) -> None:
    """Read the metadata of topics and open connections to their leaders. Raises KafkaError; at most 10 s.

    A leader that cannot be reached is no error: whoever needs it meets it again.
    """
    doing = "find leaders"
    async with deadline(_METADATA_SECONDS, doing, alias=session.alias):
        client = await session.client(doing)
        await refresh_metadata(session, client, topics)
        partitions = [
            TopicPartition(topic, number)
            for topic in topics
            for number in client.cluster.partitions_for_topic(topic) or ()
        ]
        for node in {leader_of(client, partition) for partition in partitions} - {None}:
            await client.ready(node, group=connection_group)


def no_leader(session: DataClientPool, client: DataClient, partition: TopicPartition) -> KafkaError:
    """Why a partition has no leader, after a refresh: unauthorised, between leaders, or not there."""
    code = _UNKNOWN_TOPIC
    if partition.topic in client.cluster.unauthorized_topics:
        code = _TOPIC_UNAUTHORIZED
    elif client.cluster.leader_for_partition(partition) is not None:
        code = _LEADER_UNAVAILABLE
    return partition_error(code, partition, "find the leader", alias=session.alias)


async def ask_leaders(
    session: DataClientPool,
    partitions: Collection[TopicPartition],
    request: Callable[[Collection[TopicPartition]], HandWrittenRequest[LeaderAnswers[T]]],
    doing: str,
    *,
    timeout_seconds: float,
) -> dict[TopicPartition, T | KafkaError]:
    """What the leader of each partition answers, or why it does not; the metadata are read before.

    Raises KafkaError when no broker can be reached in time.
    """
    found: dict[TopicPartition, T | KafkaError] = {}

    async def exchange(node: int, led: Collection[TopicPartition]) -> LeaderAnswers[T]:
        answers: LeaderAnswers[T] = await session.send(node, request(led), doing)
        return answers

    async with deadline(timeout_seconds, doing, alias=session.alias):
        client = await session.client(doing)
        await refresh_metadata(session, client, {partition.topic for partition in partitions})
        await _ask_each_leader(session, client, partitions, exchange, doing, found)
    return found


async def _ask_each_leader(
    session: DataClientPool,
    client: DataClient,
    partitions: Iterable[TopicPartition],
    exchange: Callable[[int, Collection[TopicPartition]], Awaitable[LeaderAnswers[T]]],
    doing: str,
    found: dict[TopicPartition, T | KafkaError],
) -> None:
    """Ask the leaders that are known now at the same time; `found` gets an answer or a refusal for each."""
    by_node: dict[int, list[TopicPartition]] = {}
    for partition in partitions:
        leader = leader_of(client, partition)
        if leader is None:
            found[partition] = no_leader(session, client, partition)
        else:
            by_node.setdefault(leader, []).append(partition)

    async def ask(node: int, led: Collection[TopicPartition]) -> None:
        try:
            answers = await exchange(node, led)
        except KafkaError as error:
            found.update((partition, about(partition, again(error))) for partition in led)
            return
        for partition, code, answer in answers:
            refusal = partition_error(code, partition, doing, alias=session.alias) if code else None
            found[partition] = refusal or answer

    async with asyncio.TaskGroup() as group:
        for node, led in by_node.items():
            group.create_task(ask(node, led), name=f"{doing} of broker {node}")


async def list_offsets(
    session: DataClientPool,
    spec: OffsetSpec,
    partitions: Collection[TopicPartition],
    *,
    timeout_seconds: float = 30.0,
) -> dict[TopicPartition, int | KafkaError]:
    """The offset `spec` names, per partition, or why there is none.

    Asks the leaders at the same time, and once more after a refresh where that may help. Raises KafkaError
    when no broker can be reached in time.
    """
    doing = f"list {spec} offsets"
    found: dict[TopicPartition, int | KafkaError] = {}

    async def exchange(node: int, led: Collection[TopicPartition]) -> LeaderAnswers[int]:
        response: Any = await session.send(node, _offset_request(spec, led), doing)
        return [
            (TopicPartition(topic, number), code, offset)
            for topic, answers in response.topics
            for number, code, _, offset in answers
        ]

    async with deadline(timeout_seconds, doing, alias=session.alias):
        for last_attempt in (False, True):
            client = await session.client(doing)
            left = [partition for partition in partitions if not isinstance(found.get(partition), int)]
            if last_attempt or any(leader_of(client, partition) is None for partition in left):
                await refresh_metadata(session, client, {partition.topic for partition in left})
            await _ask_each_leader(session, client, left, exchange, doing, found)
            if not any(isinstance(offset, TransientKafkaError) for offset in found.values()):
                break
    return found


def _offset_request(spec: OffsetSpec, partitions: Iterable[TopicPartition]) -> OffsetRequest:
    timestamp = _EARLIEST_TIMESTAMP if spec is OffsetSpec.EARLIEST else _LATEST_TIMESTAMP
    by_topic: dict[str, list[tuple[int, int]]] = {}
    for partition in partitions:
        by_topic.setdefault(partition.topic, []).append((partition.partition, timestamp))
    read_committed = spec is OffsetSpec.LAST_STABLE
    return OffsetRequest(_CONSUMER, int(read_committed), list(by_topic.items()))
