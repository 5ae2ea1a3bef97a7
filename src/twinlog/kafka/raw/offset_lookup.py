"""Offsets asked of the partitions' leaders: the one way to ListOffsets.

librdkafka's list_offsets gives -1001 as an offset where a broker did not answer, and "no leader" for all
where none of the asked topics exists or may be seen: one failed broker or topic must be that partition's
error and no other's.
"""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping

from twinlog.errors import KafkaError
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.deadline import deadline, pause
from twinlog.kafka.errors import TIMEOUT
from twinlog.kafka.ports import OffsetSpec
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.protocol.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, list_offsets_request
from twinlog.kafka.raw.errors import about, again, not_told, partition_error
from twinlog.model import TopicPartition

_SHARE = 0.9
"""Share of the time-out that one broker gets, so that its silence is its partitions' error only."""
_NEW_LEADER_SECONDS = 1.0
"""How long leaders are looked for again that have just moved, or are only being chosen."""
_PAUSE_SECONDS = 0.1
_TIMESTAMPS = {
    OffsetSpec.EARLIEST: EARLIEST_TIMESTAMP,
    OffsetSpec.LATEST: LATEST_TIMESTAMP,
    OffsetSpec.LAST_STABLE: LATEST_TIMESTAMP,
}

Answers = dict[TopicPartition, int | KafkaError]


async def list_offsets(
    session: DataClientPool,
    spec: OffsetSpec,
    partitions: Collection[TopicPartition],
    *,
    timeout_seconds: float | None = None,
) -> Answers:
    """The offset `spec` names for each partition, or why there is none. As `look_up_offsets`."""
    return await look_up_offsets(
        session,
        dict.fromkeys(partitions, _TIMESTAMPS[spec]),
        read_committed=spec is OffsetSpec.LAST_STABLE,
        doing=f"list {spec} offsets",
        timeout_seconds=timeout_seconds,
    )


async def look_up_offsets(
    session: DataClientPool,
    timestamps_ms: Mapping[TopicPartition, int],
    *,
    read_committed: bool,
    doing: str,
    timeout_seconds: float | None = None,
) -> Answers:
    """For each partition the offset of a time in ms (or EARLIEST_TIMESTAMP, LATEST_TIMESTAMP), -1 for none.

    Leaders that moved are looked for again for a second, and so are those that leave a partition out of their
    answer: it is LEADER_UNAVAILABLE then. Raises KafkaError only when the whole cluster cannot be reached.
    Bounded by `timeout_seconds`; None = the session's time-out.
    """
    bound_seconds = session.timeout_seconds if timeout_seconds is None else timeout_seconds
    loop = asyncio.get_running_loop()
    look_again_until = loop.time() + _NEW_LEADER_SECONDS
    answers: Answers = {}
    asked: Collection[TopicPartition] = tuple(timestamps_ms)
    async with deadline(bound_seconds, doing, alias=session.alias):
        while asked:
            client = await session.client(doing)
            leaders = await client.leaders(asked, doing, alias=session.alias)
            by_node: defaultdict[int, dict[TopicPartition, int]] = defaultdict(dict)
            for partition, leader in leaders.items():
                if isinstance(leader, KafkaError):
                    answers[partition] = about(partition, leader)
                else:
                    by_node[leader][partition] = timestamps_ms[partition]

            async def ask(node_id: int, wanted: Mapping[TopicPartition, int]) -> None:
                request = list_offsets_request(wanted, read_committed=read_committed)
                try:
                    async with deadline(bound_seconds * _SHARE, doing, alias=session.alias):
                        found = await session.send(node_id, request, doing)
                except KafkaError as error:
                    answers.update((partition, about(partition, again(error))) for partition in wanted)
                    return
                for partition, code, answer in found:
                    if partition not in wanted:
                        continue
                    refusal = partition_error(code, partition, doing, alias=session.alias) if code else None
                    answers[partition] = refusal or answer.offset
                told = {partition for partition, _, _ in found}
                for partition in wanted.keys() - told:
                    answers[partition] = not_told(partition, doing, alias=session.alias)

            async with asyncio.TaskGroup() as group:
                for node_id, wanted in by_node.items():
                    group.create_task(ask(node_id, wanted), name=f"{doing} of broker {node_id}")
            asked = [partition for partition in asked if _may_have_moved(answers[partition])]
            if loop.time() >= look_again_until:
                break
            if asked:
                await pause(_PAUSE_SECONDS)
                await client.refreshed()
    return answers


def _may_have_moved(answer: int | KafkaError) -> bool:
    """Not where a broker was silent: it was given its time already."""
    if isinstance(answer, int):
        return False
    unknown = answer.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return unknown or (answer.retriable and answer.reason != TIMEOUT.name)
