"""Facts of clusters as preflight reads them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from twinlog.config import Configuration
from twinlog.errors import FatalKafkaError, TransientKafkaError
from twinlog.kafka.ports import ConfigEntry, ConfigSource, TopicDescription
from twinlog.preflight.checks import judge
from twinlog.preflight.facts import CheckedFlow, ClusterFacts, Facts, Finding, Severity, TopicFacts
from twinlog.selection_configured import topic_selector

ABSENT = FatalKafkaError("no such topic", reason="TOPIC_UNKNOWN", code=3)


NO_GROUP = FatalKafkaError("an ACL for the group is missing", reason="GROUP_UNAUTHORIZED", code=30)


AWAY = TransientKafkaError("no answer in time", reason="KAFKA_TIMEOUT")


FORBIDDEN = FatalKafkaError("an ACL for the topic is missing", reason="TOPIC_UNAUTHORIZED", code=29)


EVERYTHING = frozenset(
    {
        "ALTER",
        "ALTER_CONFIGS",
        "CREATE",
        "DELETE",
        "DESCRIBE",
        "DESCRIBE_CONFIGS",
        "IDEMPOTENT_WRITE",
        "READ",
        "WRITE",
    }
)


IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"


Configure = Callable[[Mapping[str, str]], Configuration]


def cluster(alias: str, **changes: object) -> ClusterFacts:
    facts = ClusterFacts(
        alias=alias,
        cluster_id=f"id-{alias}",
        release="4.0",
        broker_count=3,
        broker_configs={"default.replication.factor": "3", "min.insync.replicas": "1"},
        topics=frozenset({"orders"}),
    )
    return replace(facts, **changes)  # type: ignore[arg-type]


def described(name: str) -> TopicDescription:
    return TopicDescription(name=name, topic_id="id", partition_count=1, replication_factor=1, internal=False)


def topic(name: str = "orders", *, target_name: str | None = None, **changes: object) -> TopicFacts:
    facts = TopicFacts(
        name=name,
        target_name=target_name or f"A.{name}",
        source=described(name),
        target=ABSENT,
        source_operations=EVERYTHING,
    )
    return replace(facts, **changes)  # type: ignore[arg-type]


def facts_of(
    configuration: Configuration,
    topics: Mapping[str, Sequence[TopicFacts]] | None = None,
    clusters: Mapping[str, ClusterFacts] | None = None,
    **changes: object,
) -> Facts:
    """`topics` by flow; one topic `orders` in every flow when left out."""
    flows = [
        CheckedFlow(
            config=config,
            selector=topic_selector(config),
            topics=(topics or {}).get(str(config.flow), () if topics else (topic(),)),
            source_operations=EVERYTHING,
            target_operations=EVERYTHING,
        )
        for config in configuration.enabled_flows
    ]
    return Facts(
        clusters={alias: (clusters or {}).get(alias, cluster(alias)) for alias in "ABC"},
        flows=[replace(flow, **changes) for flow in flows],  # type: ignore[arg-type]
    )


def troubles(facts: Facts) -> list[Finding]:
    return [finding for finding in judge(facts) if finding.level is not Severity.OK]


def the_trouble(facts: Facts) -> Finding:
    (finding,) = troubles(facts)
    return finding


def entry(name: str, value: str, source: ConfigSource = ConfigSource.STATIC_BROKER) -> ConfigEntry:
    return ConfigEntry(name=name, value=value, source=source)


STAMPED = entry("message.timestamp.type", "LogAppendTime")


CREATED = entry("message.timestamp.type", "CreateTime", ConfigSource.DEFAULT)


ITS_TOPIC = replace(STAMPED, source=ConfigSource.TOPIC)
