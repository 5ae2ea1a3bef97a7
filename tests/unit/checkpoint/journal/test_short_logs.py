"""Internal topics whose leader shows less than the log was seen to have: nobody waits for ever, and nobody
takes a part for the whole."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest

from twinlog.errors import TransientKafkaError
from twinlog.kafka.ports import OffsetSpec
from twinlog.model import Flow, TopicPartition
from twinlog.offsets import CheckpointHistory
from twinlog.testing.fakes.cluster import Call, FakeCluster
from twinlog.testing.virtual_time import FakeClock
from twinlog_checkpoint.groups.checkpoint_log import CheckpointLog
from twinlog_checkpoint.journal import MoveJournal, moves_table, source_table
from twinlog_checkpoint.translation.sync_history_log import SyncHistoryLog

FLOW = Flow("A", "B")
FAILOVER = "mm2-failover.A.internal"
OTHER = "internal"


async def moves(target: FakeCluster) -> object:
    return await MoveJournal(flow=FLOW, table=moves_table(FLOW, target, replication_factor=1)).load()


async def source(target: FakeCluster) -> object:
    return await source_table(FLOW, target, replication_factor=1).load()


async def checkpoints(target: FakeCluster) -> object:
    log = CheckpointLog(flow=FLOW, topic=OTHER, replication_factor=1, admin=target, reader_cluster=target)
    return await log.restore(CheckpointHistory())


async def syncs(target: FakeCluster) -> object:
    log = SyncHistoryLog(flow=FLOW, topic=OTHER, replication_factor=1, admin=target, reader_cluster=target)
    return await log.load("id")


@contextmanager
def ten_more(target: FakeCluster) -> Iterator[None]:
    """Ends are told that fetches do not show."""

    def tell(call: Call) -> None:
        if call.arguments["spec"] is not OffsetSpec.EARLIEST:
            for partition in call.result:
                call.result[partition] += 10

    def tell_ends(call: Call) -> None:
        for partition, (end, leader_epoch) in call.result.items():
            call.result[partition] = (end + 10, leader_epoch)

    undo = target.intercept("list_offsets", tell, after=True)
    undo_ends = target.intercept("log_ends", tell_ends, after=True)
    yield
    undo()
    undo_ends()


@pytest.mark.parametrize("read", [moves, source, checkpoints, syncs])
async def test_a_log_that_shows_less_than_was_told_is_tried_again(
    read: Callable[[FakeCluster], Awaitable[object]],
) -> None:
    target = FakeCluster("B", clock=FakeClock())
    for topic in (FAILOVER, OTHER):
        target.add_topic(topic, configs={"cleanup.policy": "compact"})
        async with target.writer() as writer:
            await writer.append(TopicPartition(topic, 0), key=b'["other",{}]', value=None)
    await read(target)
    with ten_more(target), pytest.raises(TransientKafkaError, match="returned no records"):
        await read(target)
