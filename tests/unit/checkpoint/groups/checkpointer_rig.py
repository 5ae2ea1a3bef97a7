"""What the tests of checkpoints ask of a flow."""

import asyncio
from dataclasses import dataclass, field

from twinlog.errors import KafkaError
from twinlog.model import Headers, TopicPartition
from twinlog.wire import Checkpoint
from twinlog_checkpoint.groups.checkpointer import Checkpointer
from unit.checkpoint.checkpoint_rig import CheckpointFlowRig, turns


def checkpoint(
    upstream: int, downstream: int, topic: str = "A.orders", partition: int = 0, group: str = "g"
) -> Checkpoint:
    return Checkpoint(
        group=group,
        partition=TopicPartition(topic, partition),
        upstream_offset=upstream,
        downstream_offset=downstream,
    )


async def on_target(flow: CheckpointFlowRig, group: str) -> dict[TopicPartition, int]:
    held = (await flow.target.group_offsets([group]))[group]
    assert not isinstance(held, KafkaError)
    return {partition: committed.next_offset for partition, committed in held.items()}


async def fill_copy(flow: CheckpointFlowRig, count: int) -> None:
    async with flow.target.writer() as target:
        for number in range(count):
            await target.append(TopicPartition("A.orders", 0), key=b"k", value=b"%d" % number)


async def lose_and_grow(flow: CheckpointFlowRig, checkpointer: Checkpointer | None = None) -> None:
    """The copy loses what lies behind 200, and gets 300 records more; the group continues."""
    orders = TopicPartition("orders", 0)
    flow.target.truncate(TopicPartition("A.orders", 0), 200)
    await fill_copy(flow, 300)
    for upstream, downstream in ((300, 200), (500, 400)):
        await flow.write_sync("orders", upstream, downstream)
    for group in ("g", "own"):
        flow.source.set_group(group, {orders: 310})
    if checkpointer is not None:
        await turns(lambda: checkpointer.tail.store.translate(orders, 310).downstream_offset == 201)
        await flow.do_pass(checkpointer)


@dataclass(slots=True)
class GatheringWriter:
    """A `LogWriter` that acknowledges nothing before so many records are on their way."""

    wanted: int
    under_way: int = 0
    complete: asyncio.Event = field(default_factory=asyncio.Event)

    async def append(
        self,
        partition: TopicPartition,
        *,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> int:
        self.under_way += 1
        if self.under_way == self.wanted:
            self.complete.set()
        async with asyncio.timeout(10):
            await self.complete.wait()
        return 0


async def served_once(flow: CheckpointFlowRig, checkpointer: Checkpointer) -> None:
    """The flow is this process's for one pass."""
    stop = asyncio.Event()
    flow.clock.advance(1)
    async with asyncio.TaskGroup() as group:
        group.create_task(checkpointer.run(stop), name="owner")
        await turns(lambda: checkpointer.table.confirmed_ms == flow.clock.now_ms())
        stop.set()
