"""A second process with the same flow: it knows what the owner does, changes nothing, and can take over."""

import asyncio
from pathlib import Path

from twinlog.errors import StateError, TransientKafkaError
from twinlog.kafka.ports import NewTopic, OffsetSpec
from twinlog.model import TopicPartition
from twinlog.testing.brokers import eventually
from twinlog_configsync.planning.flow_status import SyncState, standing_by
from unit.configsync.configsync_rig import REGISTRY, ConfigSyncRig, make_flow


def elsewhere() -> StateError:
    return StateError("another process has it", reason="OWNED_ELSEWHERE")


async def create(flow: ConfigSyncRig, *names: str) -> None:
    wanted = [NewTopic(name=name, partition_count=1, replication_factor=1) for name in names]
    assert set((await flow.source.create_topics(wanted)).values()) == {None}


async def records_of_the_registry(flow: ConfigSyncRig) -> int:
    partition = TopicPartition(REGISTRY, 0)
    end = (await flow.target.list_offsets(OffsetSpec.LATEST, [partition]))[partition]
    assert isinstance(end, int)
    return end


def both(directory: Path) -> tuple[ConfigSyncRig, ConfigSyncRig]:
    """The owner, and one that stands by."""
    owner = make_flow(directory)
    other = make_flow(directory, source=owner.source, target=owner.target)
    other.refusal = elsewhere()
    return owner, other


async def test_it_takes_over_with_everything_that_was_known(tmp_path: Path) -> None:
    owner, other = both(tmp_path)
    await create(owner, "orders")
    await owner.refresh()
    await other.sync.passes.follow()
    await owner.source.delete_topics(["orders"])
    await create(owner, "orders")
    await owner.refresh()
    assert owner.topics()["orders"].generation == 2

    stop = asyncio.Event()
    other.refusal = None
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        group.create_task(other.sync.run(stop), name="owner now")
        await eventually(lambda: other.sync.status.state is SyncState.SETTLED)
        stop.set()
    assert other.topics()["orders"].generation == 2


async def test_reading_on_costs_no_second_reading_of_the_same(tmp_path: Path) -> None:
    owner, other = both(tmp_path)
    await create(owner, "orders")
    await owner.refresh()
    fetches: list[int] = []
    owner.target.intercept("fetch", lambda call: fetches.append(call.arguments["offset"]))
    await other.sync.passes.follow()
    read = len(fetches)
    await other.sync.passes.follow()
    assert len(fetches) == read
    end = await records_of_the_registry(owner)
    await create(owner, "users")
    await owner.refresh()
    del fetches[:]
    await other.sync.passes.follow()
    assert fetches[0] == end
    assert set(other.topics()) == {"orders", "users"}


async def test_a_registry_that_was_deleted_is_forgotten(tmp_path: Path) -> None:
    owner, other = both(tmp_path)
    await create(owner, "orders")
    await owner.refresh()
    await other.sync.passes.follow()
    await owner.target.delete_topics([REGISTRY])
    await other.sync.passes.follow()
    assert other.topics() == {}


def test_the_status_says_who_has_the_flow(tmp_path: Path) -> None:
    flow = make_flow(tmp_path)
    status = standing_by(flow.sync.status, elsewhere(), settled=True)
    assert (status.state, status.reason) == (SyncState.SETTLED, "OWNED_ELSEWHERE")
    unknown = TransientKafkaError("no coordinator", reason="COORDINATOR_UNAVAILABLE")
    assert standing_by(flow.sync.status, unknown, settled=True).state is SyncState.DEGRADED
    starting = TransientKafkaError("being found out", reason="STARTING")
    assert standing_by(status, starting, settled=True) == status
