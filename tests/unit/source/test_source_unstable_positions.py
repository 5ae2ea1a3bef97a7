"""A transaction that stays open on the positions topic: who holds it ends it, or is fenced by a take-over."""

import asyncio
from contextlib import nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from twinlog.errors import TransientKafkaError, TwinlogError
from twinlog.model import Flow
from twinlog.testing.brokers import eventually
from twinlog.testing.virtual_time import FakeClock
from twinlog_source.driver.epoch import Epoch
from twinlog_source.driver.flow_driver import FlowDriver
from twinlog_source.partitions.events import Event
from twinlog_source.partitions.table import PartitionTable

UNSTABLE = "POSITIONS_UNSTABLE"


@dataclass(slots=True)
class Log:
    """A flow's state whose positions cannot be read for the given reasons, one after the other; the last one
    stays. Notes what the driver does with it."""

    reasons: list[str]
    did: list[str] = field(default_factory=list)
    flow: Any = field(default_factory=lambda: SimpleNamespace(flow=Flow("A", "B")))
    flows: int = 1
    positions: Any = field(default_factory=lambda: SimpleNamespace(has_lost=False))
    table: PartitionTable = field(default_factory=PartitionTable)
    transform_check: Any = field(
        default_factory=lambda: SimpleNamespace(run=_nothing, concerns=lambda _: False)
    )
    clock: FakeClock = field(default_factory=FakeClock)
    moves: Any = field(default_factory=lambda: SimpleNamespace(ordered=asyncio.Event()))

    def note(self, event: Event) -> None:
        self.table.apply(event, self.clock.monotonic())

    async def take_over(self, *, displaced: bool) -> None:
        self.did.append("takes over")

    async def refresh(self, *, owned: object) -> bool:
        reason = self.reasons.pop(0) if len(self.reasons) > 1 else self.reasons[0]
        self.did.append(reason)
        raise TransientKafkaError("a transaction is open", reason=reason)

    async def renew(self) -> None:
        await self.refresh(owned=None)

    async def leave(self) -> None:
        self.did.append("leaves")


async def _nothing(*_: object, **__: object) -> None:
    """No job runs."""


def driver_of(log: Log) -> FlowDriver:
    """A driver without jobs."""

    def no_failure(_reason: str) -> None:
        """Counted elsewhere."""

    nobody: Any = SimpleNamespace(
        runner=SimpleNamespace(
            workers=SimpleNamespace(check_expressions=_nothing),
            warm_up=lambda *_, **__: None,
            share=lambda *_: 0,
        ),
        shut_down=_nothing,
        failed=no_failure,
    )
    state: Any = log
    refusal: TwinlogError | None = None
    return FlowDriver(
        state=state,
        jobs=nobody,
        host=nobody,
        is_elected=lambda: True,
        standing=lambda: None,
        is_probed=lambda _: True,
        refusal=lambda _: refusal,
        instruments=nobody,
        random=lambda: 0.5,
        max_slots=None,
        epoch_seconds=30.0,
        longest_epoch_seconds=600.0,
    )


async def done_first(reasons: list[str], count: int) -> list[str]:
    """The first things that a driver does which meets these."""
    log = Log(reasons)
    driver = driver_of(log)
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(driver.run(stop), name="driver")
        await eventually(lambda: len(log.did) >= count)
        stop.set()
    return log.did[:count]


async def test_one_that_is_open_a_second_time_is_ended_by_a_take_over() -> None:
    """Once may be a slow target: nobody is fenced for that."""
    assert await done_first([UNSTABLE], 4) == ["takes over", UNSTABLE, UNSTABLE, "takes over"]


async def test_a_cluster_that_is_away_fences_nobody() -> None:
    assert await done_first(["KAFKA_UNAVAILABLE"], 4) == ["takes over", *["KAFKA_UNAVAILABLE"] * 3]


@pytest.mark.parametrize(("reason", "ends_epoch"), [(UNSTABLE, True), ("KAFKA_UNAVAILABLE", False)])
async def test_one_that_hangs_while_tasks_copy_ends_the_wait_for_the_end_of_their_epoch(
    reason: str, ends_epoch: bool
) -> None:
    """The owner cannot sign meanwhile, and an epoch may last for ten minutes."""
    log = Log([reason])
    driver = driver_of(log)
    driver.current = Epoch(flow=Flow("A", "B"), number=1, plan=())
    with pytest.raises(TransientKafkaError) if ends_epoch else nullcontext():
        await driver.renew_current()
    assert log.did == [reason]
