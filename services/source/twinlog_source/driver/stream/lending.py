"""SourceService.LendCores, both ends: a process that owns no flow runs workers for those that own some.

The lender dials the owner, and so do its workers: the owner needs no way to it. A worker gets Kafka's
credentials from the owner, so its token goes only to a caller that the port has identified, over TLS; or on
loopback.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
import structlog

from twinlog import __version__
from twinlog.api.source.v1 import source_service_pb2 as pb
from twinlog.api.source.v1.source_service_pb2_grpc import SourceServiceStub
from twinlog.clock import Clock
from twinlog.config import Address, Configuration, Service
from twinlog.errors import StateError, TwinlogError
from twinlog.kafka.deadline import pause
from twinlog.model import Flow
from twinlog.service.access.audit import begun
from twinlog.service.access.exposure import lacks
from twinlog.service.access.gate import caller_name
from twinlog.service.api_values import flow_message
from twinlog.service.errors_wire import error_from_rpc
from twinlog.service.grpc_server import Context
from twinlog.service.owner.assignment import Why
from twinlog.service.owner.membership import FlowOwner
from twinlog.service.owner.name import OwnerName
from twinlog.service.rpc import Rpc
from twinlog.service.waiting import wait_for_any, wait_or_stop
from twinlog_source.driver.epoch_rules import deal
from twinlog_source.driver.lender import (
    DriverPlace,
    EndWorker,
    Lender,
    LenderOrder,
    LookAtWanted,
    RunWorker,
)
from twinlog_source.driver.worker_pool import MOST_WORKERS, SILENT_SECONDS, WorkerPool, Workers
from twinlog_source.task.stream.session import CHANNEL_OPTIONS

SIGN_SECONDS: Final = 3.0
LOOK_SECONDS: Final = 0.5
IDLE_SECONDS: Final = 10.0
"""A process that has owned nothing for so long lends its cores."""
AGAIN_SECONDS: Final = 60.0
"""Until the cores are offered again to an owner that was lost."""
REFUSED_SECONDS: Final = 600.0
"""The same to one that does not take them."""
REACH_SECONDS: Final = 10.0
GO_SECONDS: Final = 30.0
"""Workers that have to go finish what they run within this time; then they are killed."""
STOP_SECONDS: Final = 2.0
"""The same when the process stops."""

log = structlog.get_logger(__name__)


class NotLentError(StateError):
    """The message says why no cores are lent to an owner."""

    default_reason = "CORES_NOT_LENT"


# The end of the owner.


@dataclass(slots=True, kw_only=True)
class Borrower:
    pool: WorkerPool
    refusal: TwinlogError | None
    """Why no cores are taken."""
    reach: Callable[[], Awaitable[DriverPlace]]
    """Where lent workers find this process. Raises ConfigError."""
    stop: asyncio.Event

    async def serve(self, signs: AsyncIterator[pb.LentCores], context: Context) -> None:
        """Until the lender ends the stream or is silent. Raises StateError (CORES_NOT_LENT)."""
        first = await _first(signs)
        refusal = self.refusal or _refusal_of_release(first.version)
        if refusal is not None:
            raise refusal
        place, audited = await self.reach(), begun()
        lender = Lender(name=first.process or caller_name("", context))
        self.pool.lenders.append(lender)
        try:
            async with asyncio.TaskGroup() as group:
                ends = [
                    group.create_task(self._listen(lender, signs), name="signs of a lender"),
                    group.create_task(_tell(lender, place, context), name="workers for a lender"),
                    group.create_task(self._until_stopped(lender), name="stop of lent workers"),
                ]
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                for each in ends:
                    each.cancel()
        finally:
            log.info("lender_gone", lender=lender.name, workers=len(lender.running))
            audited.ended("OK", before={"cores": lender.cores}, after={"cores": 0})
            self.pool.lenders.remove(lender)
            lender.gone()
            self.pool.lent(lender)

    async def _listen(self, lender: Lender, signs: AsyncIterator[pb.LentCores]) -> None:
        with suppress(TimeoutError, StopAsyncIteration):
            while True:
                async with asyncio.timeout(SILENT_SECONDS):
                    sign = await anext(signs)
                for number in sign.ended:
                    lender.ended(number)
                cores = min(max(0, sign.cores), MOST_WORKERS)
                told = cores, frozenset(Flow(each.source, each.target) for each in sign.flows)
                if told != (lender.cores, lender.flows):
                    log.info("cores_lent", lender=lender.name, cores=cores)
                    lender.cores, lender.flows = told
                    self.pool.lent(lender)

    async def _until_stopped(self, lender: Lender) -> None:
        await self.stop.wait()
        while lender.running:  # They end with the epochs of this process.
            await pause(LOOK_SECONDS)


async def _first(signs: AsyncIterator[pb.LentCores]) -> pb.LentCores:
    """It says no more than who lends."""
    with suppress(TimeoutError, StopAsyncIteration):
        async with asyncio.timeout(SILENT_SECONDS):
            return await anext(signs)
    return pb.LentCores()


def _refusal_of_release(version: str) -> TwinlogError | None:
    if version == __version__:
        return None
    return NotLentError(f"the lender runs Twinlog {version or 'of another release'}, the owner {__version__}")


async def _tell(lender: Lender, place: DriverPlace, context: Context) -> None:
    order: LenderOrder = LookAtWanted()
    while True:
        told = pb.LentWorker(endpoint=place.endpoint, certificate=place.certificate, wanted=lender.wanted)
        match order:
            case RunWorker():
                told.number, told.token = order.number, order.token
            case EndWorker():
                told.number = order.number
        await context.write(told)
        order = await lender.orders.get()


# The end of the lender.


def shares(wanted: Mapping[str, int], cores: int, lent: Mapping[str, int]) -> Mapping[str, int]:
    """How many cores each owner is lent by need; those that nobody needs stay where they are.

    >>> shares({"a:1": 1, "b:1": 4}, 4, {"a:1": 4})
    {'a:1': 1, 'b:1': 3}
    >>> shares({"a:1": 1, "b:1": 0}, 4, {"b:1": 4})
    {'a:1': 1, 'b:1': 3}
    """
    dealt = deal(wanted, cores)
    more = {each: max(0, lent.get(each, 0) - share) for each, share in dealt.items()}
    kept = deal(more, cores - sum(dealt.values()))
    return {each: dealt[each] + kept[each] for each in sorted(wanted)}


@dataclass(slots=True, kw_only=True, eq=False)
class _Loan:
    address: str
    flows: Collection[Flow] = ()
    """Of the owner; none: nothing is lent to it any more."""
    wanted: int = 0
    """Cores that the owner would use."""
    cores: int = 0
    """For this owner, now."""
    running: dict[int, DriverPlace] = field(default_factory=dict)
    killed: set[int] = field(default_factory=set)
    ended: list[int] = field(default_factory=list)
    is_reached: bool = False
    failure: TwinlogError | None = None
    news: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True, kw_only=True)
class Lending:
    process: Callable[[], str]
    """What this one is called."""
    workers: Workers
    owners: Callable[[], Mapping[str, Collection[Flow]]]
    """By address: owners of flows that could use cores of this process, which owns none; empty when it owns
    some."""
    refusal: TwinlogError | None
    """Why no cores are lent."""
    open_channel: Callable[[str], grpc.aio.Channel]
    """Raises ConfigError."""
    rpc: Rpc
    clock: Clock
    _loans: dict[str, _Loan] = field(default_factory=dict)
    _told: set[str] = field(default_factory=set)
    """The reasons that were logged."""

    async def run(self, stop: asyncio.Event) -> None:
        """Loop until `stop`."""
        busy_at = self.clock.monotonic()
        async with asyncio.TaskGroup() as group:
            while not stop.is_set():
                now, owners = self.clock.monotonic(), self.owners()
                busy_at = busy_at if owners else now
                if now < busy_at + IDLE_SECONDS:
                    owners = {}
                elif owners and self.refusal is not None:
                    self._tell_once(self.refusal)
                    owners = {}
                for address in owners.keys() - self._loans.keys():
                    loan = self._loans[address] = _Loan(address=address, flows=owners[address])
                    group.create_task(self._lend(loan, stop), name=f"lend cores to {address}")
                self._share(owners)
                await wait_or_stop(stop, LOOK_SECONDS)
            self._share({})

    def _share(self, owners: Mapping[str, Collection[Flow]]) -> None:
        loans = [loan for loan in self._loans.values() if loan.address in owners]
        lent = shares(
            {loan.address: loan.wanted for loan in loans},
            self.workers.cores or 0,
            {loan.address: loan.cores for loan in loans},
        )
        for loan in self._loans.values():
            before = loan.flows, loan.cores
            loan.flows, loan.cores = owners.get(loan.address, ()), lent.get(loan.address, 0)
            if (loan.flows, loan.cores) != before:
                loan.news.set()

    async def _lend(self, loan: _Loan, stop: asyncio.Event) -> None:
        try:
            async with self.open_channel(loan.address) as channel:
                await self._serve(loan, SourceServiceStub(channel).LendCores(), stop)
        except TwinlogError as error:  # such as a file that is not usable
            loan.failure = error
        loan.wanted = loan.cores = 0
        seconds = AGAIN_SECONDS
        if loan.failure is not None:
            self._tell_once(loan.failure)
            seconds = AGAIN_SECONDS if loan.failure.retriable else REFUSED_SECONDS
        await wait_or_stop(stop, seconds)
        del self._loans[loan.address]

    def _tell_once(self, why: TwinlogError) -> None:
        if str(why) not in self._told:
            self._told.add(str(why))
            log.info("cores_not_lent", reason=why.reason, message=str(why))

    async def _serve(self, loan: _Loan, stream: Any, stop: asyncio.Event) -> None:
        jobs: set[asyncio.Task[None]] = set()
        async with asyncio.TaskGroup() as group:

            def begin(number: int, token: str, driver: DriverPlace) -> None:
                loan.running[number] = driver
                jobs.add(group.create_task(self._work(loan, number, token), name=f"lent worker {number}"))

            telling = group.create_task(self._tell(loan, stream, stop), name="signs of a lender")
            reading = group.create_task(self._follow(loan, stream, begin), name="orders of a lender")
            await asyncio.wait([telling, reading], return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait([reading], timeout=STOP_SECONDS)
            for each in (telling, reading):
                each.cancel()
            for number in list(loan.running):
                await self._kill(loan, number)
            if jobs:
                await asyncio.wait(jobs, timeout=STOP_SECONDS)
            for job in jobs:
                job.cancel()

    async def _follow(self, loan: _Loan, stream: Any, begin: Callable[[int, str, DriverPlace], None]) -> None:
        """Do what the owner says until it ends the stream."""
        try:
            while (order := await stream.read()) is not grpc.aio.EOF:
                driver = DriverPlace(endpoint=order.endpoint, certificate=order.certificate)
                loan.is_reached = loan.is_reached or await self._reaches(loan, driver)
                loan.wanted = order.wanted if loan.is_reached else 0
                if order.token:
                    begin(order.number, order.token, driver)
                elif order.number:
                    await self._kill(loan, order.number)
                loan.news.set()
        except grpc.aio.AioRpcError as error:
            loan.failure = error_from_rpc(error, peer=f"the owner at {loan.address}")

    async def _reaches(self, loan: _Loan, driver: DriverPlace) -> bool:
        trusted = grpc.ssl_channel_credentials(driver.certificate.encode())
        async with self.rpc.secure_channel(driver.endpoint, trusted, CHANNEL_OPTIONS) as channel:
            with suppress(TimeoutError):
                async with asyncio.timeout(REACH_SECONDS):
                    await channel.channel_ready()
                return True
        loan.failure = NotLentError(
            f"workers do not reach {driver.endpoint}, where {loan.address} waits for them: let that port"
            " through, or set twinlog.source.worker.listen and twinlog.source.worker.endpoint"
        )
        return False

    async def _tell(self, loan: _Loan, stream: Any, stop: asyncio.Event) -> None:
        """Say what is lent; return when nothing is any more."""
        going_since: float | None = None
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # `_serve` knows why.
            while True:
                loan.news.clear()
                cores = loan.cores if self.workers.is_up else 0
                flows, ended, loan.ended = map(flow_message, loan.flows), loan.ended, []
                sign = pb.LentCores(
                    version=__version__, process=self.process(), cores=cores, flows=flows, ended=ended
                )
                await stream.write(sign)
                now = self.clock.monotonic()
                if loan.flows and loan.failure is None:
                    going_since = None
                elif going_since is None:
                    going_since = now
                most_seconds = STOP_SECONDS if stop.is_set() else GO_SECONDS
                is_late = going_since is not None and now >= going_since + most_seconds
                if loan.failure is not None or is_late or (going_since is not None and not loan.running):
                    await stream.done_writing()
                    return
                await wait_for_any(loan.news, seconds=LOOK_SECONDS if stop.is_set() else SIGN_SECONDS)

    async def _work(self, loan: _Loan, number: int, token: str) -> None:
        try:
            await self.workers.run_lent(number, token, loan.running[number])
            loan.ended.append(number)
        except TwinlogError as error:
            if number not in loan.killed:
                loan.failure = error
        finally:
            del loan.running[number]
            loan.news.set()

    async def _kill(self, loan: _Loan, number: int) -> None:
        driver = loan.running.get(number)
        if driver is None:
            return
        loan.killed.add(number)
        try:
            await self.workers.kill_lent(number, driver)
        except TwinlogError as error:
            log.warning("worker_not_killed", worker=number, reason=error.reason, error=str(error))


# To whom. Pure.


def lendable_owners(
    owners: Collection[FlowOwner],
    *,
    reaches: Callable[[Flow], bool],
    host: str,
    has_whole_machine: bool,
    is_safe: bool,
) -> Mapping[str, Collection[Flow]]:
    """Flows by the address of their owner, where this process reaches the clusters of all of them.

    `host`: of this machine. `has_whole_machine`: an owner on it has all of its cores, too. `is_safe`:
    calls to other machines are secure; whoever may join the group may name one."""
    found: dict[str, list[Flow]] = {}
    for owner in owners:
        address = OwnerName(process=owner.process, address=owner.address).address_from(host)
        if not address or owner.why == Why.IN_DOUBT:
            continue
        if not has_whole_machine if Address.parse(address).is_loopback else is_safe:
            found.setdefault(address, []).append(owner.flow)
    return {address: flows for address, flows in found.items() if all(map(reaches, flows))}


def refusal_of_open_port(configuration: Configuration) -> TwinlogError | None:
    """Why the secret of a worker must not cross the port of this configuration."""
    missing, at = lacks(configuration.security, Service.SOURCE), configuration.endpoints[Service.SOURCE]
    if not missing or (at.listen.is_loopback and at.endpoint.is_loopback):
        return None
    return NotLentError(
        f"the port of source has no {missing}, and workers get the credentials of Kafka: set the twinlog.tls"
        " and twinlog.auth keys (docs/security.md)"
    )
