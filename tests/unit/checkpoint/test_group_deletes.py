"""A group that is deleted on the source goes on the target only when nothing there is its own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from twinlog.model import TopicPartition
from twinlog_checkpoint.flow_parts import FlowParts
from twinlog_checkpoint.move_record import MoveRecord, MoveState
from twinlog_checkpoint.moves import MoveKind
from unit.checkpoint.checkpoint_harness import FlowOnFakes

ORDERS, COPY = TopicPartition("orders", 0), TopicPartition("A.orders", 0)


@dataclass(slots=True, kw_only=True)
class World:
    fakes: FlowOnFakes
    parts: FlowParts
    deletes_enabled: bool = True

    async def sync(self) -> None:
        """One pass, one look at the target, as the service does each interval."""
        self.fakes.clock.advance(10)
        await self.fakes.do_pass(self.parts.checkpointer)
        await self.fakes.sync_groups(self.parts, deletes_enabled=self.deletes_enabled)

    def forget_on_source(self, group: str = "g") -> None:
        del self.fakes.source.groups[group]


@asynccontextmanager
async def translated(*, deletes_enabled: bool = True) -> AsyncIterator[World]:
    """Group `g` was translated and its offset committed on the target."""
    fakes = FlowOnFakes()
    fakes.source.add_topic("orders")
    fakes.target.add_topic("A.orders")
    async with fakes.source.writer() as source, fakes.target.writer() as target:
        for number in range(20):
            await source.append(ORDERS, key=None, value=b"%d" % number)
            await target.append(COPY, key=None, value=b"%d" % number)
    await fakes.write_sync("orders", 10, 10)
    fakes.source.set_group("g", {ORDERS: 10})
    async with fakes.running() as parts:
        world = World(fakes=fakes, parts=parts, deletes_enabled=deletes_enabled)
        await world.sync()
        assert "g" in fakes.target.groups
        yield world


async def test_a_deleted_group_is_deleted_there_as_well() -> None:
    async with translated() as world:
        world.forget_on_source()
        await world.sync()
        assert "g" not in world.fakes.target.groups


async def test_nothing_is_deleted_when_it_is_not_enabled() -> None:
    async with translated(deletes_enabled=False) as world:
        world.forget_on_source()
        await world.sync()
        assert "g" in world.fakes.target.groups


@pytest.mark.parametrize(
    "own", [{"offsets": {COPY: 15}}, {"offsets": {TopicPartition("other", 0): 1}}, {"state": "STABLE"}]
)
async def test_a_group_with_a_life_of_its_own_stays(own: dict[str, object]) -> None:
    async with translated() as world:
        world.fakes.target.add_topic("other")
        world.fakes.target.set_group("g", **own)  # type: ignore[arg-type]
        world.forget_on_source()
        await world.sync()
        assert "g" in world.fakes.target.groups


async def test_a_source_that_lost_its_topics_deletes_nothing() -> None:
    async with translated() as world:
        world.forget_on_source()
        await world.fakes.source.delete_topics(["orders"])
        await world.sync()
        assert "g" in world.fakes.target.groups


@pytest.mark.parametrize(
    ("kind", "state", "on_target", "moved", "stays"),
    [
        (MoveKind.FAILOVER, MoveState.DONE, True, ("g",), True),
        (MoveKind.FAILOVER, MoveState.RUNNING, True, ("g",), True),
        (MoveKind.FAILBACK, MoveState.DONE, True, ("other",), True),
        (MoveKind.FAILBACK, MoveState.DONE, False, ("g",), False),
    ],
)
async def test_groups_that_were_moved_stay_until_they_are_back(
    kind: MoveKind, state: MoveState, on_target: bool, moved: tuple[str, ...], stays: bool
) -> None:
    async with translated() as world:
        journal = world.fakes.served(world.parts).failover.journal
        await journal.store(
            MoveRecord(
                run_id="r",
                kind=kind,
                state=state,
                groups=(),
                by="",
                started_ms=0,
                on_target=on_target,
                moved=moved,
            )
        )
        world.forget_on_source()
        await world.sync()
        assert ("g" in world.fakes.target.groups) is stays


async def test_groups_that_never_were_translated_stay() -> None:
    async with translated() as world:
        world.fakes.target.set_group("local", {COPY: 3})
        await world.sync()
        assert "local" in world.fakes.target.groups
