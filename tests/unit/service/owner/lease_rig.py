"""Processes with a lease on one flow, and what their guarded loops do."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from twinlog.kafka.cluster import open_cluster
from twinlog.model import Flow
from twinlog.service.owner.assignment import Reach
from twinlog.service.owner.lease import FlowLease
from twinlog.service.owner.membership import Membership
from twinlog.service.owner.name import OwnerName
from twinlog.service.runtime import Backoff, Loop
from twinlog.testing.broker import FakeKafka
from twinlog.testing.brokers import eventually
from twinlog.testing.virtual_time import LoopClock

FLOW = Flow("A", "B")
GROUP = "group"
SESSION_SECONDS = 10.0


class Process:
    """One process with a lease, and what its guarded loops do."""

    def __init__(self, name: str, kafka: FakeKafka) -> None:
        """`name` as an owner is called, with the rules of its file; its client's id is the same."""
        clock = LoopClock()
        self.lease = FlowLease(
            FLOW,
            group=GROUP,
            session_seconds=SESSION_SECONDS,
            clock=clock,
            rules=OwnerName.parse(name).rules,
            on_owner=self._on_owner,
        )
        self.membership = Membership(
            open_cluster("B", {"bootstrap.servers": kafka.bootstrap, "client.id": name}),
            service="source",
            group=GROUP,
            name=lambda: OwnerName.parse(name),
            session_seconds=SESSION_SECONDS,
            clock=clock,
            backoff=Backoff(initial_seconds=0.5, max_seconds=1.0, random=lambda: 0.5),
        )
        self.reach = Reach.FINE
        self.weighed = 0
        """How often the load was looked at."""
        self.membership.add(self.lease, megabytes_per_second=self._load, reach=lambda: self.reach)
        self.owners_seen = 0
        self.works = False
        self.stands_by = False
        self.draws = False
        self.fences = False

    def _on_owner(self) -> None:
        self.owners_seen += 1

    def _load(self) -> float:
        self.weighed += 1
        return 0.0

    async def work(self, stop: asyncio.Event) -> None:
        self.works = True
        await stop.wait()
        self.works = False

    async def stand_by(self, stop: asyncio.Event) -> None:
        self.stands_by = True
        await stop.wait()
        self.stands_by = False

    async def draw(self, stop: asyncio.Event) -> None:
        self.draws = True
        await stop.wait()
        self.draws = False

    async def fence(self, stop: asyncio.Event) -> None:
        self.fences = True
        await stop.wait()
        self.fences = False


@asynccontextmanager
async def running(*processes: Process) -> AsyncIterator[Callable[[Process], asyncio.Event]]:
    stops = {process: asyncio.Event() for process in processes}
    async with asyncio.TaskGroup() as group:
        for process, stop in stops.items():
            lease = process.lease
            for loop in (
                process.membership.run,
                lease.guard(process.work, otherwise=process.stand_by),
                lease.guard(process.draw, in_doubt=True),
                lease.guard(process.fence, stays_in_doubt=True),
            ):
                group.create_task(_ended(loop, stop), name=f"{loop}")
        try:
            yield stops.__getitem__
        finally:
            for stop in stops.values():
                stop.set()


async def _ended(loop: Loop, stop: asyncio.Event) -> None:
    await loop(stop)


async def until(condition: Callable[[], bool]) -> None:
    async def met() -> bool:
        return condition()

    await eventually(met)
