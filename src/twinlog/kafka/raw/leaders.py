"""The leaders of partitions, and requests to all leaders at once, on one session."""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

from twinlog.errors import FatalKafkaError, KafkaError, WireFormatError
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.deadline import deadline, pause
from twinlog.kafka.errors import TIMEOUT, from_code
from twinlog.kafka.protocol.client_pool import FIRST_CONNECTION_GROUP, DataClientPool
from twinlog.kafka.protocol.connection import DataClient
from twinlog.kafka.protocol.metadata import topic_ids_request
from twinlog.kafka.protocol.requests import HandWrittenRequest
from twinlog.model import TopicPartition

# Errors about single partitions, so that only the refused one is set aside.


def partition_error(
    code: int, partition: TopicPartition, doing: str, *, alias: str, detail: str = ""
) -> KafkaError:
    """A broker's refusal, with `topic` and `partition` in its metadata."""
    return about(partition, from_code(code, f"{doing}, {partition}", alias=alias, detail=detail))


def about(partition: TopicPartition, error: KafkaError) -> KafkaError:
    """The same error with the partition in its metadata."""
    error.metadata["topic"] = partition.topic
    error.metadata["partition"] = str(partition.partition)
    return error


def not_told(partition: TopicPartition, doing: str, *, alias: str) -> KafkaError:
    """A broker answered without this partition: it may no longer lead it. Transient."""
    return partition_error(
        ErrorCode.not_leader_or_follower, partition, doing, alias=alias, detail="the broker left it out"
    )


def again(error: KafkaError) -> KafkaError:
    """A copy for another partition with the same failure."""
    return type(error)(str(error), reason=error.reason, metadata=error.metadata, code=error.code)


def damaged(error: WireFormatError, doing: str, *, alias: str) -> FatalKafkaError:
    """A broker's data of a log cannot be read."""
    return FatalKafkaError(
        f"cluster {alias}: {doing}: {error}",
        reason=error.reason,
        metadata={"cluster": alias, **error.metadata},
    )


T = TypeVar("T")
LeaderAnswers = list[tuple[TopicPartition, int, T]]
"""For each partition its error code and the answer, which is only valid with code 0."""

_METADATA_SECONDS = 10.0
_MEET_SECONDS = 2.0
"""A leader that takes longer holds up nobody who needs the others."""
_SHARE = 0.9
"""The share of the time-out for one broker, so that a silent one only affects its own partitions."""
_NEW_LEADER_SECONDS = 1.0
"""How long to look for leaders that have just moved, or are being elected."""
_PAUSE_SECONDS = 0.1


def by_topic(
    partitions: Iterable[TopicPartition], asked: Callable[[TopicPartition], T]
) -> dict[str, list[T]]:
    """What is asked about each partition, as requests have it."""
    topics: dict[str, list[T]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(asked(partition))
    return topics


def answered(
    found: Mapping[TopicPartition, T | KafkaError], refused: Callable[[TopicPartition, KafkaError], None]
) -> dict[TopicPartition, T]:
    """The partitions with an answer; the others are passed to `refused`."""
    answers: dict[TopicPartition, T] = {}
    for partition, answer in found.items():
        if isinstance(answer, KafkaError):
            refused(partition, answer)
        else:
            answers[partition] = answer
    return answers


def leader_of(client: DataClient, partition: TopicPartition) -> int | None:
    """The node id of the leader as last known; None while unknown or absent."""
    leader = client.cluster.leader_for_partition(partition)
    return int(leader) if leader is not None and leader >= 0 else None


async def refresh_metadata(session: DataClientPool, client: DataClient, topics: Collection[str] = ()) -> None:
    """Read the metadata again, from now on including these topics. Raises KafkaError; takes at most 10 s."""
    doing = "read the metadata"
    async with deadline(_METADATA_SECONDS, doing, alias=session.alias):
        if not client._topics.issuperset(topics):
            client.set_topics(client._topics.union(topics))
        if not await client.force_metadata_update():
            session.suspect()
            raise from_code(ErrorCode.broker_not_available, doing, alias=session.alias)


async def prepare_to_fetch(session: DataClientPool, topics: Collection[str]) -> None:
    """Find the leaders of topics and connect to them, so that the first fetch waits for neither. Raises
    KafkaError; takes at most 10 s."""
    await meet_leaders(session, topics, FIRST_CONNECTION_GROUP)


async def meet_leaders(session: DataClientPool, topics: Collection[str], connection_group: int) -> None:
    """Read the metadata of topics and open connections to their leaders. Raises KafkaError; takes at most 10
    s.

    A leader that cannot be reached is not an error here: the next request meets it again.
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
        async with asyncio.TaskGroup() as group:
            for node in {leader_of(client, partition) for partition in partitions} - {None}:
                group.create_task(_meet(client, node, connection_group), name=f"meet broker {node}")


async def _meet(client: DataClient, node: int | None, connection_group: int) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_MEET_SECONDS):
            await client.ready(node, group=connection_group)


def no_leader(session: DataClientPool, client: DataClient, partition: TopicPartition) -> KafkaError:
    """Why a partition has no leader after a refresh: unauthorised, between leaders, or it does not exist."""
    code = ErrorCode.unknown_topic_or_partition
    if partition.topic in client.cluster.unauthorized_topics:
        code = ErrorCode.topic_authorization_failed
    elif client.cluster.leader_for_partition(partition) is not None:
        code = ErrorCode.leader_not_available
    detail = client.who_may_lead(partition)
    return partition_error(code, partition, "find the leader", alias=session.alias, detail=detail)


async def ask_leaders(
    session: DataClientPool,
    partitions: Collection[TopicPartition],
    request: Callable[[Collection[TopicPartition]], HandWrittenRequest[LeaderAnswers[T]]],
    doing: str,
    *,
    timeout_seconds: float,
    fresh: bool = True,
) -> dict[TopicPartition, T | KafkaError]:
    """The answer of each partition's leader, or the error. `fresh`: read the metadata first.

    Leaders that moved are looked up again for a second, and so are those that leave a partition out of their
    answer (then LEADER_UNAVAILABLE). A silent broker only affects its own partitions. Raises KafkaError when
    no broker can be reached in time.
    """
    found: dict[TopicPartition, T | KafkaError] = {}
    if not partitions:
        return found

    async def ask(node: int, led: Collection[TopicPartition]) -> None:
        try:
            async with deadline(timeout_seconds, doing, alias=session.alias, share=_SHARE):
                answers = await session.send(node, request(led), doing)
        except KafkaError as error:
            found.update((partition, about(partition, again(error))) for partition in led)
        else:
            found.update(_told(led, answers, doing, alias=session.alias))

    async with deadline(timeout_seconds, doing, alias=session.alias):
        client = await session.client(doing)
        if fresh:
            await refresh_metadata(session, client, {partition.topic for partition in partitions})
        loop = asyncio.get_running_loop()
        look_again_until = loop.time() + _NEW_LEADER_SECONDS
        asked = tuple(partitions)
        while asked:
            by_node: dict[int, list[TopicPartition]] = {}
            leaders = await client.leaders(asked, doing, alias=session.alias)
            for partition, leader in leaders.items():
                if isinstance(leader, KafkaError):
                    found[partition] = about(partition, leader)
                else:
                    by_node.setdefault(leader, []).append(partition)
            async with asyncio.TaskGroup() as group:
                for node, led in by_node.items():
                    group.create_task(ask(node, led), name=f"{doing} of broker {node}")
            asked = tuple(partition for partition in asked if _may_have_moved(found[partition]))
            if loop.time() >= look_again_until:
                break
            if asked:
                await pause(_PAUSE_SECONDS)
                await client.refreshed()
    return found


def _told(
    led: Collection[TopicPartition], answers: LeaderAnswers[T], doing: str, *, alias: str
) -> dict[TopicPartition, T | KafkaError]:
    asked = set(led)
    told: dict[TopicPartition, T | KafkaError] = {
        partition: partition_error(code, partition, doing, alias=alias) if code else answer
        for partition, code, answer in answers
        if partition in asked
    }
    left_out = (partition for partition in led if partition not in told)
    return told | {partition: not_told(partition, doing, alias=alias) for partition in left_out}


def _may_have_moved(answer: object) -> bool:
    """Not if a broker was silent, because it has already had its time."""
    if not isinstance(answer, KafkaError):
        return False
    unknown = answer.code == ErrorCode.unknown_topic_or_partition
    return unknown or (answer.retriable and answer.reason != TIMEOUT.name)


# The ids of topics, according to the leaders of their partitions (KIP-516).


async def leader_topic_ids(
    session: DataClientPool, partitions: Collection[TopicPartition], *, timeout_seconds: float = 30.0
) -> dict[TopicPartition, str | KafkaError]:
    """The id of each partition's topic ("" before Kafka 2.8), or the error.

    A leader learns of a topic before it has its log, so its answer is never older than that of the log.
    Raises KafkaError when no broker can be reached in time.
    """
    return await ask_leaders(
        session, partitions, topic_ids_request, "ask for the ids of topics", timeout_seconds=timeout_seconds
    )
