"""What the service's principals may not do and would have to, and the commands that let them. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from twinlog.config import FlowConfig
from twinlog.errors import KafkaError
from twinlog.model import ClusterAlias
from twinlog.policy.internal_topics import OffsetSyncsLocation as HostedLocation
from twinlog.policy.internal_topics import (
    configsync_topic,
    offset_syncs_topic,
    source_offsets_topic,
    sync_history_topic,
)
from twinlog.policy.replication import ReplicationPolicy
from twinlog.preflight.facts import FlowFacts, InternalTopic, TopicFacts
from twinlog.preflight.findings import Finding, error, fine, warning

_SOMEBODY: Final = "User:<the principal of your properties>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """One right of one principal."""

    cluster: ClusterAlias
    principal: str
    resource: str
    """Arguments of kafka-acls that name it: `--topic orders`, `--cluster`."""
    operation: str
    """In Kafka's own words, upper case."""


def acl_commands(rights: Iterable[Right], servers: Mapping[ClusterAlias, str]) -> list[str]:
    """The commands that grant these rights: one for each resource, in the order in which they come."""
    operations: dict[tuple[ClusterAlias, str, str], dict[str, None]] = {}
    for right in rights:
        place = (right.cluster, right.principal, right.resource)
        operations.setdefault(place, {})[right.operation] = None
    return [
        f"kafka-acls.sh --bootstrap-server {servers[cluster]} --command-config admin.properties --add "
        f"--allow-principal '{principal}' {_options(names)} {resource}"
        for (cluster, principal, resource), names in operations.items()
    ]


def check_rights(flow: FlowFacts) -> Iterator[Finding]:
    """One finding for each resource with missing rights; the remedy is the command that grants them."""
    servers = servers_of(flow.config)
    missing: dict[tuple[ClusterAlias, str, bool], list[Right]] = {}
    for right, optional in missing_rights(flow):
        missing.setdefault((right.cluster, right.resource, optional), []).append(right)
    for (cluster, resource, optional), rights in missing.items():
        operations = ", ".join(right.operation for right in rights)
        message = f"{rights[0].principal} lacks {operations} on {resource} of {cluster}"
        make = warning if optional else error
        yield make(str(flow.flow), "rights", message, acl_commands(rights, servers)[0])
    if not missing:
        yield fine(str(flow.flow), "rights", "both ends allow what is needed on topics and clusters")


def servers_of(config: FlowConfig) -> dict[ClusterAlias, str]:
    """Bootstrap servers of both ends, as commands take them."""
    return {
        config.flow.source: ",".join(config.clients.source_admin.bootstrap_servers),
        config.flow.target: ",".join(config.clients.target_admin.bootstrap_servers),
    }


def missing_rights(flow: FlowFacts) -> Iterator[tuple[Right, bool]]:
    """Rights that are needed and not there; True beside one that the flow can go on without."""
    yield from _on_clusters(flow)
    for internal in flow.internal:
        yield from _on_internal_topic(flow, internal)
    for topic in flow.topics:
        yield from _on_source_topic(flow, topic)
        yield from _on_target_topic(flow, topic)


def _on_clusters(flow: FlowFacts) -> Iterator[tuple[Right, bool]]:
    config = flow.config
    source: dict[str, bool] = {}
    target: dict[str, bool] = {"DESCRIBE_CONFIGS": True}
    if config.configsync.sync_acls_enabled:
        source["DESCRIBE"] = True
        target |= {"DESCRIBE": True, "ALTER": True}
    if config.configsync.sync_quotas_enabled:
        source["DESCRIBE_CONFIGS"] = True
        target["ALTER_CONFIGS"] = True
    if not config.source.exactly_once:
        target["IDEMPOTENT_WRITE"] = False
    for alias, principal, needed, granted in (
        (flow.flow.source, flow.source_principal, source, flow.source_operations),
        (flow.flow.target, flow.target_principal, target, flow.target_operations),
    ):
        if isinstance(granted, KafkaError):
            continue
        for operation, optional in sorted(needed.items()):
            if operation not in granted:
                yield _right(alias, principal, "--cluster", operation), optional


def _on_source_topic(flow: FlowFacts, topic: TopicFacts) -> Iterator[tuple[Right, bool]]:
    needed: Mapping[str, bool] = {"DESCRIBE": False, "READ": False, "DESCRIBE_CONFIGS": False}
    if not flow.config.configsync.sync_configs_enabled:
        needed = {**needed, "DESCRIBE_CONFIGS": True}
    granted = topic.source_operations
    if isinstance(granted, KafkaError):
        granted = frozenset()
    for operation, optional in needed.items():
        if operation not in granted:
            yield (
                _right(flow.flow.source, flow.source_principal, f"--topic '{topic.name}'", operation),
                optional,
            )


def _on_target_topic(flow: FlowFacts, topic: TopicFacts) -> Iterator[tuple[Right, bool]]:
    name = f"--topic '{topic.target_name}'"
    if isinstance(topic.target, KafkaError):
        for operation in _of_the_unseen(topic.target, topic.creation):
            yield _right(flow.flow.target, flow.target_principal, name, operation), False
        return
    needed = {"DESCRIBE": False, "WRITE": False, "READ": True, "ALTER": True, "DESCRIBE_CONFIGS": True}
    if flow.config.configsync.sync_configs_enabled:
        needed["ALTER_CONFIGS"] = False
    if isinstance(topic.target_operations, KafkaError):
        return
    for operation, optional in needed.items():
        if operation not in topic.target_operations:
            yield _right(flow.flow.target, flow.target_principal, name, operation), optional


def _on_internal_topic(flow: FlowFacts, topic: InternalTopic) -> Iterator[tuple[Right, bool]]:
    principal = flow.source_principal if topic.cluster == flow.flow.source else flow.target_principal
    name = f"--topic '{topic.name}'"
    if isinstance(topic.operations, KafkaError):
        for operation in _of_the_unseen(topic.operations, topic.creation):
            yield _right(topic.cluster, principal, name, operation), False
        return
    for operation in ("DESCRIBE", "READ", "WRITE"):
        if operation not in topic.operations:
            yield _right(topic.cluster, principal, name, operation), False


def _of_the_unseen(seeing: KafkaError, creation: KafkaError | None) -> Iterator[str]:
    """What is certainly missing for a topic that does not exist, or is hidden. Who has READ or WRITE may
    DESCRIBE as well: who is told that an ACL is missing has none of them.
    """
    if creation is not None and creation.reason in _FORBIDDEN:
        yield "CREATE"
    if seeing.reason in _FORBIDDEN:
        yield from ("DESCRIBE", "READ", "WRITE")


def _options(operations: Iterable[str]) -> str:
    """As kafka-acls takes them: DESCRIBE_CONFIGS is `--operation DescribeConfigs`."""
    spelled = ("".join(word.capitalize() for word in each.split("_")) for each in operations)
    return " ".join(f"--operation {name}" for name in spelled)


_FORBIDDEN: Final = frozenset({"TOPIC_UNAUTHORIZED", "CLUSTER_UNAUTHORIZED"})


def _right(cluster: ClusterAlias, principal: str, resource: str, operation: str) -> Right:
    return Right(cluster=cluster, principal=principal or _SOMEBODY, resource=resource, operation=operation)


def internal_topics(config: FlowConfig, policy: ReplicationPolicy) -> list[tuple[ClusterAlias, str]]:
    """The mirror's own topics of a flow, each with the cluster it is on."""
    source, target = config.flow.source, config.flow.target
    topics = [(target, source_offsets_topic(source)), (target, configsync_topic(source))]
    if config.source.offset_syncs.enabled:
        location = HostedLocation(config.source.offset_syncs.location.value)
        syncs = offset_syncs_topic(policy, config.flow, location)
        topics.append((syncs.cluster, syncs.topic))
    if config.checkpoint.enabled:
        topics.append((target, policy.checkpoints_topic(source)))
    if config.heartbeat.enabled:
        topics += [(source, policy.heartbeats_topic()), (target, policy.heartbeats_topic())]
    return topics


def all_rights(flow: FlowFacts) -> list[Right]:
    """Every right a flow needs, for a new principal: with prefixes and patterns instead of single topics."""
    config, policy = flow.config, flow.selector.policy
    source, target = flow.flow.source, flow.flow.target
    reader, writer = flow.source_principal, flow.target_principal
    copies = policy.format_remote_topic(source, "")
    remote = f"--topic '{copies}' --resource-pattern-type prefixed" if copies else "--topic '*'"
    rights = [
        *(_right(source, reader, "--topic '*'", each) for each in ("DESCRIBE", "READ", "DESCRIBE_CONFIGS")),
        *(
            _right(target, writer, remote, each)
            for each in ("CREATE", "DESCRIBE", "READ", "WRITE", "ALTER", "DESCRIBE_CONFIGS", "ALTER_CONFIGS")
        ),
    ]
    if config.checkpoint.enabled:
        rights.append(_right(source, reader, "--group '*'", "DESCRIBE"))
    if config.checkpoint.sync_group_offsets_enabled:
        rights.append(_right(target, writer, "--group '*'", "READ"))
    internal = internal_topics(config, policy)
    if config.checkpoint.enabled:
        # Nothing depends on it, but the checkpoint service starts sooner with it.
        internal.append((target, sync_history_topic(source)))
    for cluster, topic in internal:
        principal = reader if cluster == source else writer
        rights += [
            _right(cluster, principal, f"--topic '{topic}'", each)
            for each in ("CREATE", "DESCRIBE", "READ", "WRITE")
        ]
    if config.source.exactly_once:
        resource = f"--transactional-id 'twinlog-{source}-{target}-' --resource-pattern-type prefixed"
        rights += [_right(target, writer, resource, each) for each in ("DESCRIBE", "WRITE")]
    else:
        rights.append(_right(target, writer, "--cluster", "IDEMPOTENT_WRITE"))
    rights.append(_right(target, writer, "--cluster", "DESCRIBE_CONFIGS"))
    # Of several processes with a flow, the groups elect the one that works.
    rights.append(_right(target, writer, "--group 'twinlog-' --resource-pattern-type prefixed", "READ"))
    if config.configsync.sync_acls_enabled:
        rights += [_right(source, reader, "--cluster", "DESCRIBE")]
        rights += [_right(target, writer, "--cluster", each) for each in ("DESCRIBE", "ALTER")]
    if config.configsync.sync_quotas_enabled:
        rights += [_right(source, reader, "--cluster", "DESCRIBE_CONFIGS")]
        rights += [_right(target, writer, "--cluster", "ALTER_CONFIGS")]
    return rights
