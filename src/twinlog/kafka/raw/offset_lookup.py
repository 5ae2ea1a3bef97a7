"""Offsets asked of the partitions' leaders: the one way to ListOffsets.

librdkafka's list_offsets gives -1001 as an offset where a broker did not answer, and "no leader" for all
where none of the asked topics exists or may be seen: one failed broker or topic must be that partition's
error and no other's.
"""

from collections.abc import Collection, Mapping

from twinlog.errors import KafkaError
from twinlog.kafka.ports import OffsetSpec
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.protocol.list_offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    LogOffset,
    list_offsets_request,
)
from twinlog.kafka.protocol.requests import HandWrittenRequest
from twinlog.kafka.raw.leaders import LeaderAnswers, ask_leaders
from twinlog.model import TopicPartition

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

    Raises KafkaError only when the whole cluster cannot be reached. Bounded by `timeout_seconds`; None = the
    session's time-out. Leaders that moved: see `ask_leaders`.
    """

    def request(led: Collection[TopicPartition]) -> HandWrittenRequest[LeaderAnswers[LogOffset]]:
        wanted = {partition: timestamps_ms[partition] for partition in led}
        return list_offsets_request(wanted, read_committed=read_committed)

    answers = await ask_leaders(
        session,
        timestamps_ms,
        request,
        doing,
        timeout_seconds=session.timeout_seconds if timeout_seconds is None else timeout_seconds,
        fresh=False,
    )
    return {
        partition: answer if isinstance(answer, KafkaError) else answer.offset
        for partition, answer in answers.items()
    }
