"""Processes that own no flow and lend their cores, as the pool of an owner sees them (docs/adr/0020).

A lender offers cores, and is told how many this process would use and which workers to run. Those dial the
owner as its own do, so a worker that has come is a core wherever it runs. Own cores come first. What a lender
wants back gets nothing to run any more and goes when its epoch is over; a lender that is gone is a lost
executor.

Invariant: when a lender is gone, none of its workers is waited for.
"""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from twinlog.errors import TwinlogError
from twinlog.model import Flow


class Cores(Protocol):
    """Where workers run."""

    async def run_worker(self, number: int, token: str) -> None:
        """Return when the worker has ended. Raises TwinlogError when it was lost, or could not run."""
        ...

    async def kill_worker(self, number: int) -> None:
        """End a worker by force; its `run_worker` then ends. Raises TwinlogError."""
        ...


@dataclass(frozen=True, slots=True)
class RunWorker:
    number: int
    token: str


@dataclass(frozen=True, slots=True)
class EndWorker:
    """By force."""

    number: int


@dataclass(frozen=True, slots=True)
class LookAtWanted:
    """`Lender.wanted` has changed."""


LenderOrder = RunWorker | EndWorker | LookAtWanted


class LenderGoneError(TwinlogError):
    """The lender runs the worker no longer: others get what it ran."""

    retriable = True
    default_reason = "EPOCH_FAILED"


@dataclass(slots=True, kw_only=True, eq=False)
class Lender(Cores):
    name: str
    """Its process, for people."""
    cores: int = 0
    """That it lends now."""
    flows: frozenset[Flow] = frozenset()
    """Whose clusters it reaches."""
    wanted: int = 0
    """How many of its cores this process would use."""
    orders: asyncio.Queue[LenderOrder] = field(default_factory=asyncio.Queue)
    """What it is told."""
    running: dict[int, "asyncio.Future[None]"] = field(default_factory=dict)
    """The end of each worker that it was told to run."""
    is_gone: bool = False

    def offer(self, flows: Collection[Flow]) -> int:
        """Cores for a process that copies these flows: its workers meet no cluster that it does not reach."""
        return self.cores if self.flows.issuperset(flows) else 0

    def want(self, cores: int) -> None:
        if cores != self.wanted:
            self.wanted = cores
            self.orders.put_nowait(LookAtWanted())

    async def run_worker(self, number: int, token: str) -> None:
        """Return when the worker has ended in order. Raises LenderGoneError."""
        if self.is_gone:
            raise _gone(self)
        ended = self.running[number] = asyncio.get_running_loop().create_future()
        self.orders.put_nowait(RunWorker(number, token))
        try:
            await ended
        finally:
            del self.running[number]

    async def kill_worker(self, number: int) -> None:
        """It counts as gone at once."""
        self.orders.put_nowait(EndWorker(number))
        self._end(number, _gone(self))

    def ended(self, number: int) -> None:
        self._end(number, None)

    def gone(self) -> None:
        """The lender has left, or is silent."""
        self.cores, self.is_gone = 0, True
        for number in self.running:
            self._end(number, _gone(self))

    def _end(self, number: int, why: LenderGoneError | None) -> None:
        ended = self.running.get(number)
        if ended is None or ended.done():
            return
        if why is None:
            ended.set_result(None)
        else:
            ended.set_exception(why)


def _gone(lender: Lender) -> LenderGoneError:
    return LenderGoneError(f"{lender.name} runs it no longer")


class Lenders(list[Lender]):
    """In the order in which they came."""

    def offer(self, flows: Collection[Flow]) -> int:
        return sum(each.offer(flows) for each in self)

    def want(self, cores: int, flows: Collection[Flow]) -> None:
        """Tell each how many cores this process would use beyond those that lenders before it offer."""
        for each in self:
            each.want(max(0, cores) if each.flows.issuperset(flows) else 0)
            cores -= each.offer(flows)

    def free(self, flows: Collection[Flow], used: Sequence[Cores]) -> Lender | None:
        """One with a core for one more worker, where each worker is on one of the `used`."""
        return next((each for each in self if used.count(each) < each.offer(flows)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverPlace:
    """Where workers find their driver."""

    endpoint: str
    """host:port of its WorkerService."""
    certificate: str
    """PEM, by which they know it."""
