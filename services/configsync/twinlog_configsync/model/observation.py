"""The state of both clusters at one moment: the input of every decision. Values only."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from twinlog.errors import KafkaError
from twinlog.kafka.ports import AclBinding, ConfigEntry, QuotaEntity, TopicDescription
from twinlog.policy.new_topics import BrokerRules
from twinlog.service.feeds.replicated_topics import ReplicatedTopic, StoredRoute
from twinlog_configsync.model.schedule import Scope

TOPIC_UNKNOWN = "TOPIC_UNKNOWN"
"""The reason for a topic that does not exist."""

Configs = Sequence[ConfigEntry] | KafkaError


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetCluster:
    """What the target's brokers report about new topics."""

    broker_count: int
    rules: BrokerRules = field(default_factory=BrokerRules)
    known_configs: Collection[str] | None = None
    """The topic properties that the target's Kafka has; None while not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPair:
    """One source topic and its copy. The flow's rules select the name, whether or not the topic exists."""

    source_topic: str
    target_topic: str
    source: TopicDescription | KafkaError
    target: TopicDescription | KafkaError
    source_configs: Configs = ()
    target_configs: Configs = ()
    route: StoredRoute | None = None
    """Not None: `source` is the topic whose records take it."""

    @property
    def routed_from(self) -> str:
        return "" if self.route is None else self.route.source_topic

    def stays_away(self, known: ReplicatedTopic | None) -> bool:
        """Whether it is the topic of a route that was deleted on the target, and no record has taken the
        route since. It is looked for all the same: a broker that lags may deny a topic that is there."""
        return self.route is not None and is_absent(self.target) and self.route.was_there(known)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Every topic that the flow's rules select, including those that only the registry knows."""

    pairs: Mapping[str, TopicPair] = field(default_factory=dict)
    """By source topic."""
    listed: frozenset[str] = frozenset()
    """Every topic that the source lists, selected or not; empty when it was not read."""
    target_cluster: TargetCluster
    source_cluster_id: str = ""
    """"" when it was not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Why a part of a flow could not be read, or has nothing to do."""

    reason: str
    message: str
    failed: bool = True
    """False: no retry is necessary (a cluster without an authorizer)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AclObservation:
    """The ACLs of both clusters."""

    source: frozenset[AclBinding]
    target: frozenset[AclBinding]
    groups: frozenset[str] = frozenset()
    """Groups of the source, selected or not; only read if patterns are expanded to them."""
    users_missing: Collection[tuple[str, str]] = ()
    """SCRAM users (name, mechanism) of the source that the target does not have, as far as both list them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaObservation:
    """The client quotas of both clusters."""

    source: Mapping[QuotaEntity, Mapping[str, float]]
    target: Mapping[QuotaEntity, Mapping[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Everything that one pass has read."""

    topics: Observation
    acls: AclObservation | Problem | None = None
    """None when it was not read."""
    quotas: QuotaObservation | Problem | None = None
    failover: str = ""
    """Which failover is running or in effect; only read if the pass may take something away."""

    def problem(self, scope: Scope) -> Problem | None:
        """Why this part could not be read, or has nothing to do."""
        seen = {Scope.ACLS: self.acls, Scope.QUOTAS: self.quotas}.get(scope)
        return seen if isinstance(seen, Problem) else None


def is_absent(topic: TopicDescription | KafkaError) -> bool:
    """True when the cluster reports that the topic does not exist; False when it exists, or it is not
    known."""
    return isinstance(topic, KafkaError) and topic.reason == TOPIC_UNKNOWN
