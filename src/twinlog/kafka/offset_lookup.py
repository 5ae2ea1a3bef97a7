"""Offsets asked of the partitions' leaders.

librdkafka's list_offsets gives -1001 as an offset where a broker did not answer, and "no leader" for all
where none of the asked topics exists or may be seen: one failed broker or topic must be that partition's
error and no other's.
"""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any

from aiokafka.protocol.offset import OffsetRequest

from twinlog.errors import KafkaError
from twinlog.kafka.deadline import deadline, pause
from twinlog.kafka.errors import TIMEOUT, UNSUPPORTED, from_code, from_reason
from twinlog.kafka.protocol.connection import DataClientPool
from twinlog.model import TopicPartition

EARLIEST_TIMESTAMP = -2
LATEST_TIMESTAMP = -1
_OLDEST_VERSION = 1
_CONSUMER = -1
_SHARE = 0.9
"""Share of the time-out that one broker gets, so that its silence is its partitions' error only."""
_NEW_LEADER_SECONDS = 1.0
"""How long leaders are looked for again that have just moved, or are only being chosen."""
_PAUSE_SECONDS = 0.1
_UNKNOWN_TOPIC = 3

Answers = dict[TopicPartition, int | KafkaError]


async def look_up_offsets(
    session: DataClientPool, timestamps_ms: Mapping[TopicPartition, int], *, read_committed: bool, doing: str
) -> Answers:
    """For each partition the offset of a time in ms (or EARLIEST_TIMESTAMP, LATEST_TIMESTAMP), -1 for none.

    Raises KafkaError only when the whole cluster cannot be reached. Bounded by the session's time-out.
    """
    loop = asyncio.get_running_loop()
    look_again_until = loop.time() + _NEW_LEADER_SECONDS
    answers: Answers = {}
    asked: Collection[TopicPartition] = tuple(timestamps_ms)
    async with deadline(session.timeout_seconds, doing, alias=session.alias):
        while asked:
            client = await session.client(doing)
            leaders = await client.leaders(asked, doing, alias=session.alias)
            by_node: defaultdict[int, list[TopicPartition]] = defaultdict(list)
            for partition, leader in leaders.items():
                if isinstance(leader, KafkaError):
                    answers[partition] = leader
                else:
                    by_node[leader].append(partition)
            async with asyncio.TaskGroup() as group:
                for node_id, partitions in by_node.items():
                    wanted = {partition: timestamps_ms[partition] for partition in partitions}
                    group.create_task(
                        _ask(session, node_id, wanted, answers, read_committed=read_committed, doing=doing),
                        name=f"{doing} of broker {node_id}",
                    )
            asked = [partition for partition in asked if _may_have_moved(answers[partition])]
            if loop.time() >= look_again_until:
                break
            if asked:
                await pause(_PAUSE_SECONDS)
                await client.refreshed()
    return answers


async def _ask(
    session: DataClientPool,
    node_id: int,
    timestamps_ms: Mapping[TopicPartition, int],
    answers: Answers,
    *,
    read_committed: bool,
    doing: str,
) -> None:
    by_topic: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for partition, timestamp_ms in timestamps_ms.items():
        by_topic[partition.topic].append((partition.partition, timestamp_ms))
    request = OffsetRequest(_CONSUMER, int(read_committed), list(by_topic.items()))
    try:
        async with deadline(session.timeout_seconds * _SHARE, doing, alias=session.alias):
            response = await session.send(node_id, request, doing)
        answers.update(_answers(response, doing, session.alias))
    except KafkaError as error:
        answers.update(dict.fromkeys(timestamps_ms, error))


def _answers(response: Any, doing: str, alias: str) -> Answers:
    if response.API_VERSION < _OLDEST_VERSION:
        raise from_reason(UNSUPPORTED, doing, alias=alias)
    return {
        TopicPartition(topic, number): from_code(code, doing, alias=alias) if code else offset
        for topic, partitions in response.topics
        for number, code, _, offset in partitions
    }


def _may_have_moved(answer: int | KafkaError) -> bool:
    """Not where a broker was silent: it was given its time already."""
    if isinstance(answer, int):
        return False
    return answer.code == _UNKNOWN_TOPIC or (answer.retriable and answer.reason != TIMEOUT.name)
