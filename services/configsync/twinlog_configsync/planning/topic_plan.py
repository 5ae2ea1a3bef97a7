"""Which topics are created and which get partitions (MM2's rules). Pure.

Beyond MM2: a topic that could not work is not created, and has a reason (too few brokers, min.insync.replicas
above the replication factor, a source configuration that may not be read).

Whether the copy of a deleted source topic is deleted: only on request, after a grace period, and a few at
a time. Pure.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from twinlog.config.flow.settings import MIN_ISR, FixedRules, fixed_configs
from twinlog.errors import KafkaError
from twinlog.service.feeds.replicated_topics import ReplicatedTopic, TopicState
from twinlog_configsync.model.actions import (
    WHAT_DELETION,
    WHAT_TOPIC,
    CreateTopic,
    DeleteTopic,
    GrowPartitions,
    Skip,
    TopicAction,
    number_text,
)
from twinlog_configsync.model.hold import Hold
from twinlog_configsync.model.observation import Observation, TargetCluster, TopicPair, is_absent
from twinlog_configsync.model.reasons import SyncReason
from twinlog_configsync.planning.config_rules import ConfigRules, creation_configs


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRules:
    replication_factor: int
    """`replication.factor` of the flow; -1 = the target's default."""
    configs: ConfigRules
    """The configs of every topic, without the fixed values of some."""
    fixed: FixedRules = ()
    create_without_configs: bool = False
    """sync.topic.configs.enabled=false: a topic whose configuration cannot be read gets the target's
    defaults."""

    def configs_of(self, source_topic: str, cluster: TargetCluster) -> ConfigRules:
        """The rules for the configs of a topic's copy, given what this target knows."""
        return replace(
            self.configs,
            known_on_target=cluster.known_configs,
            fixed=fixed_configs(self.fixed, source_topic),
        )


def plan_topics(
    observation: Observation, rules: TopicRules, known: Mapping[str, ReplicatedTopic]
) -> list[TopicAction | Skip]:
    """Creations, added partitions, and what is left out on purpose; sorted by source topic."""
    planned = (
        _plan_one(pair, observation.target_cluster, rules)
        for name, pair in sorted(observation.pairs.items())
        if not pair.stays_away(known.get(name))
    )
    return [action for action in planned if action is not None]


def _plan_one(pair: TopicPair, cluster: TargetCluster, rules: TopicRules) -> TopicAction | Skip | None:
    if isinstance(pair.source, KafkaError):
        return None
    if isinstance(pair.target, KafkaError):
        return (
            _plan_creation(pair, pair.source.partition_count, cluster, rules)
            if is_absent(pair.target)
            else None
        )
    if pair.target.partition_count < pair.source.partition_count:
        return GrowPartitions(
            source_topic=pair.source_topic,
            target_topic=pair.target_topic,
            from_count=pair.target.partition_count,
            to_count=pair.source.partition_count,
        )
    return None


def _plan_creation(
    pair: TopicPair, partition_count: int, cluster: TargetCluster, rules: TopicRules
) -> CreateTopic | Skip:
    factor = cluster.rules.factor(rules.replication_factor)
    if factor > cluster.broker_count:
        return _skip(
            pair,
            SyncReason.REPLICATION_FACTOR_UNSATISFIABLE,
            f"replication factor {factor} needs as many live brokers, the target has {cluster.broker_count}: "
            "lower replication.factor or add brokers",
        )
    if isinstance(pair.source_configs, KafkaError):
        if not rules.create_without_configs:
            return _configs_hidden(pair, pair.source_configs)
        configs = {}
    else:
        wanted = rules.configs_of(pair.source_topic, cluster)
        configs = creation_configs(pair.source_configs, wanted, replication_factor=factor)
    min_isr = int(configs.get(MIN_ISR, cluster.rules.min_isr))
    if cluster.rules.refuse_writes(factor=factor, min_isr=min_isr):
        return _skip(
            pair,
            SyncReason.MIN_ISR_ABOVE_REPLICATION_FACTOR,
            f"the target's brokers ask for {min_isr} in-sync replicas but replication.factor is {factor}: "
            "brokers before Kafka 3.7 refuse every write then. Raise replication.factor, or lower"
            " min.insync.replicas of the brokers",
        )
    return CreateTopic(
        source_topic=pair.source_topic,
        target_topic=pair.target_topic,
        partition_count=partition_count,
        replication_factor=rules.replication_factor,
        configs=configs,
    )


def _configs_hidden(pair: TopicPair, error: KafkaError) -> Skip:
    if error.retriable:
        return _skip(pair, error.reason, f"its configuration on the source cannot be read now: {error}")
    return _skip(
        pair,
        SyncReason.CONFIGS_UNAUTHORIZED,
        f"its configuration on the source cannot be read ({error}): grant DescribeConfigs on it"
        " (`twinlog preflight` prints the command), or set sync.topic.configs.enabled=false to create it with"
        " the target's defaults",
    )


def _skip(pair: TopicPair, reason: str, rule: str) -> Skip:
    return Skip(
        source_topic=pair.source_topic,
        target_topic=pair.target_topic,
        what=WHAT_TOPIC,
        rule=rule,
        reason=reason,
    )


HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRules:
    enabled: bool
    grace_seconds: float
    """How long the source topic must have been missing."""
    max_per_hour: int


def plan_deletes(
    observation: Observation,
    entries: Mapping[str, ReplicatedTopic],
    rules: DeleteRules,
    *,
    deleted_at_ms: Collection[int],
    now_ms: int,
    hold: Hold | None = None,
) -> list[DeleteTopic | Skip]:
    """The deletions that are due, oldest first; those that are not due yet are left out with the reason.

    `hold` tells why nothing may be deleted now; `deleted_at_ms` is when Twinlog recently deleted copies, or
    was about to. A topic is only deleted if it has the id in the registry, and while the source itself
    reports that its topic does not exist.
    """
    if not rules.enabled:
        return []
    budget = rules.max_per_hour - sum(now_ms - at_ms < HOUR_MS for at_ms in deleted_at_ms)
    gone = sorted(
        (entry.deleted_at_ms, name, entry)
        for name, entry in entries.items()
        if entry.state is TopicState.DELETED_AT_SOURCE and entry.deleted_at_ms is not None and entry.selected
    )
    planned: list[DeleteTopic | Skip] = []
    for since_ms, name, entry in gone:
        pair = observation.pairs.get(name)
        if pair is None or not is_absent(pair.source) or isinstance(pair.target, KafkaError):
            continue
        if entry.kept:
            planned.append(_left(entry, f"{entry.kept}: {entry.message}; its copy is kept"))
        elif hold is not None:
            planned.append(_left(entry, f"{hold.reason}: {hold.message}"))
        elif not pair.target.topic_id:
            planned.append(_left(entry, "the target has no topic ids, by which a copy is known (Kafka 2.8)"))
        elif pair.target.topic_id != entry.target_topic_id:
            planned.append(_left(entry, "the target topic is another one than the registry knows"))
        elif now_ms - since_ms < rules.grace_seconds * 1000:
            planned.append(
                _left(entry, f"deleted on the source, kept for {number_text(rules.grace_seconds)} s")
            )
        elif budget <= 0:
            planned.append(_left(entry, f"{rules.max_per_hour} topics were deleted within the last hour"))
        else:
            budget -= 1
            planned.append(
                DeleteTopic(
                    source_topic=name,
                    target_topic=pair.target_topic,
                    target_topic_id=entry.target_topic_id,
                    rule="deleted on the source (twinlog.sync.topic.deletes.enabled)",
                )
            )
    return planned


def _left(entry: ReplicatedTopic, rule: str) -> Skip:
    return Skip(
        source_topic=entry.source_topic, target_topic=entry.target_topic, what=WHAT_DELETION, rule=rule
    )
