"""What is created and grown, and what is left out with a reason."""

from collections.abc import Mapping

import pytest

from twinlog.config.flow.settings import MIN_ISR
from twinlog.errors import FatalKafkaError, KafkaError, TransientKafkaError
from twinlog.kafka.ports import ConfigEntry, ConfigSource, TopicDescription
from twinlog.policy.new_topics import BROKERS_FACTOR, BrokerRules
from twinlog_configsync.model.actions import CreateTopic, GrowPartitions, Skip, TopicAction
from twinlog_configsync.model.observation import Configs, Observation, TargetCluster, TopicPair
from twinlog_configsync.model.reasons import SyncReason
from twinlog_configsync.planning.config_rules import ConfigRules
from twinlog_configsync.planning.topic_plan import TopicRules, plan_topics

ABSENT = FatalKafkaError("no such topic", reason="TOPIC_UNKNOWN", code=3)
AWAY = TransientKafkaError("no answer in time", reason="KAFKA_TIMEOUT", code=7)
HIDDEN = FatalKafkaError("no right", reason="TOPIC_UNAUTHORIZED", code=29)
RETENTION = ConfigEntry(name="retention.ms", value="60000", source=ConfigSource.TOPIC)
CONFIG_RULES = ConfigRules(excluded_by=lambda _name: None)


def topic(name: str, partitions: int = 3) -> TopicDescription:
    return TopicDescription(
        name=name, topic_id="id", partition_count=partitions, replication_factor=1, internal=False
    )


def plan(
    source: TopicDescription | KafkaError,
    target: TopicDescription | KafkaError,
    *,
    configs: Configs = (RETENTION,),
    cluster: TargetCluster | None = None,
    replication_factor: int = 1,
    create_without_configs: bool = False,
) -> list[TopicAction | Skip]:
    pair = TopicPair(
        source_topic="orders",
        target_topic="A.orders",
        source=source,
        target=target,
        source_configs=configs,
    )
    return plan_topics(
        Observation(pairs={"orders": pair}, target_cluster=cluster or TargetCluster(broker_count=1)),
        TopicRules(
            replication_factor=replication_factor,
            configs=CONFIG_RULES,
            create_without_configs=create_without_configs,
        ),
        known={},
    )


def creation(configs: dict[str, str], replication_factor: int = 1) -> CreateTopic:
    return CreateTopic(
        source_topic="orders",
        target_topic="A.orders",
        partition_count=3,
        replication_factor=replication_factor,
        configs=configs,
    )


def test_a_missing_topic_is_created_with_the_sources_partitions_and_configs() -> None:
    assert plan(topic("orders"), ABSENT) == [creation({"retention.ms": "60000"})]


def test_fewer_partitions_grow_to_the_sources_count() -> None:
    assert plan(topic("orders", 5), topic("A.orders", 3)) == [
        GrowPartitions(source_topic="orders", target_topic="A.orders", from_count=3, to_count=5)
    ]


@pytest.mark.parametrize("target_count", [3, 8])
def test_as_many_partitions_or_more_are_left_alone(target_count: int) -> None:
    assert plan(topic("orders", 3), topic("A.orders", target_count)) == []


@pytest.mark.parametrize(
    ("source", "target"),
    [(ABSENT, ABSENT), (AWAY, ABSENT), (HIDDEN, ABSENT), (topic("orders"), AWAY), (topic("orders"), HIDDEN)],
)
def test_nothing_is_planned_on_what_cannot_be_seen(
    source: TopicDescription | KafkaError, target: TopicDescription | KafkaError
) -> None:
    assert plan(source, target) == []


def reason_of(actions: list[TopicAction | Skip]) -> str:
    (action,) = actions
    assert isinstance(action, Skip)
    return action.reason


def test_too_few_live_brokers_for_the_replication_factor() -> None:
    actions = plan(topic("orders"), ABSENT, replication_factor=2)
    assert reason_of(actions) == SyncReason.REPLICATION_FACTOR_UNSATISFIABLE
    assert "lower replication.factor" in str(actions[0])


def _cluster(broker_count: int, configs: Mapping[str, str]) -> TargetCluster:
    return TargetCluster(broker_count=broker_count, rules=BrokerRules(configs=configs))


def test_minus_one_is_passed_on_and_judged_by_the_brokers_default() -> None:
    cluster = _cluster(3, {BROKERS_FACTOR: "3", MIN_ISR: "2"})
    assert plan(topic("orders"), ABSENT, cluster=cluster, replication_factor=-1) == [
        creation({"retention.ms": "60000"}, replication_factor=-1)
    ]
    degraded = _cluster(2, {BROKERS_FACTOR: "3"})
    assert (
        reason_of(plan(topic("orders"), ABSENT, cluster=degraded, replication_factor=-1))
        == SyncReason.REPLICATION_FACTOR_UNSATISFIABLE
    )


def test_a_topic_that_would_refuse_every_write_is_not_created() -> None:
    cluster = _cluster(3, {MIN_ISR: "2"})
    assert (
        reason_of(plan(topic("orders"), ABSENT, cluster=cluster))
        == SyncReason.MIN_ISR_ABOVE_REPLICATION_FACTOR
    )


def test_brokers_that_ask_for_no_more_replicas_than_there_are_get_the_topic() -> None:
    """As MirrorMaker 2 does: since Kafka 3.7 they take the writes."""
    cluster = _cluster(3, {MIN_ISR: "2", "telemetry.max.bytes": "1"})
    assert plan(topic("orders"), ABSENT, cluster=cluster) == [creation({"retention.ms": "60000"})]


def test_hidden_configs_keep_a_topic_from_being_created_blindly() -> None:
    assert reason_of(plan(topic("orders"), ABSENT, configs=HIDDEN)) == SyncReason.CONFIGS_UNAUTHORIZED
    assert reason_of(plan(topic("orders"), ABSENT, configs=AWAY)) == "KAFKA_TIMEOUT"
    assert plan(topic("orders"), ABSENT, configs=HIDDEN, create_without_configs=True) == [creation({})]
