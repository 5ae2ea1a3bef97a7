"""A process that owns no flow and lends its cores, as the pool of an owner sees it (docs/adr/0020).

Its workers dial the owner as the owner's do, so what has come is a core. Invariant: when a lender is gone,
none of its workers is waited for.
"""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field

from twinlog.errors import TwinlogError
from twinlog.model import Flow


class LenderGoneError(TwinlogError):
    """The lender runs the worker no longer."""

    retriable = True
    default_reason = "EPOCH_FAILED"


@dataclass(slots=True, kw_only=True, eq=False)
class Lender:
    name: str
    """For logs."""
    cores: int = 0
    """That it lends now."""
    flows: frozenset[Flow] = frozenset()
    """Whose clusters it reaches."""
    orders: asyncio.Queue[tuple[int, str]] = field(default_factory=asyncio.Queue)
    """What it is told: the number of a worker, and its token; an empty one ends it by force."""
    running: dict[int, "asyncio.Future[None]"] = field(default_factory=dict)
    """The end of each worker that it was told to run."""
    is_gone: bool = False

    def offer(self, flows: Collection[Flow]) -> int:
        """Cores for a process that copies these flows: its workers meet no cluster that it does not reach."""
        return self.cores if self.flows.issuperset(flows) else 0

    async def run(self, number: int, token: str) -> None:
        """Return when the worker has ended in order. Raises LenderGoneError."""
        if self.is_gone:
            raise _gone(self)
        ended = self.running[number] = asyncio.get_running_loop().create_future()
        self.orders.put_nowait((number, token))
        try:
            await ended
        finally:
            del self.running[number]

    def kill(self, number: int) -> None:
        """End a worker by force; it counts as gone at once."""
        self.orders.put_nowait((number, ""))
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


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverPlace:
    """Where workers find their driver."""

    endpoint: str
    """host:port of its WorkerService."""
    certificate: str
    """PEM, by which they know it."""
