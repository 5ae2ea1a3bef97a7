"""Keeps one flow in sync by passes: each part at its own interval, and at once when it is woken."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Final

from twinlog.clock import Clock
from twinlog.errors import TwinlogError
from twinlog.model import Flow
from twinlog.service.feeds.replicated_topics import StoredRoute
from twinlog.service.runtime import Backoff
from twinlog.service.waiting import finish_or_cancel, wait_for_any, wait_or_stop
from twinlog.telemetry.metrics.spec import flow_attributes
from twinlog.telemetry.tracing import span
from twinlog_configsync.flow.change_log import ChangeLog
from twinlog_configsync.flow.passes import FlowPasses
from twinlog_configsync.model.actions import CreateTopic
from twinlog_configsync.model.reasons import SyncReason
from twinlog_configsync.model.schedule import Schedule, Scope
from twinlog_configsync.planning.flow_status import FlowStatus, after_failure, standing_by

_RETRY_SECONDS: Final = 30.0
"""When a part that could not be read is tried again."""
_FOLLOW_SECONDS: Final = 2.0
"""How often a standby reads what the owner has written."""


class FlowSync:
    """The loop of one flow."""

    def __init__(
        self,
        passes: FlowPasses,
        *,
        clock: Clock,
        backoff: Backoff,
        journal: ChangeLog,
        refusal: Callable[[], TwinlogError | None],
    ) -> None:
        """`refusal` tells why this process does not own the flow now."""
        self.passes = passes
        self._refusal = refusal
        self._clock = clock
        self._backoff = backoff
        self._journal = journal
        self.schedule = Schedule(interval_seconds=passes.rules.intervals_seconds)
        self._woken = asyncio.Event()
        self._seen_routes: Mapping[str, StoredRoute] = {}
        """As stored when topics were synced last."""
        self._acls_lack_topics = False
        """The last pass created topics for which ACLs of patterns may have to be created."""

    @property
    def flow(self) -> Flow:
        return self.passes.flow

    @property
    def status(self) -> FlowStatus:
        return self.passes.status

    def wake(self) -> None:
        """The rules have changed: everything is due now, and at the new intervals from then on."""
        self.schedule = Schedule(interval_seconds=self.passes.rules.intervals_seconds)
        self._woken.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Loop of the flow's owner: sync what is due; after a failure all of it again, with a back-off. Ends
        with `stop`.

        `stop` cuts off a pass that waits for a cluster. Every pass begins by reading, so nothing is lost.
        """
        self.passes.take_over()
        self.schedule = Schedule(interval_seconds=self.passes.rules.intervals_seconds)
        while not stop.is_set():
            started = self._clock.monotonic()
            scopes = self.schedule.due(started)
            self._woken.clear()
            try:
                await finish_or_cancel(self.sync(scopes, stop), stop=stop)
            except TwinlogError as error:
                self._failed(error)
                self._follow_intervals()
                await wait_for_any(stop, self._woken, seconds=self._backoff.next())
            else:
                self._backoff.reset()
                self._follow_intervals()
                if not self._woken.is_set():
                    self._plan_next(scopes, started=started)
                await self._wait(stop, self.schedule.next_in_seconds(self._clock.monotonic()))

    async def _wait(self, stop: asyncio.Event, seconds: float) -> None:
        """Until something is due, or records wait for a topic to which they are routed."""
        until = self._clock.monotonic() + seconds
        while (left := until - self._clock.monotonic()) > 0:
            looks = self.passes.rules.routes_records
            if await wait_for_any(stop, self._woken, seconds=min(left, _FOLLOW_SECONDS) if looks else left):
                return
            with suppress(TwinlogError):  # The next pass meets it again.
                if looks and await finish_or_cancel(self.has_new_routes(), stop=stop):
                    self.schedule.retry({Scope.TOPICS}, now=self._clock.monotonic(), in_seconds=0.0)
                    return

    async def has_new_routes(self) -> bool:
        """Whether records wait for a topic that no pass has created yet. Raises as `Table.load`."""
        return await self.passes.stored_routes.load() != self._seen_routes

    async def stand_by(self, stop: asyncio.Event) -> None:
        """Loop of a standby: follow what the owner does, and answer from that. Ends with `stop`."""
        self.passes.stand_by()
        while not stop.is_set():
            try:
                await finish_or_cancel(self.follow_owner(), stop=stop)
            except TwinlogError as error:
                self._failed(error)
            await wait_or_stop(stop, _FOLLOW_SECONDS)

    async def follow_owner(self) -> None:
        """Read what the owner has written. Not before it is known whether this process is the owner: then its
        file may put rules aside that nobody is to follow any more. Raises as `FlowPasses.follow`."""
        refusal = self._refusal()
        if refusal is not None and refusal.reason == SyncReason.STARTING:
            return
        await self.passes.follow()
        refusal = self._refusal()
        if refusal is not None:
            self.passes.status = standing_by(self.status, refusal, settled=self.passes.memory.settled)

    async def sync(self, scopes: Collection[Scope], stop: asyncio.Event) -> None:
        """Sync these parts of the target once; in manual mode, only plan it.

        A problem with one topic is its state. Raises TwinlogError when a cluster as a whole does not answer,
        or the flow is invalid; what was known stays.
        """
        flow = flow_attributes(self.flow.source, self.flow.target)
        async with self.passes.lock, self.passes.turn():
            with span("plan", flow):
                world = await self.passes.look(scopes)
                routes = self.passes.stored_routes.rows
                plan = await self.passes.plan(world, scopes)
            if self.passes.rules.automatic:
                with span("apply", flow):
                    outcome = await self.passes.carry_out(plan, world, stop)
                if self.passes.rules.acls.writes_patterns_out:
                    self._acls_lack_topics = any(isinstance(each, CreateTopic) for each in outcome.applied)
            else:
                await self.passes.leave(plan, world)
            if Scope.TOPICS in scopes:
                self._seen_routes = routes

    def _follow_intervals(self) -> None:
        """Stored rules may have come into force with a pass: at its first look, or when they can be used."""
        if self.schedule.interval_seconds != self.passes.rules.intervals_seconds:
            self.wake()

    def _failed(self, error: TwinlogError) -> None:
        self.passes.status = after_failure(self.status, error, settled=self.passes.memory.settled)
        self._journal.failed(error)

    def _plan_next(self, scopes: Collection[Scope], *, started: float) -> None:
        self.schedule.done(scopes, started=started)
        failed = {scope for scope in scopes if self.status.failed(scope)}
        self.schedule.retry(failed, now=started, in_seconds=_RETRY_SECONDS)
        if Scope.TOPICS in scopes and not self.passes.rules.refresh_enabled:
            self.schedule.once(Scope.TOPICS)
        if self._acls_lack_topics and Scope.ACLS not in scopes:
            self.schedule.retry({Scope.ACLS}, now=started, in_seconds=0.0)
