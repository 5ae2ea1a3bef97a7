"""The ends of the logs on the cluster that a move leaves. Records before these ends belong to the move."""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from twinlog.clock import Clock
from twinlog.errors import KafkaError
from twinlog.kafka.ports import OffsetSpec
from twinlog.model import TopicPartition
from twinlog.service.waiting import wait_or_stop
from twinlog_checkpoint.translation.exact import LogSide
from twinlog_checkpoint.translation.log_sides import is_absent


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalEnds:
    """Where the logs end on the cluster that a move leaves."""

    ends: Mapping[TopicPartition, int]
    still_written: frozenset[TopicPartition] = frozenset()
    """Partitions that kept growing behind the fence, for as long as it was waited for."""


FENCE_SETTLE_SECONDS = 30.0
"""The longest time that logs may keep growing behind a fence; then their present ends are used."""


async def written_ends(
    side: LogSide, partitions: Collection[TopicPartition]
) -> Mapping[TopicPartition, int | KafkaError]:
    """Return the end of each log with the records of open transactions and those behind them, or why it
    cannot be looked up; partitions that do not exist are left out. Raises KafkaError."""
    if not partitions:
        return {}
    ends = await side.admin.list_offsets(OffsetSpec.LATEST, partitions)
    return {partition: end for partition, end in ends.items() if not is_absent(end)}


async def ends_now(
    side: LogSide, partitions: Collection[TopicPartition], *, accept_loss: bool = False
) -> dict[TopicPartition, int]:
    """Return the ends of all that is written: also what lies behind an open transaction was acknowledged.
    Raises KafkaError if one cannot be read, because all of them belong to the move; it is left out where the
    loss of its records is accepted."""
    ends: dict[TopicPartition, int] = {}
    for partition, end in (await written_ends(side, partitions)).items():
        if not isinstance(end, KafkaError):
            ends[partition] = end
        elif not accept_loss:
            raise end
    return ends


async def ends_behind_fence(
    side: LogSide,
    partitions: Collection[TopicPartition],
    *,
    clock: Clock,
    stop: asyncio.Event,
    look_seconds: float,
    accept_loss: bool = False,
) -> FinalEnds:
    """Wait until the logs no longer grow, at most `FENCE_SETTLE_SECONDS`, then return their ends. Raises
    KafkaError.

    Brokers apply a fence with a delay. A fence does not keep an open transaction from being committed: its
    records lie before the ends.
    """
    before = ends = await ends_now(side, partitions, accept_loss=accept_loss)
    give_up_at = clock.monotonic() + FENCE_SETTLE_SECONDS
    while clock.monotonic() < give_up_at and not stop.is_set():
        await wait_or_stop(stop, look_seconds)
        before, ends = ends, await ends_now(side, ends, accept_loss=accept_loss)
        if before == ends:
            break
    growing = {partition for partition, end in ends.items() if end != before.get(partition)}
    return FinalEnds(ends=ends, still_written=frozenset(growing))
