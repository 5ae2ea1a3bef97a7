"""Looks up offsets at the partitions' leaders; the only use of ListOffsets. A failed broker or topic only
affects its own partitions."""

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
    """The offset that `spec` names for each partition, or the error. As `look_up_offsets`."""
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
