"""The workers of a process: one job of Spark with one task for each. A worker is told which tasks it runs.

So the tasks of an epoch get ready in the workers of the epoch before, every core copies, and a worker that
comes or goes changes at once how many slots the flows get. What Spark cannot run yet waits in its queue: that
is what dynamic allocation looks at.

Invariant: a slot of an epoch that is not over is at exactly one worker, or waits for one.
"""

import asyncio
import secrets
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import structlog

from twinlog.clock import Clock
from twinlog.errors import NotFoundError, TransientKafkaError, TwinlogError
from twinlog.kafka.deadline import pause
from twinlog.model import Flow
from twinlog.service.waiting import wait_for_any
from twinlog.transforms.expressions import Expressions
from twinlog_source.driver.epoch import Epoch, SlotState
from twinlog_source.driver.epoch_rules import (
    Need,
    Tasks,
    affordable,
    choose_worker,
    cores_needed,
    deal,
    share_cores,
    workers_needed,
)
from twinlog_source.driver.lender import Cores, DriverPlace, Lender, LenderGoneError, Lenders
from twinlog_source.records.pipe import PipeJob

LOOK_SECONDS: Final = 1.0
COUNT_SECONDS: Final = 3.0
SILENT_SECONDS: Final = 20.0
"""A worker that gives no sign of life for so long is frozen, and killed."""
BACK_SECONDS: Final = 3.0
"""A lost worker is run again. What it ran goes to other workers when it is not back after this time."""
IDLE_SECONDS: Final = 60.0
"""A worker without tasks is kept for so long."""
COME_SECONDS: Final = 45.0
"""A worker for which Spark has a core comes within this time, and goes within it when it may; otherwise it
hangs, and is killed. A flow that begins waits as long for the first one."""
OTHER_WORKERS_SECONDS: Final = 3.0
"""How long a flow that begins waits for as many workers as it needs, once there is one."""
SHORTEST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 5.0
"""Between two jobs that failed."""
MOST_WORKERS: Final = 256
"""Every one holds a thread."""
LEAVE_SECONDS: Final = 3.0

log = structlog.get_logger(__name__)

Place = tuple[Epoch, int]
"""A slot of an epoch."""


class Workers(Cores, Protocol):
    """Runs workers (on Spark)."""

    @property
    def cores(self) -> int | None:
        """How many slots each flow may have, and every worker finds a place; None: a cluster, whose workers
        are those that have come."""
        ...

    async def cluster_cores(self) -> int | None:
        """How many cores a cluster has for this process; None while that is not known."""
        ...

    @property
    def spark_ui(self) -> str:
        """The address of Spark's web UI; empty if it is switched off, or Spark has not started."""
        ...

    def warm_up(self, *, is_owner: bool = True) -> None:
        """Start what takes long to start, and return at once. A failure appears again in `run_worker`. For a
        process on standby nothing starts that would hold cores."""
        ...

    async def rest(self) -> None:
        """No flow is copied here, and no worker runs: end what holds cores."""
        ...

    @property
    def is_up(self) -> bool:
        """Whether Spark has started, which may take minutes: before that no worker can come."""
        ...

    async def run_lent(self, number: int, token: str, driver: DriverPlace) -> None:
        """As `run_worker`, for another driver."""
        ...

    async def kill_lent(self, number: int, driver: DriverPlace) -> None:
        """As `kill_worker`."""
        ...

    async def check_expressions(self, flow: Flow, expressions: Expressions) -> None:
        """Let Spark look at them, without records. Raises TwinlogError (TRANSFORM_REFUSED: for good)."""
        ...

    async def run_pipe(self, flow: Flow, expressions: Expressions, job: PipeJob) -> None:
        """Run the job through which records of a task flow, to its end; cancelling ends the job. Raises
        TwinlogError when it failed, or could not run."""
        ...


@dataclass(slots=True, kw_only=True, eq=False)
class PooledWorker:
    number: int
    home: Cores
    """Where it runs: in this process's Spark, or at a lender."""
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    places: list[Place] = field(default_factory=list)
    orders: asyncio.Queue[Place | None] | None = None
    """What the worker is told (None: it may go); None while it is not connected."""
    since: float
    """When it was started, connected, or lost, or Spark came up after that."""
    heard_at: float = 0.0
    is_new: bool = True
    """It was never connected."""
    has_come: bool = False
    """It was connected since its job began."""
    is_going: bool = False
    """It was let go or killed."""
    is_leaving: bool = False
    """The lender wants its core back: it gets nothing to run any more, and goes when it runs nothing."""

    @property
    def is_here(self) -> bool:
        return self.orders is not None and not self.is_going

    def accepts(self, token: str) -> bool:
        return secrets.compare_digest(self.token.encode(), token.encode())

    def tasks(self, flow: Flow) -> Tasks:
        """Without those of the flow's earlier epochs, which go when the new one begins."""
        stay = [epoch for epoch, _ in self.places if epoch.flow != flow and not epoch.ending]
        small = sum(epoch.shares_worker for epoch in stay)
        return Tasks(large=len(stay) - small, small=small)


@dataclass(slots=True, kw_only=True, eq=False)
class _Run:
    epoch: Epoch
    waiting: list[int]
    """Slots without a worker."""
    failure: TwinlogError | None = None
    failed: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True, kw_only=True)
class WorkerPool:
    """Runs the epochs of all flows. Use it on one event loop, and within `run_workers`."""

    workers: Workers
    clock: Clock
    lenders: Lenders = field(default_factory=Lenders)
    _pool: dict[int, PooledWorker] = field(default_factory=dict)
    _runs: list[_Run] = field(default_factory=list)
    _flows: set[Flow] = field(default_factory=set)
    """Those that are copied here."""
    _needs: dict[Flow, Need] = field(default_factory=dict)
    _cores: int = 0
    """Of a cluster; counted while records are changed on it."""
    _last: int = 0
    _failures: int = 0
    """How many jobs have failed since a worker came."""
    _failure: TwinlogError | None = None
    _pause_until: float = 0.0
    _looked_at: float = 0.0
    _awake_since: float = 0.0
    """When this process began, or was suspended last: what was sent to it meanwhile is still to be read."""
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _moved: asyncio.Event = field(default_factory=asyncio.Event)

    # ----------------------------------------------------------------------------------- for drivers of flows

    def warm_up(self, flow: Flow, *, is_owner: bool) -> None:
        """The flow is copied here from now on, or not. Starts what that needs, in the background."""
        if is_owner:
            self._flows.add(flow)
        else:
            self._flows.discard(flow)
        self.workers.warm_up(is_owner=is_owner)

    def share(self, flow: Flow, need: Need | None) -> int:
        """Note what a flow would use (None: it is not copied here); return how many slots it gets now."""
        before = self._needs.get(flow)
        if need is None:
            self._needs.pop(flow, None)
            return 0
        self._needs[flow] = need
        if need != before:
            self._news.set()
        if self.workers.cores is not None:
            return self._needs_of_workers[flow].slots
        return share_cores(self._needs_of_workers, self._here)[flow]

    def lent_workers(self, flow: Flow) -> Mapping[str, int]:
        """How many copy for a flow on cores of lenders, by the lender's name."""
        return Counter(
            worker.home.name
            for worker in self._pool.values()
            if isinstance(worker.home, Lender) and any(epoch.flow == flow for epoch, _ in worker.places)
        )

    def was_awake(self, seconds: float) -> bool:
        """Whether this process was not suspended in the last so many seconds. Ask every few seconds."""
        now = self.clock.monotonic()
        if now >= self._looked_at + SILENT_SECONDS / 2:
            self._awake_since = now
        self._looked_at = now
        return now >= self._awake_since + seconds

    async def claim(self, flow: Flow, need: Need) -> int:
        """As `share`, after the workers that it takes have come. Raises TwinlogError when none comes."""
        share = self.share(flow, need)
        if self.workers.cores is not None:
            return share
        began = self.clock.monotonic()
        failures = self._failures
        while not self._here:
            if self._failures > failures and self._failure is not None:
                raise self._failure
            if self.clock.monotonic() >= began + COME_SECONDS:
                told = f"no worker of Spark has come for {flow} within {COME_SECONDS:g} s"
                if not self.workers.is_up:
                    raise TransientKafkaError(f"{told}: Spark is still starting", reason="SPARK_UNAVAILABLE")
                why = "no core is free, or the executor is still starting"
                raise TransientKafkaError(f"{told}: {why}", reason="EPOCH_NOT_READY")
            await self._next_move()
        give_up_at = self.clock.monotonic() + OTHER_WORKERS_SECONDS
        while self._here < self._wanted() and self.clock.monotonic() < give_up_at:
            await self._next_move()
        return self.share(flow, need)

    def is_crowded(self) -> bool:
        """Whether more slots copy than there are cores."""
        own = self.workers.cores
        if own is not None:
            following = {flow for flow, need in self._needs.items() if need.follows_cores}
            epochs = [run.epoch for run in self._runs if run.epoch.flow in following]
            lent = sum(max(0, len(epoch.slots) - own) for epoch in epochs if not epoch.ending)
            return lent > self.lenders.offer(self._needs)
        running = {
            run.epoch.flow: Need(
                len(run.epoch.slots), run.epoch.shares_worker, self._needs_pipes(run.epoch.flow)
            )
            for run in self._runs
            if not run.epoch.ending
        }
        return workers_needed(running) > self._here or (
            self._has_pipes and cores_needed(running) > self._cores
        )

    async def run(self, epoch: Epoch) -> None:
        """Return when no task of the epoch copies and none is wanted. Raises TwinlogError when no worker can
        run it."""
        run = _Run(epoch=epoch, waiting=list(range(len(epoch.slots))))
        self._runs.append(run)
        self._news.set()
        try:
            async with asyncio.TaskGroup() as group:
                waits = [
                    group.create_task(run.failed.wait(), name=f"workers of {epoch.flow}"),
                    group.create_task(_over(epoch), name=f"end of {epoch.flow} epoch {epoch.number}"),
                ]
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                for wait in waits:
                    wait.cancel()
        finally:
            self._runs.remove(run)
            for worker in self._pool.values():
                if any(each is epoch for each, _ in worker.places):
                    worker.places = [place for place in worker.places if place[0] is not epoch]
                    if worker.is_here:
                        worker.since = self.clock.monotonic()
            self._news.set()
        if run.failure is not None:
            raise type(run.failure)(str(run.failure), reason=run.failure.reason) from run.failure

    # ------------------------------------------------------------------------------------------- for workers

    def lent(self, lender: Lender) -> None:
        """What a lender offers has changed: workers on cores that it wants back have to go."""
        for number in list(lender.running)[lender.cores :]:
            self._pool[number].is_leaving = True
        self._move()

    def admit(self, number: int, token: str) -> PooledWorker:
        """Raises NotFoundError: there is no such worker."""
        worker = self._pool.get(number)
        if worker is None or worker.is_going or not worker.accepts(token):
            raise NotFoundError("no live driver knows this worker", reason="EPOCH_UNKNOWN")
        return worker

    def joined(self, worker: PooledWorker) -> asyncio.Queue[Place | None]:
        """A worker has connected: return what it is told. An earlier process of it, which Spark has lost but
        which may live, is told to go: the tasks of both would push each other out of their slots."""
        if worker.orders is not None:
            worker.orders.put_nowait(None)
        orders: asyncio.Queue[Place | None] = asyncio.Queue()
        worker.orders, worker.is_new, worker.has_come = orders, False, True
        worker.since = worker.heard_at = self.clock.monotonic()
        for place in worker.places:
            orders.put_nowait(place)
        self._failures, self._failure = 0, None
        self._move()
        return orders

    def heard(self, worker: PooledWorker) -> None:
        worker.heard_at = self.clock.monotonic()

    def left(self, worker: PooledWorker, orders: asyncio.Queue[Place | None]) -> None:
        if worker.orders is orders:
            worker.orders, worker.since = None, self.clock.monotonic()
            self._move()

    def refused(self, worker: PooledWorker, why: TwinlogError) -> None:
        """A worker has come that cannot be served: no epoch can run."""
        self._failed(worker, why)

    # --------------------------------------------------------------------------------------------- the loop

    async def run_workers(self, stop: asyncio.Event) -> None:
        """Loop until `stop` and until no epoch runs; then the workers go."""
        async with asyncio.TaskGroup() as group:
            counting = group.create_task(self._count_cores(), name="cores of the cluster")
            jobs: set[asyncio.Task[None]] = set()
            while not stop.is_set() or self._runs:
                self._news.clear()
                for worker in self._look():
                    job = group.create_task(self._job(worker), name=f"worker {worker.number}")
                    jobs.add(job)
                    job.add_done_callback(jobs.discard)
                is_awake = self.was_awake(SILENT_SECONDS)
                for worker in self._unwanted() if is_awake else ():
                    group.create_task(self._kill(worker), name=f"end of worker {worker.number}")
                if not (self._flows or self._pool):
                    await self.workers.rest()
                others = () if stop.is_set() else (stop,)
                await wait_for_any(self._news, *others, seconds=LOOK_SECONDS)
            counting.cancel()
            for worker in self._pool.values():
                worker.is_going = True  # One that comes only now is refused.
                if worker.orders is not None:
                    worker.orders.put_nowait(None)
            if jobs:
                await asyncio.wait(jobs, timeout=LEAVE_SECONDS)
            for job in jobs:
                job.cancel()

    async def _count_cores(self) -> None:
        """Loop until cancelled."""
        while True:
            if self._has_pipes:
                counted = await self.workers.cluster_cores()
                if counted is not None and counted != self._cores:
                    log.info("cores_counted", cores=counted, before=self._cores)
                    self._cores = counted
                    self._move()
            await pause(COUNT_SECONDS if self._cores else LOOK_SECONDS)

    def _look(self) -> list[PooledWorker]:
        """Place the slots that wait; return the workers whose jobs have to be started."""
        now = self.clock.monotonic()
        self.lenders.want(workers_needed(self._needs) - (self.workers.cores or 0), self._needs)
        for worker in self._pool.values():
            if not worker.is_here and not self.workers.is_up:
                worker.since = now
            if not worker.is_here and not worker.is_new and now >= worker.since + BACK_SECONDS:
                self._take_places(worker)
        alive = [each for each in self._pool.values() if not each.is_going]
        missing = self._wanted() - sum(not worker.is_leaving for worker in alive)
        for worker in alive:
            is_idle = worker.is_here and not worker.places and now >= worker.since + self._idle_seconds
            if (is_idle and missing < 0) or (worker.is_leaving and worker.is_here and not worker.places):
                assert worker.orders is not None
                worker.orders.put_nowait(None)
                worker.orders = None
                worker.is_going, worker.since = True, now
                missing += not worker.is_leaving
        started = []
        if now >= self._pause_until:
            for _ in range(missing):
                self._last += 1
                worker = PooledWorker(number=self._last, since=now, home=self._home())
                self._pool[worker.number] = worker
                started.append(worker)
        self._place()
        return started

    def _home(self) -> Cores:
        """Of one more worker: a lender once all cores of this process are in use."""
        used = [each.home for each in self._pool.values()]
        own = self.workers.cores
        if own is None or used.count(self.workers) < own:
            return self.workers
        return self.lenders.free(self._needs, used) or self.workers

    def _place(self) -> None:
        for run in self._runs:
            epoch = run.epoch
            while run.waiting and not epoch.ending:
                able = {
                    worker.number: worker.tasks(epoch.flow)
                    for worker in self._pool.values()
                    if not worker.is_leaving
                    and (
                        worker.is_here
                        or (worker.is_new and not worker.is_going and self.workers.cores is not None)
                    )
                }
                if not able:
                    break
                for each, number in ((each, w.number) for w in self._pool.values() for each in w.places):
                    if each[0] is epoch and number in able:
                        able[number] = Tasks(able[number].large + 1, able[number].small)
                place = epoch, run.waiting.pop(0)
                worker = self._pool[choose_worker(able, is_small=epoch.shares_worker)]
                worker.places.append(place)
                if worker.orders is not None:
                    worker.orders.put_nowait(place)

    def _wanted(self) -> int:
        """Workers that the flows would use, as far as it is sensible to ask for them."""
        wanted = min(max(workers_needed(self._needs_of_workers), 1 if self._runs else 0), MOST_WORKERS)
        return wanted if self.workers.cores is not None else min(wanted, 2 * self._here + 2)

    @property
    def _needs_of_workers(self) -> Mapping[Flow, Need]:
        """Of no more slots than there are cores; on a cluster on which records are changed: of so many that
        their cores remain."""
        if self._has_pipes:
            return affordable(self._needs, self._cores)
        own = self.workers.cores
        if own is None:
            return self._needs
        more = {flow: max(0, need.slots - own) for flow, need in self._needs.items() if need.follows_cores}
        lent = deal(more, self.lenders.offer(self._needs))
        return {
            flow: replace(need, slots=min(need.slots, own + lent[flow])) if flow in lent else need
            for flow, need in self._needs.items()
        }

    @property
    def _has_pipes(self) -> bool:
        """Whether workers have to leave cores for the records of some flow."""
        return self.workers.cores is None and any(need.has_pipes for need in self._needs.values())

    def _needs_pipes(self, flow: Flow) -> bool:
        need = self._needs.get(flow)
        return need is not None and need.has_pipes

    @property
    def _idle_seconds(self) -> float:
        """A worker that nobody needs may have the core for which records wait; or another process, if no flow
        is copied here."""
        return IDLE_SECONDS if self._needs and not self._has_pipes else 0.0

    @property
    def _here(self) -> int:
        return sum(worker.is_here for worker in self._pool.values())

    def _unwanted(self) -> list[PooledWorker]:
        """Those that hang, and those that nobody needs before Spark had a core for them."""
        now = self.clock.monotonic()
        alive = [each for each in self._pool.values() if not each.is_going]
        hanging = [each for each in self._pool.values() if self._hangs(each, now)]
        queued = [each for each in alive if not (each.is_here or each.places or each in hanging)]
        too_many = max(0, len(alive) - self._wanted())
        return hanging + [each for each in queued if each.since <= now - self._idle_seconds][:too_many]

    def _hangs(self, worker: PooledWorker, now: float) -> bool:
        if worker.is_here:
            return worker.heard_at < now - SILENT_SECONDS
        is_queued = worker.is_new and not worker.is_going and self.workers.cores is None
        return not is_queued and worker.since < now - COME_SECONDS

    async def _kill(self, worker: PooledWorker) -> None:
        log.warning("worker_killed", worker=worker.number, is_frozen=worker.is_here)
        worker.is_going, worker.since = True, self.clock.monotonic()
        self._take_places(worker)
        self._move()
        try:
            await worker.home.kill_worker(worker.number)
        except TwinlogError as error:
            log.warning("worker_not_killed", worker=worker.number, reason=error.reason, error=str(error))

    def _take_places(self, worker: PooledWorker) -> None:
        """What it ran waits for another worker."""
        for epoch, slot in worker.places:
            for run in self._runs:
                if run.epoch is epoch and epoch.slots[slot].state is not SlotState.FINISHED:
                    run.waiting.append(slot)
        if worker.places:
            worker.places = []
            self._news.set()

    async def _job(self, worker: PooledWorker) -> None:
        """Run the job of a worker to its end, and again when it had come and was lost."""
        losses = 0
        try:
            while True:
                began, worker.has_come = self.clock.monotonic(), False
                failure = await self._failure_of_job(worker)
                if failure is None or worker.is_going or not worker.has_come:
                    break
                losses = losses + 1 if self.clock.monotonic() < began + IDLE_SECONDS else 0
                log.info("worker_lost", worker=worker.number, losses=losses, error=str(failure))
                await pause(min(SHORTEST_PAUSE_SECONDS * 2.0 ** min(losses, 10), LONGEST_PAUSE_SECONDS))
                if worker.is_going:
                    break
        finally:
            del self._pool[worker.number]
        if failure is not None and not worker.is_going:
            log.warning("worker_failed", worker=worker.number, reason=failure.reason, error=str(failure))
            self._failed(worker, failure)
        self._take_places(worker)
        self._move()

    async def _failure_of_job(self, worker: PooledWorker) -> TwinlogError | None:
        try:
            await worker.home.run_worker(worker.number, worker.token)
        except LenderGoneError:
            return None  # It does not come back: others get what it ran.
        except TwinlogError as error:
            return error
        if worker.has_come:
            return None
        return TwinlogError("a worker ended before it had reached its driver", reason="EPOCH_FAILED")

    def _failed(self, worker: PooledWorker, failure: TwinlogError) -> None:
        now = self.clock.monotonic()
        self._failure = failure
        if now >= self._pause_until:  # A JVM that is gone ends all of them at once.
            self._pause_until = now + min(0.5 * 2.0 ** min(self._failures, 10), LONGEST_PAUSE_SECONDS)
        self._failures += 1
        for run in self._runs:
            if run.waiting or any(run.epoch is epoch for epoch, _ in worker.places):
                run.failure = failure
                run.failed.set()
        self._move()

    def _move(self) -> None:
        self._moved.set()
        self._news.set()

    async def _next_move(self) -> None:
        self._moved.clear()
        await wait_for_any(self._moved, seconds=LOOK_SECONDS)


async def _over(epoch: Epoch) -> None:
    """Return when no task of the epoch is running and none is wanted; later tasks are refused."""
    await epoch.over.wait()
    idle = (SlotState.FINISHED, SlotState.LOST, SlotState.WAITING)
    while not await epoch.wait_until(lambda: epoch.are(*idle), SILENT_SECONDS):
        pass
