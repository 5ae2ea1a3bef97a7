"""Several processes of a service that share the flows to one cluster, M."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from simulated.world import ONE_BROKER, World
from twinlog.service.peers import OwnerChannel, open_to_owner
from twinlog.testing.rpc import MemoryRpc
from twinlog.testing.virtual_time import LoopClock

SESSION_SECONDS = 10.0
OTHERS = ("--listen", "127.0.0.1:0")
"""Arguments of the second and later processes."""


@asynccontextmanager
async def replicated(
    directory: Path, sources: str, *, more: str = ""
) -> AsyncIterator[tuple[World, "Replicas"]]:
    """A world with a flow from each of these clusters to M."""
    file = (
        f"clusters = {', '.join(sources)}, M\n"
        + "".join(f"{alias}.bootstrap.servers = {{{alias}}}\n" for alias in (*sources, "M"))
        + "".join(f"{source}->M.enabled = true\n" for source in sources)
        + "\n".join(ONE_BROKER.splitlines()[4:])
        + f"\n{more}"
    )
    async with World(directory, file, aliases=[*sources, "M"]) as world:
        # As brokers have it.
        world.kafka["M"].cluster.broker_configs["group.initial.rebalance.delay.ms"] = "3000"
        replicas = Replicas(world)
        try:
            yield world, replicas
        finally:
            await replicas.close()


def owned(world: World, name: str) -> list[str]:
    """The flows that a process owns; none before it has started."""
    context = world.contexts.get(name)
    memberships = context.memberships.values() if context is not None else ()
    return [str(flow) for each in memberships for flow in each.owned()]


def place(world: World, name: str) -> str:
    return f"127.0.0.1:{world.contexts[name].bound.number}"


def asked(world: World, name: str) -> OwnerChannel:
    """A channel as commands have it."""
    return open_to_owner(place(world, name), lambda _: None, MemoryRpc(world.rpc))


class Ahead(LoopClock):
    """An hour ahead of the others."""

    def now_ms(self) -> int:
        return super().now_ms() + 3_600_000

    def monotonic(self) -> float:
        return super().monotonic() + 1e6


class Replicas:
    """Configsync processes of a world, and who of them owns what at every moment."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.doubles: list[tuple[float, str, list[str]]] = []
        self.changes: Counter[str] = Counter()
        """How often each flow has got another owner."""
        self._seen: dict[str, str] = {}
        self._watching = asyncio.get_running_loop().create_task(self._watch(), name="watch owners")

    def start(self, *numbers: int, more: tuple[str, ...] = ()) -> None:
        for number in numbers:
            self.world.start(f"configsync {number}", arguments=(*(OTHERS if number > 1 else ()), *more))

    @property
    def owners(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name in self.world.services:
            service, number = name.split()
            if service == "configsync":
                for flow in owned(self.world, name):
                    found.setdefault(flow, []).append(number)
        return found

    @property
    def counts(self) -> list[int]:
        counts = Counter(owner for owners in self.owners.values() for owner in owners)
        return sorted(counts.values())

    async def until(self, *counts: int, seconds: float = 120) -> None:
        await self.world.until(lambda: self.counts == [*counts], seconds)

    async def close(self) -> None:
        self._watching.cancel()
        await asyncio.wait([self._watching])
        assert not self.doubles, f"two owners: {self.doubles[:5]}"

    async def _watch(self) -> None:
        while True:
            for flow, owners in self.owners.items():
                if len(owners) > 1:
                    self.doubles.append((self.world.now(), flow, owners))
                if self._seen.get(flow) != owners[0]:
                    self.changes[flow] += flow in self._seen
                    self._seen[flow] = owners[0]
            await self.world.pause(0.1)
