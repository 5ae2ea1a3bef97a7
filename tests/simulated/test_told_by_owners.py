"""Any process gives what the owner of a flow tells, whichever is asked."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from google.protobuf.duration_pb2 import Duration

from simulated.replicas_rig import OTHERS, asked, owned, place, replicated
from simulated.world import SERVICES, World, live, lives_in
from twinlog.api.checkpoint.v1.checkpoint_service_pb2 import (
    ExplainGroupRequest,
    ListGroupsRequest,
    MoveOptions,
    RunFailoverRequest,
)
from twinlog.api.checkpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from twinlog.api.common.v1 import types_pb2
from twinlog.api.source.v1.source_service_pb2 import PauseReplicationRequest, Scope, SetThrottleRequest
from twinlog.api.source.v1.source_service_pb2_grpc import SourceServiceStub
from twinlog.cli.common.call import called
from twinlog.cli.common.names import flow_name
from twinlog.cli.source.client import every_partition, list_flows
from twinlog.cli.status.query import query_status
from twinlog.cli.status.rows import Status
from twinlog.cli.ui.feed import GROUP_FIELDS, PARTITION_FIELDS, Feed
from twinlog.cli.ui.upstream import TABLES, Upstream
from twinlog.testing.virtual_time import LoopClock


async def shown(world: World, name: str, table: str, fields: Sequence[str]) -> list[dict[str, Any]]:
    rows = await rows_of(world, name, table)
    return [dict(zip(fields, row, strict=True)) for row in rows.values()]


async def rows_of(world: World, name: str, table: str) -> dict[str, Any]:
    """The rows of a table of the page that asks this process only."""
    feed, stop = Feed(TABLES), asyncio.Event()
    page = Upstream(
        dict.fromkeys(SERVICES, place(world, name)), lambda *_: asked(world, name), feed, LoopClock()
    )
    running = asyncio.get_running_loop().create_task(page.run(stop), name="page")
    await world.until(lambda: feed[table].rows)
    stop.set()
    await running
    return dict(feed[table].rows)


async def status_of(world: World, name: str) -> Status:
    """What `twinlog status` has from this process."""
    at = {name.split()[0]: place(world, name)}
    return await query_status(at, lambda *_: asked(world, name), timeout_seconds=5)


@asynccontextmanager
async def two_owners(
    directory: Path, service: str, fill: Callable[[World, str], None] = lambda *_: None
) -> AsyncIterator[tuple[World, tuple[str, str]]]:
    """A world in which each of two processes of this service owns a flow of a topic that both sources have
    and `fill` fills; and their names."""
    async with replicated(directory, "AB") as (world, replicas):
        for alias in "AB":
            world.on[alias].cluster.create_topic("orders")
            fill(world, alias)
        replicas.start(1)
        names = f"{service} 1", f"{service} 2"
        world.start(*sorted({"source 1", names[0]}, reverse=True))
        world.start(names[1], arguments=OTHERS)
        await world.until(lambda: sorted(len(owned(world, each)) for each in names) == [1, 1])
        await world.pause(60)
        yield world, names


def test_any_process_gives_the_partitions_as_their_owners_tell_them(tmp_path: Path) -> None:
    """And what it knows itself of a flow whose owner does not answer."""

    def spoil(world: World, alias: str) -> None:
        world.on[alias].produce("orders", 0, b"bad")
        log = world.on[alias].partition("orders").log
        log.batches[0] = log.batches[0]._replace(data=log.batches[0].data.replace(b"bad", b"BAD"))

    async def life() -> None:
        async with two_owners(tmp_path, "source", spoil) as (world, names):

            async def listed(name: str) -> dict[str, str]:
                async with asked(world, name) as channel:
                    rows = await every_partition(called(SourceServiceStub(channel), "source"), None, "orders")
                return {flow_name(row.flow): row.reason for row in rows}

            async def on_page(name: str) -> dict[str, str]:
                found = await shown(world, name, "partitions", PARTITION_FIELDS)
                return {row["flow"]: row["reason"] for row in found if row["topic"] == "orders"}

            true = dict.fromkeys(("A->M", "B->M"), "CORRUPT_BATCH")
            for name in names:
                assert await listed(name) == true
                assert await on_page(name) == true
            (lost,) = owned(world, "source 2")
            await world.kill("source 2")
            assert await listed("source 1") == {**true, lost: "OWNED_ELSEWHERE"}
            assert await on_page("source 1") == {**true, lost: "OWNED_ELSEWHERE"}

    live(life(), machines_differ=True)


def test_any_process_gives_groups_and_why_as_their_owners_tell_them(tmp_path: Path) -> None:
    """And says so where the owner of a flow does not answer."""
    true = {"A->M": "of A", "B->M": "of B"}

    def commit(world: World, alias: str) -> None:
        world.on[alias].produce("orders", 0, b"one")
        world.on[alias].commit(f"of {alias}", "orders", {0: 1})

    async def life() -> None:
        async with two_owners(tmp_path, "checkpoint", commit) as (world, names):

            async def listed(name: str) -> dict[str, str]:
                async with asked(world, name) as channel:
                    at = called(CheckpointServiceStub(channel), "checkpoint")
                    answer = await at.ListGroups(ListGroupsRequest())
                return {flow_name(row.flow): row.group for row in answer.groups}

            async def on_page(name: str) -> dict[str, str]:
                found = await shown(world, name, "groups", GROUP_FIELDS)
                return {row["flow"]: row["group"] for row in found}

            async def explained(name: str) -> dict[str, bool]:
                async with asked(world, name) as channel:
                    at = called(CheckpointServiceStub(channel), "checkpoint")
                    told = await at.ExplainGroup(ExplainGroupRequest(group="of A"))
                return {flow_name(each.flow): bool(each.partitions) for each in told.explanations}

            async def counted(name: str) -> dict[str, int | None]:
                flows = (await status_of(world, name)).flows
                return {flow: row.group_count for flow, row in flows.items()}

            for name in names:
                assert await listed(name) == true
                assert await on_page(name) == true
                assert await explained(name) == {"A->M": True, "B->M": False}
                assert await counted(name) == {"A->M": 1, "B->M": 1}
            ((kept,), (lost,)) = (owned(world, each) for each in names)
            await world.kill("checkpoint 2")
            assert await listed("checkpoint 1") == {kept: true[kept]}
            assert await counted("checkpoint 1") == {kept: 1, lost: None}
            row = (await status_of(world, "checkpoint 1")).flows[lost]
            assert row.stands_by("checkpoint")
            (told,) = [each.message for each in row.notes if each.reason == "OWNED_ELSEWHERE"]
            assert told.startswith(f"the owner does not answer, and others know less: {lost} is served by")

    live(life(), machines_differ=True)


def test_any_process_knows_of_a_move_that_its_owner_runs(tmp_path: Path) -> None:
    """To the others it looked interrupted, and they named the command that runs it again."""

    def commit(world: World, alias: str) -> None:
        world.on[alias].produce("orders", 0, b"one")
        world.on[alias].commit("billing", "orders", {0: 1})

    async def life() -> None:
        async with two_owners(tmp_path, "checkpoint", commit) as (world, names):
            ((flow,), _) = (owned(world, each) for each in names)
            source = flow.partition("->")[0]
            about = types_pb2.Flow(source=source, target="M")
            await world.order("PauseReplication", PauseReplicationRequest(scope=Scope(flow=about)))
            world.on[source].produce("orders", 0, b"two")

            async def move() -> None:
                async with asked(world, "checkpoint 1") as channel:
                    options = MoveOptions(wait=Duration(seconds=300))
                    request = RunFailoverRequest(flow=about, options=options)
                    async for _ in CheckpointServiceStub(channel).RunFailover(request):
                        pass

            moving = asyncio.get_running_loop().create_task(move(), name="move")
            await world.pause(20)
            for name in names:
                held = (await status_of(world, name)).flows[flow].in_force
                (told,) = [each.message for each in held if each.kind == "MOVE"]
                assert "is running" in told, name
                assert (await rows_of(world, name, "moves"))[flow]["running"], name
            moving.cancel()
            await asyncio.wait([moving])

    live(life(), machines_differ=True)


@lives_in(two_owners, "source", machines_differ=True)
async def test_any_process_gives_flows_and_their_limits_as_their_owners_tell_them(
    world: World, names: tuple[str, str]
) -> None:
    for number, alias in enumerate("AB", start=1):
        async with asked(world, "source 1") as channel:
            scope = Scope(flow=types_pb2.Flow(source=alias, target="M"))
            limit = SetThrottleRequest(scope=scope, bytes_per_second=1000 * number)
            await SourceServiceStub(channel).SetThrottle(limit)
    for name in names:
        async with asked(world, name) as channel:
            flows = await list_flows(called(SourceServiceStub(channel), "source"), None)
        assert [each.bytes_per_second for flow in flows for each in flow.throttles] == [1000, 2000]
        assert [row.notes for row in (await status_of(world, name)).flows.values()] == [[], []]


def test_a_configsync_on_standby_knows_as_much_as_the_owner_and_is_no_news(tmp_path: Path) -> None:
    async def life() -> None:
        async with replicated(tmp_path, "AB") as (world, replicas):
            for alias in "AB":
                world.on[alias].cluster.create_topic("orders")
            replicas.start(1, 2)
            await replicas.until(1, 1)
            await world.pause(60)
            for name in ("configsync 1", "configsync 2"):
                told = {
                    flow: ("READY" in row.topics, row.notes)
                    for flow, row in (await status_of(world, name)).flows.items()
                }
                assert told == dict.fromkeys(("A->M", "B->M"), (True, [])), name

    live(life(), machines_differ=True)
