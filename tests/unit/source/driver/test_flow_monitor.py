"""The monitor measures a flow, also one that another process copies."""

import asyncio

from twinlog.testing.brokers import eventually
from twinlog.testing.fakes.cluster_hooks import Call
from twinlog.wire import connect_json
from twinlog_source.driver.flow_monitor import FlowMonitor
from twinlog_source.driver.positions_follower import FOLLOW_SECONDS, PositionsFollower
from twinlog_source.driver.state import FlowState
from twinlog_source.log.fact_records import control_key
from twinlog_source.topics.source_ends import SourceEnds
from unit.source.flow_rig import FlowRig


def monitor_of_standby(rig: FlowRig, state: FlowState) -> FlowMonitor:
    return FlowMonitor(
        table=state.table,
        control=state.control,
        ends=SourceEnds(
            source=rig.source,
            reader=rig.source.reader(),
            table=state.table,
            read_committed=True,
            clock=rig.clock,
        ),
        follower=PositionsFollower(
            flow=state.flow,
            target=rig.target,
            positions=state.positions,
            decisions=state.decisions,
            table=state.table,
            is_owned=lambda: False,
            clock=rig.clock,
        ),
        clock=rig.clock,
    )


async def test_a_record_of_a_later_release_does_not_end_a_standby(rig: FlowRig) -> None:
    """The owner runs a later release already."""
    owner = await rig.owner()
    key = control_key("A", "pause", None, None)
    await owner.journal.append(key, connect_json.dumps({"format": 99, "by": "root", "at_ms": 1}))
    reads: list[Call] = []
    rig.target.intercept("fetch", reads.append)

    def has_read_twice() -> bool:
        rig.clock.advance(FOLLOW_SECONDS)
        return len(reads) > 1

    stop = asyncio.Event()
    monitor = monitor_of_standby(rig, await rig.process())
    async with asyncio.TaskGroup() as group:
        group.create_task(monitor.run(stop), name="monitor")
        await eventually(has_read_twice)
        stop.set()
