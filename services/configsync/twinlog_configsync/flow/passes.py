"""The steps of every pass over a flow: open, read, plan, carry out, store, publish."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from twinlog.clock import Clock
from twinlog.errors import KafkaError, StateError
from twinlog.kafka.ports import KafkaCluster
from twinlog.selection import TopicReason, TopicSelector
from twinlog.service.feeds.registry import TOLD_KINDS, registry_name
from twinlog.service.feeds.replicated_topics import ReplicatedTopic, StoredRoute
from twinlog.service.feeds.routes import routes_of
from twinlog.service.feeds.tables import ToldTables
from twinlog_configsync.access.acl_rules import GROUP, TranslatedAcl, translate_acls
from twinlog_configsync.clusters.apply import Applier
from twinlog_configsync.clusters.observe import Ask, Observer
from twinlog_configsync.config import ConfigSyncFlow
from twinlog_configsync.flow.change_log import ChangeLog
from twinlog_configsync.flow.claims import claimed, wanted_now
from twinlog_configsync.flow.known_flow import KnownFlow, OtherFlow, identify
from twinlog_configsync.flow.loop_guard import FailoverWatch
from twinlog_configsync.model.actions import Action, Applied, scope_of
from twinlog_configsync.model.hold import Hold
from twinlog_configsync.model.memory import Memory
from twinlog_configsync.model.observation import (
    AclObservation,
    Observation,
    TargetCluster,
    World,
)
from twinlog_configsync.model.reasons import SyncReason
from twinlog_configsync.model.schedule import Scope
from twinlog_configsync.planning.desired import DesiredBindings
from twinlog_configsync.planning.flow_status import FlowStatus, after_success
from twinlog_configsync.planning.learn import Blockers, learn
from twinlog_configsync.planning.plan import Plan, make_plan, replicated_topics
from twinlog_configsync.planning.source_loss import kept_copies

# Which topics a flow copies, and under which names; decided once for each name.


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterparts:
    """Decided again when the rules change; a value, because it is computed in a thread that may outlive the
    pass that asked for it."""

    selector: TopicSelector | None = None
    decided: Mapping[str, str | None] = field(default_factory=dict)
    """Source name → target name; None = not selected."""
    loops: Mapping[str, str] = field(default_factory=dict)
    """Source name → why it is not copied: other flows would copy it back."""
    cycles: Mapping[str, str] = field(default_factory=dict)
    """Source name → the cluster through which it came by its name, so that it is not copied."""

    @property
    def selected(self) -> dict[str, str]:
        """Source name → target name of the topics that the rules select."""
        return {name: remote for name, remote in self.decided.items() if remote is not None}

    def of(self, names: Collection[str], selector: TopicSelector) -> "Counterparts":
        """Those of these names. Known decisions by the same rules are kept."""
        before = self.decided if selector is self.selector else {}
        decided: dict[str, str | None] = {}
        loops = {name: rule for name, rule in self.loops.items() if name in before and name in names}
        cycles = {name: alias for name, alias in self.cycles.items() if name in before and name in names}
        for name in sorted(names):
            if name in before:
                decided[name] = before[name]
                continue
            decision = selector.decide(name)
            decided[name] = decision.remote_topic if decision.selected else None
            if decision.reason is TopicReason.LOOP:
                loops[name] = decision.rule
            elif decision.alias is not None and not selector.policy.is_heartbeats_topic(name):
                cycles[name] = decision.alias
        return Counterparts(selector=selector, decided=decided, loops=loops, cycles=cycles)


_KEPT_CONFIGS_SECONDS: Final = 120.0
"""The highest age of a target topic's known limits, which others may change there."""


class FlowPasses(KnownFlow):
    """The state of one flow, and the steps of a pass. Hold `lock` from `open` to the end of a pass.

    Work that takes long with thousands of topics and ACLs runs in a thread, because the loop also keeps the
    lease. Others are told what was read back from the registry on the target.
    """

    def __init__(
        self,
        flow: ConfigSyncFlow,
        *,
        source: KafkaCluster,
        target: KafkaCluster,
        told: ToldTables,
        claims: DesiredBindings,
        clock: Clock,
        journal: ChangeLog,
        gate: asyncio.Semaphore | None = None,
        neighbours: Sequence[OtherFlow] = (),
    ) -> None:
        """`gate` limits how many flows of the process do a pass at the same time; None = no limit. A hundred
        at once would keep the event loop from renewing leases. `neighbours` are flows of other processes into
        the same target: their registries are read before ACLs and quotas are planned."""
        super().__init__(flow, target=target, claims=claims, clock=clock, journal=journal)
        self._gate = gate or asyncio.Semaphore()
        self.source = source
        self.status = FlowStatus()
        self._observer = Observer(
            flow=flow.flow, source=source, target=target, registry_topic=flow.registry_topic
        )
        self._applier = Applier(target=target, observer=self._observer, clock=clock)
        self._told = told
        self._neighbours = neighbours
        self._blockers = Blockers()
        self._counterparts = Counterparts()
        self._configs_seen_at = float("-inf")
        self._target_cluster: TargetCluster | None = None
        """As read by the last pass that asked the target's brokers."""
        self._source_id = ""
        self._failover = FailoverWatch(target=target, flow=flow.flow)
        self.stored_routes = routes_of(flow.flow, target)
        self._routes: Mapping[str, StoredRoute] = {}

    @property
    def topics(self) -> list[ReplicatedTopic]:
        """Those that the flow replicates now, by name."""
        return [entry for _, entry in sorted(self.memory.entries.items()) if entry.selected]

    @property
    def cycles(self) -> Mapping[str, str]:
        """Topics that the rules select, and the cluster through which each came by its name."""
        return self._counterparts.cycles

    @property
    def known_names(self) -> Collection[str]:
        return {*self.memory.entries, *self._counterparts.decided}

    async def open(self) -> None:
        """Make sure that the registry is known and the flow is valid.

        Raises KafkaError when a cluster does not answer, WireFormatError (REGISTRY_UNREADABLE), StateError
        (SAME_CLUSTER).
        """
        target_id = await self._read_registry()
        self._source_id = await identify(self.source, self.flow.source)
        self._refuse_same_cluster(self._source_id, target_id)
        await self._store.create()

    async def open_registry(self) -> None:
        """As `open`, but ask the source only if it has never answered: rules can be changed while it is
        down."""
        target_id = await self._read_registry()
        known = self._source_id or self.memory.source_cluster_id
        self._refuse_same_cluster(known or await identify(self.source, self.flow.source), target_id)
        await self._store.create()

    async def _read_registry(self) -> str:
        """Return the id of the cluster that has it, the target."""
        target_id = await identify(self.target, self.flow.target)
        if not self.loaded:
            await self._load()
        elif self._may_use_rules_now:
            await self._follow_stored_rules()
        await self._refill()
        return target_id

    def take_over(self) -> None:
        """This process owns the flow from now on. The registry is read again, because another process may
        have written to it meanwhile; rules that the file of this process does not know are put aside."""
        self._is_owner = True
        self.loaded = False
        self._target_cluster = None
        self._store.forget()
        self.stored_routes.distrust()
        self._store.keeps = True

    def stand_by(self) -> None:
        """Another process owns the flow from now on."""
        self._is_owner = self._store.keeps = False

    async def _refill(self) -> None:
        """Write the registry again, and the routes in it, if it was deleted or has lost its tail."""
        if not self._is_owner:
            return
        tables = (self._store, self.stored_routes) if self.rules.routes_records else (self._store,)
        for table in tables:
            await table.load()
            if await table.write_again():
                self._journal.registry_written_again()

    async def know(self) -> None:
        """This process runs the flow."""

    async def know_others(self) -> None:
        """Know the flows of other processes that concern this one: all at once, because some of their
        clusters may be away."""
        async with asyncio.TaskGroup() as group:
            for each in (*self.loop_guard.partners, *self._neighbours):
                group.create_task(each.know(), name=f"know {each.flow}")

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait until both clusters answer and it is this flow's turn; a flow whose cluster is down delays no
        other. Raises as `open`."""
        await self.open()
        await self.know_others()
        async with self._gate:
            yield

    async def look(self, scopes: Collection[Scope]) -> World:
        """Read what these scopes need, within a `turn`. Raises KafkaError when a cluster as a whole does not
        answer."""
        if self.loop_guard.meet():
            self.rules = self.own_rules  # Without the topics that the partners would copy back.
        candidates = set(self.memory.entries)
        listed: frozenset[str] = frozenset()
        if Scope.TOPICS in scopes:
            listed = frozenset(await self.source.list_topics())
            candidates |= listed | self.rules.named_topics
        self._routes = await self._look_at_routes()
        # One that no record takes any more is no topic that was deleted on the source.
        once = {name for name, entry in self.memory.entries.items() if entry.routed_from} - listed
        candidates -= self._routes.keys() | once
        # Whoever may create topics also decides how long patterns take.
        self._counterparts = await asyncio.to_thread(self._counterparts.of, candidates, self.rules.selector)
        now = self._clock.monotonic()
        all_configs = Scope.CONFIGS in scopes
        kept_configs = now - self._configs_seen_at >= _KEPT_CONFIGS_SECONDS
        world = await self._observer.world(
            Ask(
                counterparts={**self._counterparts.selected, **self._remote(self._routes)},
                routes=self._routes,
                scopes=scopes,
                listed=listed,
                known=self.memory.entries,
                target_cluster=self._target_cluster,
                group_patterns=self.rules.acls.follows_removals,
                all_configs=all_configs,
                kept_configs=kept_configs and not all_configs,
            )
        )
        world = replace(
            world,
            topics=replace(world.topics, source_cluster_id=self._source_id),
            failover=await self._failover.look(scopes, self.rules, self.memory),
        )
        self._target_cluster = world.topics.target_cluster
        if all_configs or kept_configs:
            self._configs_seen_at = now
        for scope in scopes:
            problem = world.problem(scope)
            if problem is not None:
                self._journal.problem(scope, problem)
        return world

    async def _look_at_routes(self) -> Mapping[str, StoredRoute]:
        """By name, without those that the rules refuse, or that are topics of their own. Raises as
        `Table.load`."""
        if not self.rules.routes_records:
            return {}
        selector, entries = self.rules.selector, self.memory.entries
        stored = await self.stored_routes.load()
        return {
            name: route
            for name, route in stored.items()
            if selector.selects(route.source_topic)
            and not selector.refuses_route(name)
            and (name not in entries or entries[name].routed_from or not entries[name].target_partition_count)
        }

    def _remote(self, names: Collection[str]) -> dict[str, str]:
        policy, source = self.rules.selector.policy, self.flow.source
        return {name: policy.format_remote_topic(source, name) for name in names}

    async def log_starts(self, partition_counts: Mapping[str, int]) -> Mapping[str, Sequence[int]]:
        """As `Observer.log_starts`."""
        return await self._observer.log_starts(partition_counts)

    async def plan(self, world: World, scopes: Collection[Scope]) -> Plan:
        """Plan what there is to do."""
        self._claims.follow(self.flow, acls=self._syncs(Scope.ACLS), quotas=self._syncs(Scope.QUOTAS))
        acls: list[TranslatedAcl] = []
        if isinstance(world.acls, AclObservation):
            acls = await self.translated(world.acls, world.topics)
        wanted = await asyncio.to_thread(wanted_now, acls, world)
        self.memory = claimed(
            self._claims, self.flow, self.memory, wanted, scopes=self.rules.intervals_seconds
        )
        return await asyncio.to_thread(
            make_plan,
            world,
            self.rules,
            self.memory,
            scopes=scopes,
            now_ms=self._clock.now_ms(),
            claims=self._claims.as_of_now(),
            acls=acls,
        )

    async def translated(self, acls: AclObservation, topics: Observation) -> list[TranslatedAcl]:
        """Translate the source's ACLs.

        A group that is gone from the source keeps its ACLs on the target as long as a pattern covers it,
        because its members may have moved to the target. Topics: see `replicated_topics`.
        """
        kept = {binding.resource_name for binding in self.memory.made_acls if binding.resource_type == GROUP}
        return await asyncio.to_thread(
            translate_acls,
            acls.source,
            self.rules.acls,
            topics=self._granted(replicated_topics(topics, self.memory)),
            groups=acls.groups | kept,
            fences=self._failover.seen.fences,
            routes={name: route.source_topic for name, route in self._routes.items()},
        )

    def _granted(self, topics: Collection[str]) -> frozenset[str]:
        """The topics whose ACLs are synced. In mode mm2 ACLs are only added, which may go both ways."""
        if not self.rules.acls.follows_removals:
            return frozenset(topics)
        return frozenset(name for name in topics if self.rules.leads(name))

    def _loops(self) -> Hold | None:
        loops = self._counterparts.loops
        if not loops:
            return None
        name, rule = next(iter(loops.items()))
        more = f" and {len(loops) - 1} more" if len(loops) > 1 else ""
        return Hold(
            reason=SyncReason.LOOP, message=f"{name}{more} is not copied: {rule.removeprefix('LOOP: ')}"
        )

    async def carry_out(self, plan: Plan, world: World, stop: asyncio.Event) -> Applied:
        """Carry out the plan, store the result, and publish it. Raises KafkaError when the target does not
        answer."""
        known, intended = self.memory, self._intended(plan)
        if intended != known:
            await self._write(intended)
        self.memory = intended  # Also after an error, because any of it may have been done.
        outcome = await self._applier.carry_out(plan, world, stop)
        self.memory = known
        await asyncio.to_thread(self._journal.outcome, outcome)
        await self._remember(plan, outcome, applied=True)
        return outcome

    async def leave(self, plan: Plan, world: World) -> None:
        """Carry out nothing (manual mode); store and publish what was read."""
        self._journal.pending(plan)
        await self._remember(plan, Applied(world=world), applied=False)

    async def keep(self, memory: Memory) -> None:
        """Store this memory, then publish it. Raises KafkaError; then nothing is published."""
        await self._write(memory)
        self.memory = memory
        self._publish()

    def _refuse_same_cluster(self, source_id: str, target_id: str) -> None:
        if source_id == target_id:
            raise StateError(
                f"{self.flow}: both ends are one cluster (id {source_id}), a flow needs two. "
                f"Check {self.flow.source}.bootstrap.servers and {self.flow.target}.bootstrap.servers",
                reason=SyncReason.SAME_CLUSTER,
                metadata={"flow": str(self.flow), "cluster_id": source_id},
            )

    async def _remember(self, plan: Plan, outcome: Applied, *, applied: bool) -> None:
        now_ms = self._clock.now_ms()
        blockers = self._blockers.after(plan, outcome.refused, applied=applied)
        before = self.memory
        after = await asyncio.to_thread(learn, before, plan, outcome, blockers, self.rules, now_ms=now_ms)
        await self._write(after)
        self.memory = after
        self._blockers = blockers
        self._journal.entries(before.entries, after.entries)
        self._publish()
        hold = self._loops() or kept_copies(after.entries)
        if hold is None and self._failover.seen.words:
            hold = Hold(reason=SyncReason.FAILED_OVER, message=self._failover.seen.words)
        status = after_success(
            self.status, plan, outcome, topic_count=after.selected_count, now_ms=now_ms, hold=hold
        )
        self._journal.status(self.status, status, topics=after.selected_count)
        self.status = status

    def _intended(self, plan: Plan) -> Memory:
        """The memory with what is about to be done: nothing is done without being known."""
        now_ms = self._clock.now_ms()
        return self.memory.intending(
            plan.new_acls, plan.new_quotas, deleted_at_ms=[now_ms] * plan.deletion_count
        )

    def refusal(self, action: Action) -> KafkaError | None:
        """Why the target refused it when it was last tried."""
        return self._blockers.refused.get(scope_of(action), {}).get(str(action))

    def _publish(self) -> None:
        self._told.show(registry_name(self.flow), self._store, lambda key: key.kind in TOLD_KINDS)
