"""A source that does not have a position, of which no leader says that anything is lost, or not yet."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from twinlog.kafka.clients import FetchOptions
from twinlog.kafka.ports import OffsetSpec
from twinlog.kafka.raw import RawFetcher
from twinlog.model import Flow, TopicPartition
from twinlog.service.waiting import wait_or_stop
from twinlog.testing.virtual_time import LoopClock
from twinlog_source.task.loss_judge import AGAIN_SECONDS, LossJudge
from twinlog_source.task.partition import PartitionCopy
from unit.kafka.source_rig import source_rig
from unit.source.task.halves import reading_half

P = TopicPartition("t", 0)
SECONDS = 10.0


class NothingLost:
    """Leaders that have every position."""

    async def offsets(self, spec: OffsetSpec, _: Sequence[PartitionCopy]) -> dict[TopicPartition, int]:
        return {P: 0 if spec is OffsetSpec.EARLIEST else 100}

    async def divergences(self, _: Sequence[PartitionCopy]) -> dict[TopicPartition, None]:
        return {P: None}


@pytest.mark.parametrize("in_flight", [True, False])
async def test_a_refused_position_that_nothing_changes_is_not_fetched_again_and_again(
    *, in_flight: bool
) -> None:
    copy = PartitionCopy(partition=P, target_topic="t", committed=0, random=lambda: 1.0)
    if in_flight:
        copy.fetched = copy.sent = 10
        copy.rounds = 1
    nothing: Any = None
    questions: Any = NothingLost()
    judge = LossJudge(
        flow=Flow("A", "B"),
        questions=questions,
        target_writer=nothing,
        preserved=None,
        topic_ids={},
        on_gap=nothing,
        fail_on_data_loss=False,
        clock=LoopClock(),
    )
    stop = asyncio.Event()
    async with (
        source_rig({P: 1}) as source,
        RawFetcher(source.session, FetchOptions()) as fetcher,
        asyncio.TaskGroup() as group,
    ):
        source.partition(P).log.delete_before(1000)
        reader = reading_half(
            fetcher, {P: copy}, on_out_of_range=judge.on_out_of_range, on_other_leaders=judge.on_other_leaders
        )
        group.create_task(reader.run(stop), name="reader")
        await wait_or_stop(stop, SECONDS)
        assert 1 < len(source.asked) <= SECONDS / AGAIN_SECONDS + 1
        stop.set()
        reader.wake()
