"""Keeps one flow in sync: look at both clusters, plan, apply, remember, tell. The one loop of a flow."""

import asyncio
from collections.abc import Collection
from dataclasses import replace
from typing import Final

from twinlog.clock import Clock
from twinlog.errors import (
    ConflictError,
    KafkaError,
    NotFoundError,
    StateError,
    TransientKafkaError,
    TwinlogError,
)
from twinlog.kafka.ports import KafkaCluster, TopicDescription
from twinlog.model import ClusterAlias, Flow
from twinlog.service.runtime import Backoff, finish_or_cancel, wait_or_stop
from twinlog_configsync.acl_listing import AclEntry, list_acls
from twinlog_configsync.acl_plan import wanted_acls
from twinlog_configsync.apply import Applier, Outcome
from twinlog_configsync.board import TopicBoard
from twinlog_configsync.claims import Claims
from twinlog_configsync.config import ConfigSyncFlow
from twinlog_configsync.explain import Explanation, explain
from twinlog_configsync.flow_status import FlowStatus, after_failure, after_success
from twinlog_configsync.journal import Journal
from twinlog_configsync.learn import learn
from twinlog_configsync.memory import Memory, forgotten, recall
from twinlog_configsync.observation import AclObservation, QuotaObservation, World
from twinlog_configsync.observe import Observer
from twinlog_configsync.obstacles import Obstacles
from twinlog_configsync.plan import Plan, make_plan, replicated_topics
from twinlog_configsync.quota_plan import wanted_quotas
from twinlog_configsync.reasons import Reason
from twinlog_configsync.records import PlanRecord
from twinlog_configsync.schedule import Schedule, Scope
from twinlog_configsync.store import RegistryStore

_ANSWER_SECONDS: Final = 10.0
"""How long a cluster may take to say that it is there."""

_RETRY_SECONDS: Final = 30.0
"""When a part that could not be looked at is tried again."""


class FlowSync:
    """One flow. Everything known of it is in the registry on the target before it is on the board."""

    def __init__(
        self,
        flow: ConfigSyncFlow,
        *,
        source: KafkaCluster,
        target: KafkaCluster,
        board: TopicBoard,
        claims: Claims,
        clock: Clock,
        backoff: Backoff,
        journal: Journal,
    ) -> None:
        self._rules = flow.rules
        self._source = source
        self._target = target
        self._store = RegistryStore(
            cluster=target,
            topic=flow.registry_topic,
            replication_factor=flow.registry_replication_factor,
        )
        self._observer = Observer(
            flow=flow.flow, source=source, target=target, registry_topic=flow.registry_topic
        )
        self._applier = Applier(target=target, observer=self._observer, clock=clock)
        self._board = board
        self._claims = claims
        self._clock = clock
        self._backoff = backoff
        self._journal = journal
        self._schedule = Schedule(interval_seconds=flow.rules.intervals_seconds)
        self._memory = Memory()
        self._loaded = False
        self._status = FlowStatus()
        self._obstacles = Obstacles()
        self._lock = asyncio.Lock()
        """One pass at a time: the loop's, or one that somebody asked for."""

    @property
    def flow(self) -> Flow:
        return self._rules.flow

    @property
    def status(self) -> FlowStatus:
        return self._status

    async def run(self, stop: asyncio.Event) -> None:
        """Loop: sync what is due; after a failure all of it again, with a back-off. Ends with `stop`.

        A pass that waits for a cluster that is away is cut off then: every pass begins by looking, so
        nothing is lost by it.
        """
        while not stop.is_set():
            started = self._clock.monotonic()
            scopes = self._schedule.due(started)
            try:
                await finish_or_cancel(self.sync(scopes, stop), stop=stop)
            except TwinlogError as error:
                self._status = after_failure(self._status, error, settled=self._memory.settled)
                self._journal.failed(error)
                wait_seconds = self._backoff.next()
            else:
                self._backoff.reset()
                self._plan_next(scopes, started=started)
                wait_seconds = self._schedule.next_in_seconds(self._clock.monotonic())
            await wait_or_stop(stop, wait_seconds)

    def _plan_next(self, scopes: Collection[Scope], *, started: float) -> None:
        self._schedule.done(scopes, started=started)
        failed = {scope for scope in scopes if self._status.failed(scope)}
        self._schedule.retry(failed, now=started, in_seconds=_RETRY_SECONDS)
        if Scope.TOPICS in scopes and not self._rules.refresh_enabled:
            self._schedule.once(Scope.TOPICS)

    async def sync(self, scopes: Collection[Scope], stop: asyncio.Event) -> None:
        """Bring these parts of the target in step with the source once; in manual mode, see what that takes.

        What is wrong with one topic is its state. Raises TwinlogError when a cluster as a whole does not
        answer, or the flow cannot be; what was known stays.
        """
        async with self._lock:
            world = await self._look(scopes)
            plan = self._plan(world, scopes)
            if self._rules.automatic:
                await self._carry_out(plan, world, stop)
            else:
                self._journal.pending(plan)
                await self._remember(plan, Outcome(world=world), applied=False)

    async def preview(self, scopes: Collection[Scope] = ()) -> tuple[Plan, World]:
        """What there is to do now (in all parts that the flow syncs when `scopes` is empty), and what was
        seen.

        Changes nothing but the registry, which keeps the plan's id. Raises as `sync`.
        """
        async with self._lock:
            chosen = frozenset(scopes) or frozenset(self._rules.intervals_seconds)
            world = await self._look(chosen)
            plan = self._plan(world, chosen)
            record = PlanRecord(
                plan_id=plan.plan_id, scopes=tuple(sorted(chosen)), made_at_ms=self._clock.now_ms()
            )
            self._memory = replace(self._memory, last_plan=record)
            await self._store.put(self._memory.records())
            return plan, world

    async def apply(self, plan_id: str, stop: asyncio.Event) -> Outcome:
        """Carry out the plan that `preview` gave last, if it is still what there is to do.

        Raises NotFoundError (PLAN_UNKNOWN) for any other id, ConflictError (PLAN_STALE) when the world
        changed, and as `sync`.
        """
        async with self._lock:
            await self._open()
            last = self._memory.last_plan
            if last is None or last.plan_id != plan_id:
                raise NotFoundError(
                    f"{self.flow}: no plan {plan_id}; the last one is {last.plan_id if last else 'none'}: "
                    "plan again",
                    reason=Reason.PLAN_UNKNOWN,
                    metadata={"flow": str(self.flow), "plan_id": plan_id},
                )
            scopes = frozenset(Scope(scope) for scope in last.scopes)
            world = await self._look(scopes)
            plan = self._plan(world, scopes)
            if plan.plan_id != plan_id:
                raise ConflictError(
                    f"{self.flow}: the clusters or the rules have changed since plan {plan_id} was made: "
                    "look at the new plan and apply that",
                    reason=Reason.PLAN_STALE,
                    metadata={"flow": str(self.flow), "plan_id": plan_id, "plan_id_now": plan.plan_id},
                )
            return await self._carry_out(plan, world, stop)

    async def explain(self, topic: str) -> list[Explanation]:
        """Why the topic of this name is replicated or not. A cluster that is away is an answer, not an
        error.
        """
        on_source = await _find(self._source, topic)
        on_target = await _find(self._target, topic)
        return explain(
            topic, self._rules.selector, self._memory.entries, on_source=on_source, on_target=on_target
        )

    async def acls(self) -> list[AclEntry]:
        """What the flow does about each ACL. Raises as `sync`, and StateError when a side has no authorizer
        or hides its ACLs.
        """
        async with self._lock:
            world = await self._look([Scope.ACLS])
        if not isinstance(world.acls, AclObservation):
            problem = world.problem(Scope.ACLS)
            raise StateError(
                problem.message if problem else "", reason=problem.reason if problem else Reason.STARTING
            )
        return list_acls(
            world.acls,
            self._rules.acls,
            topics=replicated_topics(world.topics),
            made=self._memory.made_acls,
        )

    async def _open(self) -> None:
        """Make sure that the registry is known and the flow may be."""
        target_id = await _identify(self._target, self.flow.target)
        if not self._loaded:
            await self._load()
        self._refuse_same_cluster(await _identify(self._source, self.flow.source), target_id)
        await self._store.create()

    async def _look(self, scopes: Collection[Scope]) -> World:
        await self._open()
        world = await self._observer.world(await self._wanted_topics(scopes), scopes)
        for scope in scopes:
            problem = world.problem(scope)
            if problem is not None:
                self._journal.problem(scope, problem)
        return world

    def _plan(self, world: World, scopes: Collection[Scope]) -> Plan:
        if isinstance(world.acls, AclObservation):
            topics = replicated_topics(world.topics)
            self._claims.claim_acls(self.flow, wanted_acls(world.acls, self._rules.acls, topics=topics))
        if isinstance(world.quotas, QuotaObservation):
            self._claims.claim_quotas(self.flow, frozenset(wanted_quotas(world.quotas)))
        return make_plan(
            world,
            self._rules,
            self._memory,
            scopes=scopes,
            now_ms=self._clock.now_ms(),
            claims=self._claims,
        )

    async def _carry_out(self, plan: Plan, world: World, stop: asyncio.Event) -> Outcome:
        if plan.new_acls or plan.new_quotas:
            await self._store.put(self._memory.intending(plan.new_acls, plan.new_quotas).records())
        outcome = await self._applier.carry_out(plan, world, stop)
        self._journal.outcome(outcome)
        await self._remember(plan, outcome, applied=True)
        return outcome

    async def _load(self) -> None:
        self._memory = recall(await self._store.load())
        self._loaded = True
        self._journal.loaded(topics=len(self._memory.entries), settled=self._memory.settled)
        self._publish()

    def _refuse_same_cluster(self, source_id: str, target_id: str) -> None:
        if source_id == target_id:
            raise StateError(
                f"{self.flow}: both ends are one cluster (id {source_id}), a flow needs two. "
                f"Check {self.flow.source}.bootstrap.servers and {self.flow.target}.bootstrap.servers",
                reason=Reason.SAME_CLUSTER,
                metadata={"flow": str(self.flow), "cluster_id": source_id},
            )

    async def _wanted_topics(self, scopes: Collection[Scope]) -> dict[str, str]:
        """Source name → target name of every topic the rules select that exists, existed or is spelled
        out.
        """
        candidates = set(self._memory.entries)
        if Scope.TOPICS in scopes:
            candidates |= {*await self._source.list_topics(), *self._rules.named_topics}
        decisions = (self._rules.selector.decide(name) for name in sorted(candidates))
        return {decision.topic: decision.remote_topic for decision in decisions if decision.selected}

    async def _remember(self, plan: Plan, outcome: Outcome, *, applied: bool) -> None:
        """Store what is known now, then tell it. `applied`: whether the plan was carried out."""
        now_ms = self._clock.now_ms()
        obstacles = self._obstacles.after(plan, outcome.refused, applied=applied)
        before = self._memory
        after = learn(before, plan, outcome, obstacles, self._rules, now_ms=now_ms)
        intended = before.intending(plan.new_acls, plan.new_quotas)
        await self._store.put({**forgotten(intended, after), **after.records()})
        self._memory = after
        self._obstacles = obstacles
        self._journal.entries(before.entries, after.entries)
        self._publish()
        status = after_success(self._status, plan, outcome, topic_count=after.selected_count, now_ms=now_ms)
        self._journal.status(self._status, status, topics=after.selected_count)
        self._status = status

    def _publish(self) -> None:
        self._board.publish(self.flow, self._memory.entries)
        if self._memory.settled:
            self._board.settle(self.flow)


async def _identify(cluster: KafkaCluster, alias: ClusterAlias) -> str:
    """The cluster's id. Raises TransientKafkaError soon when it is away, long before the client gives up."""
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            return await cluster.cluster_id()
    except TimeoutError as error:
        raise TransientKafkaError(
            f"cluster {alias}: no answer within {_ANSWER_SECONDS:g} s; check {alias}.bootstrap.servers",
            reason="KAFKA_TIMEOUT",
            metadata={"cluster": alias},
        ) from error


async def _find(cluster: KafkaCluster, topic: str) -> TopicDescription | KafkaError:
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            return (await cluster.describe_topics([topic]))[topic]
    except TimeoutError:
        return TransientKafkaError(f"no answer within {_ANSWER_SECONDS:g} s", reason="KAFKA_TIMEOUT")
    except KafkaError as error:
        return error
