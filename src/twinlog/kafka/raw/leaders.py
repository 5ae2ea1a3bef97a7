"""Who leads which partition, and questions to all leaders at once, on one session."""

import asyncio
from collections.abc import Callable, Collection
from typing import TypeVar

from twinlog.errors import KafkaError
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.deadline import deadline
from twinlog.kafka.errors import from_code
from twinlog.kafka.protocol.client_pool import FIRST_CONNECTION_GROUP, DataClientPool
from twinlog.kafka.protocol.connection import DataClient
from twinlog.kafka.protocol.requests import HandWrittenRequest
from twinlog.kafka.raw.errors import about, again, not_told, partition_error
from twinlog.model import TopicPartition

T = TypeVar("T")
LeaderAnswers = list[tuple[TopicPartition, int, T]]
"""For each partition its error code and the answer, which means something only with code 0."""

_METADATA_SECONDS = 10.0


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
            raise from_code(ErrorCode.BROKER_NOT_AVAILABLE, doing, alias=session.alias)


async def prepare_to_fetch(session: DataClientPool, topics: Collection[str]) -> None:
    """Find the leaders of topics and connect to them, so that the first fetch waits for neither. Raises
    KafkaError; at most 10 s."""
    await meet_leaders(session, topics, FIRST_CONNECTION_GROUP)


async def meet_leaders(session: DataClientPool, topics: Collection[str], connection_group: int) -> None:
    """Read the metadata of topics and open connections to their leaders. Raises KafkaError; at most 10 s.

    A leader that cannot be reached is no error: the next request meets it again.
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
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if partition.topic in client.cluster.unauthorized_topics:
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif client.cluster.leader_for_partition(partition) is not None:
        code = ErrorCode.LEADER_NOT_AVAILABLE
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

    async def ask(node: int, led: Collection[TopicPartition]) -> None:
        try:
            answers = await session.send(node, request(led), doing)
        except KafkaError as error:
            found.update((partition, about(partition, again(error))) for partition in led)
            return
        for partition, code, answer in answers:
            refusal = partition_error(code, partition, doing, alias=session.alias) if code else None
            found[partition] = refusal or answer
        for partition in led:
            if partition not in found:
                found[partition] = not_told(partition, doing, alias=session.alias)

    async with deadline(timeout_seconds, doing, alias=session.alias):
        client = await session.client(doing)
        await refresh_metadata(session, client, {partition.topic for partition in partitions})
        by_node: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            leader = leader_of(client, partition)
            if leader is None:
                found[partition] = no_leader(session, client, partition)
            else:
                by_node.setdefault(leader, []).append(partition)
        async with asyncio.TaskGroup() as group:
            for node, led in by_node.items():
                group.create_task(ask(node, led), name=f"{doing} of broker {node}")
    return found
