"""Rules that change while the service runs."""

import asyncio
from dataclasses import replace

from twinlog.errors import TransientKafkaError, TwinlogError
from twinlog.filters import NameFilter, PatternList
from twinlog.model import Flow
from twinlog.service.waiting import wait_or_stop
from twinlog.testing.fakes.cluster import FakeCluster
from twinlog.testing.virtual_time import FakeClock
from twinlog_checkpoint.groups.directory import GroupDirectory
from unit.checkpoint.checkpoint_rig import CheckpointFlowRig


def group_filter(*names: str) -> NameFilter:
    return NameFilter(include=PatternList("groups", names), exclude=PatternList("groups.exclude", ()))


async def test_changed_groups_are_looked_for_at_once_even_if_refresh_is_off() -> None:
    cluster = FakeCluster("A")
    for name in ("g1", "g2"):
        cluster.set_group(name)
    groups = GroupDirectory(
        admin=cluster,
        group_filter=group_filter("g1"),
        refresh_enabled=False,
        refresh_interval_seconds=600.0,
        clock=FakeClock(),
    )
    assert await groups.refresh_if_due() == {"g1"}
    groups.follow(group_filter("g2"), refresh_enabled=False, interval_seconds=600.0)
    assert await groups.refresh_if_due() == {"g2"}


async def test_a_changed_interval_bounds_the_waits_after_failures() -> None:
    checkpointer = CheckpointFlowRig().checkpointer()
    slow = replace(checkpointer.entry.settings, emit_interval_seconds=30)
    checkpointer.follow(replace(checkpointer.entry, settings=slow))
    tries = 0

    def refuse(_flow: Flow) -> TwinlogError:
        nonlocal tries
        tries += 1
        return TransientKafkaError("away", reason="KAFKA_UNAVAILABLE")

    checkpointer.refusal = refuse
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(checkpointer.run(stop), name="checkpoints")
        await wait_or_stop(stop, 200)
        assert tries < 100
        fast = replace(slow, emit_interval_seconds=1)
        checkpointer.follow(replace(checkpointer.entry, settings=fast))
        tries = 0
        await wait_or_stop(stop, 200)
        assert tries > 200
        stop.set()
