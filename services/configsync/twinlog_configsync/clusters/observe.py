"""Reads both clusters into an Observation. It does all the reading, and decides only which names to read."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from twinlog.acl_rights import is_group_pattern
from twinlog.batches import BATCH_LIMITS
from twinlog.errors import KafkaError
from twinlog.kafka.ports import AclBinding, KafkaCluster, OffsetSpec, TopicDescription
from twinlog.model import Flow, TopicPartition
from twinlog.policy.new_topics import BrokerRules
from twinlog.service.feeds.replicated_topics import ReplicatedTopic, StoredRoute
from twinlog_configsync.model.observation import (
    AclObservation,
    Configs,
    Observation,
    Problem,
    QuotaObservation,
    TargetCluster,
    TopicPair,
    World,
)
from twinlog_configsync.model.reasons import SyncReason
from twinlog_configsync.model.schedule import Scope

Described = Mapping[str, TopicDescription | KafkaError]

_KEPT_OF_SOURCE: Final = ("cleanup.policy",)
_KEPT_OF_TARGET: Final = (*BATCH_LIMITS, "compression.type", "message.timestamp.type")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What a pass has to read."""

    counterparts: Mapping[str, str]
    """Source name → target name."""
    scopes: Collection[Scope]
    routes: Mapping[str, StoredRoute] = field(default_factory=dict)
    """Those of the source names that are routes."""
    listed: frozenset[str] = frozenset()
    """The topics that the source lists."""
    known: Mapping[str, ReplicatedTopic] = field(default_factory=dict)
    """The entries of the registry, by source topic."""
    group_patterns: bool = False
    """Whether the ACL mode expands patterns of groups; only then are the source's groups read."""
    all_configs: bool = True
    """False: read only configs that are missing in the registry. Reading all of them is most of the cost of a
    pass over thousands of topics."""
    kept_configs: bool = False
    """With `all_configs=False`: of the other topics read the few properties that the registry keeps."""
    target_cluster: TargetCluster | None = None
    """What the target's brokers reported earlier. It is read again with `all_configs`, and to create a
    topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observer:
    """Reads both clusters of one flow. Every method is bounded by the clients' own time-outs."""

    flow: Flow
    source: KafkaCluster
    target: KafkaCluster
    registry_topic: str
    """A topic that always exists on the target: its properties are those that the target's Kafka knows."""

    async def world(self, ask: Ask) -> World:
        """Read everything that is requested.

        Raises KafkaError when a cluster as a whole does not answer. A problem with one topic, or with ACLs
        and quotas, is part of the result.
        """
        acls = await self._acls(ask) if Scope.ACLS in ask.scopes else None
        quotas = await self._quotas() if Scope.QUOTAS in ask.scopes else None
        return World(topics=await self._topics(ask), acls=acls, quotas=quotas)

    async def _topics(self, ask: Ask) -> Observation:
        def real(name: str) -> str:
            route = ask.routes.get(name)
            return name if route is None else route.source_topic

        async def configs_of(names: Collection[str], keys: Collection[str] = ()) -> Mapping[str, Configs]:
            found = await self._configs(self.source, set(map(real, names)), keys)
            return {name: found[real(name)] for name in names if real(name) in found}

        described = await self._described(self.source, set(map(real, ask.counterparts)))
        source = {name: described[real(name)] for name in ask.counterparts}
        target = await self._described(self.target, ask.counterparts.values())
        hidden = _hidden_on_source(ask, source, target)
        source_configs = await configs_of(hidden)
        known_cluster = None if ask.all_configs or _to_create(source, target, ask) else ask.target_cluster
        copies = _hidden_on_target(ask, target)
        if known_cluster is None:
            copies.add(self.registry_topic)
        target_configs = await self._configs(self.target, copies)
        if ask.kept_configs:
            others = _existing(source) - hidden
            source_configs = {**await configs_of(others, _KEPT_OF_SOURCE), **source_configs}
            others = _existing(target) - copies
            target_configs = {**await self._configs(self.target, others, _KEPT_OF_TARGET), **target_configs}
        pairs = {
            source_name: TopicPair(
                source_topic=source_name,
                target_topic=target_name,
                source=source[source_name],
                target=target[target_name],
                source_configs=source_configs.get(source_name, ()),
                target_configs=target_configs.get(target_name, ()),
                route=ask.routes.get(source_name),
            )
            for source_name, target_name in ask.counterparts.items()
        }
        cluster = known_cluster or await self._target_cluster(target_configs[self.registry_topic])
        return Observation(pairs=pairs, listed=ask.listed, target_cluster=cluster)

    async def _acls(self, ask: Ask) -> AclObservation | Problem:
        sides: list[frozenset[AclBinding]] = []
        for alias, cluster in ((self.flow.source, self.source), (self.flow.target, self.target)):
            try:
                bindings = await cluster.describe_acls()
            except KafkaError as error:
                return Problem(reason=error.reason, message=f"ACLs of {alias}: {error}")
            if bindings is None:
                message = f"{alias} has no authorizer: there are no ACLs to sync"
                return Problem(reason=SyncReason.NO_AUTHORIZER, message=message, failed=False)
            sides.append(frozenset(bindings))
        groups: frozenset[str] = frozenset()
        if ask.group_patterns and any(is_group_pattern(binding) for binding in sides[0]):
            try:
                groups = frozenset(await self.source.list_groups())
            except KafkaError as error:
                return Problem(reason=error.reason, message=f"groups of {self.flow.source}: {error}")
        return AclObservation(
            source=sides[0], target=sides[1], groups=groups, users_missing=await self._users_missing()
        )

    async def _users_missing(self) -> list[tuple[str, str]]:
        """For display only: a cluster that does not list its users counts as having none."""
        try:
            users, present = await self.source.scram_users(), await self.target.scram_users()
        except KafkaError:
            return []
        return sorted(
            (user, mechanism)
            for user, mechanisms in users.items()
            for mechanism in mechanisms - present.get(user, frozenset())
        )

    async def _quotas(self) -> QuotaObservation | Problem:
        try:
            return QuotaObservation(
                source=await self.source.describe_client_quotas(),
                target=await self.target.describe_client_quotas(),
            )
        except KafkaError as error:
            return Problem(reason=error.reason, message=f"client quotas: {error}")

    async def targets_again(self, observation: Observation, source_topics: Collection[str]) -> Observation:
        """The same observation, but with the counterparts of `source_topics` read again."""
        names = {observation.pairs[topic].target_topic for topic in source_topics}
        described = await self._described(self.target, names)
        configs = await self._configs(self.target, _existing(described))
        fresh = {
            topic: replace(
                pair, target=described[pair.target_topic], target_configs=configs.get(pair.target_topic, ())
            )
            for topic, pair in observation.pairs.items()
            if topic in source_topics
        }
        return replace(observation, pairs={**observation.pairs, **fresh})

    async def log_starts(self, partition_counts: Mapping[str, int]) -> Mapping[str, Sequence[int]]:
        """The first offset of each partition of source topics, without those that cannot be read. Raises
        KafkaError."""
        partitions = [
            TopicPartition(topic, number)
            for topic, count in partition_counts.items()
            for number in range(count)
        ]
        found = await self.source.list_offsets(OffsetSpec.EARLIEST, partitions) if partitions else {}
        starts: dict[str, list[int]] = {topic: [] for topic in partition_counts}
        for partition, start in found.items():
            if not isinstance(start, KafkaError):
                starts[partition.topic].append(start)
        return starts

    async def _described(self, cluster: KafkaCluster, names: Collection[str]) -> Described:
        return await cluster.describe_topics(names) if names else {}

    async def _configs(
        self, cluster: KafkaCluster, names: Collection[str], keys: Collection[str] = ()
    ) -> Mapping[str, Configs]:
        return await cluster.describe_topic_configs(names, keys=keys) if names else {}

    async def _target_cluster(self, registry_configs: Configs) -> TargetCluster:
        brokers = (await self.target.presence()).brokers
        try:
            configs = await self.target.describe_broker_configs()
        except KafkaError as error:
            if error.retriable:
                raise
            configs = ()  # Without the right to read the brokers' settings, assume Kafka's defaults.
        return TargetCluster(
            broker_count=len(brokers),
            rules=BrokerRules(configs={entry.name: entry.value for entry in configs if entry.value}),
            known_configs=(
                None
                if isinstance(registry_configs, KafkaError)
                else frozenset(entry.name for entry in registry_configs)
            ),
        )


def _existing(described: Described) -> set[str]:
    return {name for name, topic in described.items() if not isinstance(topic, KafkaError)}


def _to_create(source: Described, target: Described, ask: Ask) -> bool:
    """Whether an existing topic has no counterpart, or none that is visible."""
    return any(isinstance(target[ask.counterparts[name]], KafkaError) for name in _existing(source))


def _hidden_on_source(ask: Ask, source: Described, target: Described) -> set[str]:
    """Existing topics whose configs have to be read: always those that the target lacks, because they are
    created with them."""
    hidden: set[str] = set()
    for name in _existing(source):
        topic, entry = source[name], ask.known.get(name)
        is_known = (
            entry is not None
            and bool(entry.source_cleanup_policy)
            and not isinstance(topic, KafkaError)
            and topic.topic_id == entry.source_topic_id
            and not isinstance(target[ask.counterparts[name]], KafkaError)
        )
        if ask.all_configs or not is_known:
            hidden.add(name)
    return hidden


def _hidden_on_target(ask: Ask, target: Described) -> set[str]:
    """Existing counterparts whose limits the registry does not know."""
    known = {entry.target_topic: entry.target_topic_id for entry in ask.known.values()}
    existing = {name: topic for name, topic in target.items() if not isinstance(topic, KafkaError)}
    return {name for name, topic in existing.items() if ask.all_configs or known.get(name) != topic.topic_id}
