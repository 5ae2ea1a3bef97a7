"""Keeps one flow in sync: look at both clusters, plan, apply, remember, tell. The one loop of a flow."""

import asyncio
from collections.abc import Collection, Mapping
from typing import Final

from twinlog.clock import Clock
from twinlog.errors import KafkaError, StateError, TransientKafkaError, TwinlogError
from twinlog.kafka.ports import KafkaCluster
from twinlog.model import ClusterAlias, Flow
from twinlog.service.runtime import Backoff, finish_or_cancel, wait_or_stop
from twinlog_configsync.actions import CreateTopic, DeleteConfig, GrowPartitions, SetConfig, Skip
from twinlog_configsync.apply import Applier, Outcome
from twinlog_configsync.board import TopicBoard
from twinlog_configsync.config import ConfigSyncFlow, FlowRules
from twinlog_configsync.config_rules import creation_configs
from twinlog_configsync.flow_status import FlowStatus, after_failure, after_success
from twinlog_configsync.journal import Journal
from twinlog_configsync.memory import Memory, recall
from twinlog_configsync.observation import Observation, TopicPair
from twinlog_configsync.observe import Observer
from twinlog_configsync.plan import Plan, make_plan
from twinlog_configsync.reasons import Reason
from twinlog_configsync.registry import Obstacle, fold
from twinlog_configsync.schedule import Schedule, Scope
from twinlog_configsync.store import RegistryStore

_ANSWER_SECONDS: Final = 10.0
"""How long a cluster may take to say that it is there."""


class FlowSync:
    """One flow. Everything known of it is in the registry on the target before it is on the board."""

    def __init__(
        self,
        flow: ConfigSyncFlow,
        *,
        source: KafkaCluster,
        target: KafkaCluster,
        board: TopicBoard,
        clock: Clock,
        backoff: Backoff,
        journal: Journal,
    ) -> None:
        self._rules: FlowRules = flow.rules
        self._source = source
        self._target = target
        self._store = RegistryStore(
            cluster=target,
            topic=flow.registry_topic,
            replication_factor=flow.registry_replication_factor,
        )
        self._observer = Observer(source=source, target=target, registry_topic=flow.registry_topic)
        self._applier = Applier(target=target, observer=self._observer, clock=clock)
        self._board = board
        self._clock = clock
        self._backoff = backoff
        self._journal = journal
        self._schedule = Schedule(interval_seconds=flow.rules.intervals_seconds)
        self._memory = Memory()
        self._loaded = False
        self._status = FlowStatus()
        self._topic_obstacles: Mapping[str, Obstacle] = {}
        self._config_obstacles: Mapping[str, Obstacle] = {}

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
                self._schedule.done(scopes, started=started)
                if Scope.TOPICS in scopes and not self._rules.refresh_enabled:
                    self._schedule.once(Scope.TOPICS)
                wait_seconds = self._schedule.next_in_seconds(self._clock.monotonic())
            await wait_or_stop(stop, wait_seconds)

    async def sync(self, scopes: Collection[Scope], stop: asyncio.Event) -> None:
        """Bring these parts of the target in step with the source once.

        What is wrong with one topic is its state. Raises TwinlogError when a cluster as a whole does not
        answer, or the flow cannot be; what was known stays.
        """
        target_id = await _identify(self._target, self.flow.target)
        if not self._loaded:
            await self._load()
        self._refuse_same_cluster(await _identify(self._source, self.flow.source), target_id)
        await self._store.create()
        observation = await self._observer.pairs(await self._wanted_topics(scopes))
        plan = make_plan(
            self.flow, observation, self._rules.topics, scopes=scopes, last_set=self._memory.last_set
        )
        outcome = await self._applier.carry_out(plan, observation, stop)
        self._journal.outcome(outcome)
        await self._remember(plan, outcome)

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

    async def _remember(self, plan: Plan, outcome: Outcome) -> None:
        """Store what is known now, then tell it."""
        self._note_obstacles(plan, outcome)
        now_ms = self._clock.now_ms()
        before = self._memory
        after = Memory(
            entries=fold(
                before.entries,
                outcome.observation,
                {**self._config_obstacles, **self._topic_obstacles},
                settled=before.settled,
                now_ms=now_ms,
            ),
            last_set=self._last_set(plan, outcome),
            settled_at_ms=now_ms if before.settled_at_ms is None else before.settled_at_ms,
        )
        await self._store.put(after.records())
        self._memory = after
        self._journal.entries(before.entries, after.entries)
        self._publish()
        status = after_success(after.selected_count, now_ms=now_ms)
        self._journal.status(self._status, status, topics=after.selected_count)
        self._status = status

    def _note_obstacles(self, plan: Plan, outcome: Outcome) -> None:
        """Keep what stood in the way until the same part is synced again."""
        topics: dict[str, Obstacle] = {}
        configs: dict[str, Obstacle] = {}
        for action in plan.actions:
            if isinstance(action, Skip) and action.reason:
                topics[action.source_topic] = action
        for refusal in outcome.refused:
            match refusal.action:
                case CreateTopic() | GrowPartitions():
                    topics[refusal.action.source_topic] = refusal.error
                case SetConfig() | DeleteConfig():
                    configs[refusal.action.source_topic] = refusal.error
        if Scope.TOPICS in plan.scopes:
            self._topic_obstacles = topics
        if Scope.CONFIGS in plan.scopes:
            self._config_obstacles = configs

    def _last_set(self, plan: Plan, outcome: Outcome) -> dict[str, Mapping[str, str]]:
        known = dict(self._memory.last_set)
        for action in outcome.applied:
            if isinstance(action, CreateTopic):
                known[action.source_topic] = dict(action.configs)
        if Scope.CONFIGS in plan.scopes:
            for name, pair in outcome.observation.pairs.items():
                wanted = self._overrides(pair, outcome.observation)
                if wanted is not None and name not in self._config_obstacles:
                    known[name] = wanted
        return known

    def _overrides(self, pair: TopicPair, observation: Observation) -> dict[str, str] | None:
        """What the counterpart's overrides are after a sync; None when there was none to be synced."""
        if isinstance(pair.target, KafkaError) or isinstance(pair.source_configs, KafkaError):
            return None
        return creation_configs(
            pair.source_configs,
            self._rules.topics.configs_on(observation.target_cluster),
            replication_factor=pair.target.replication_factor,
        )

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
