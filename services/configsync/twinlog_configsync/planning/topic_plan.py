"""Which topics are created and which get partitions (MM2's rules). Pure.

Beyond MM2: a topic that could not work is not created, and has a reason (too few brokers, min.insync.replicas
above the replication factor, a source configuration that may not be read).
"""

from dataclasses import dataclass, replace

from twinlog.config.flow.settings import MIN_ISR, FixedRules, fixed_configs
from twinlog.errors import KafkaError
from twinlog_configsync.model.actions import WHAT_TOPIC, CreateTopic, GrowPartitions, Skip, TopicAction
from twinlog_configsync.model.observation import Observation, TargetCluster, TopicPair, is_absent
from twinlog_configsync.model.reasons import Reason
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


def plan_topics(observation: Observation, rules: TopicRules) -> list[TopicAction | Skip]:
    """Creations, added partitions, and what is left out on purpose; sorted by source topic."""
    planned = (
        _plan_one(pair, observation.target_cluster, rules) for _, pair in sorted(observation.pairs.items())
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
    factor = effective_replication_factor(rules.replication_factor, cluster)
    if factor > cluster.broker_count:
        return _skip(
            pair,
            Reason.REPLICATION_FACTOR_UNSATISFIABLE,
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
    min_isr = int(configs.get(MIN_ISR, cluster.min_insync_replicas))
    if min_isr > factor and not cluster.bounds_min_insync_replicas:
        return _skip(
            pair,
            Reason.MIN_ISR_ABOVE_REPLICATION_FACTOR,
            f"the target's brokers ask for {min_isr} in-sync replicas but replication.factor is {factor}: "
            "no write would succeed. Raise replication.factor, or lower min.insync.replicas of the brokers",
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
        Reason.CONFIGS_UNAUTHORIZED,
        f"its configuration on the source cannot be read ({error}): grant DescribeConfigs on it, or set "
        "sync.topic.configs.enabled=false to create it with the target's defaults",
    )


def effective_replication_factor(configured: int, cluster: TargetCluster) -> int:
    return cluster.default_replication_factor if configured == -1 else configured


def _skip(pair: TopicPair, reason: str, rule: str) -> Skip:
    return Skip(
        source_topic=pair.source_topic,
        target_topic=pair.target_topic,
        what=WHAT_TOPIC,
        rule=rule,
        reason=reason,
    )
