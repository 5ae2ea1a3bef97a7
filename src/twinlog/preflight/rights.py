"""Finds the missing rights of the service's principals, the commands that grant them, and rights that could
not be checked. Pure.

One right, and the kafka-acls command that grants it. Pure.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeGuard

from twinlog.config import FlowConfig
from twinlog.errors import KafkaError
from twinlog.kafka.reasons import KafkaReason
from twinlog.model import ClusterAlias, Flow
from twinlog.policy.internal_topics import transactional_id_prefix
from twinlog.preflight.facts import (
    CheckedFlow,
    ClusterFacts,
    Finding,
    InternalTopic,
    Operations,
    TopicFacts,
    error,
    fine,
    warning,
)

# Reports what preflight could not check. Pure.


def not_checked(flow: CheckedFlow, what: str, why: object, remedy: str = "") -> Finding:
    """A warning that nothing is known of `what`."""
    return warning(str(flow.flow), "not checked", f"{what}: {why}", remedy)


CLUSTER: Final = "--cluster"
EVERY_GROUP: Final = "--group '*'"
ELECTIONS: Final = "--group 'twinlog-' --resource-pattern-type prefixed"
_SOMEBODY: Final = "User:<the principal of your properties>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """One right of one principal."""

    cluster: ClusterAlias
    principal: str
    resource: str
    """The kafka-acls arguments that name it: `--topic orders`, `--cluster`."""
    operation: str
    """In Kafka's name, upper case."""
    purpose: str = ""
    """Its purpose, for a right without which the flow works; otherwise empty."""


def right_of(
    cluster: ClusterAlias, principal: str, resource: str, operation: str, purpose: str = ""
) -> Right:
    """A right of a principal; `principal` is empty when the properties do not show it."""
    return Right(
        cluster=cluster,
        principal=principal or _SOMEBODY,
        resource=resource,
        operation=operation,
        purpose=purpose,
    )


def group_resource(name: str) -> str:
    """The resource of one group. The name may contain anything, so it is quoted for a shell."""
    quoted = name.replace("'", "'\\''")
    return f"--group '{quoted}'"


def transactions_of(flow: Flow) -> str:
    """The resource of the flow's transactional ids."""
    return f"--transactional-id '{transactional_id_prefix(flow)}' --resource-pattern-type prefixed"


def servers_of(config: FlowConfig) -> dict[ClusterAlias, str]:
    """Bootstrap servers of both ends, in the form for commands."""
    return {
        config.flow.source: ",".join(config.clients.source_admin.bootstrap_servers),
        config.flow.target: ",".join(config.clients.target_admin.bootstrap_servers),
    }


def acl_commands(rights: Iterable[Right], servers: Mapping[ClusterAlias, str]) -> list[str]:
    """The commands that grant these rights, one for each resource, in the order of the rights."""
    operations: dict[tuple[ClusterAlias, str, str], dict[str, None]] = {}
    for right in rights:
        place = (right.cluster, right.principal, right.resource)
        operations.setdefault(place, {})[right.operation] = None
    return [
        f"kafka-acls.sh --bootstrap-server {servers[cluster]} --command-config admin.properties --add "
        f"--allow-principal '{principal}' {_options(names)} {resource}"
        for (cluster, principal, resource), names in operations.items()
    ]


def _options(operations: Iterable[str]) -> str:
    """In kafka-acls' form: DESCRIBE_CONFIGS is `--operation DescribeConfigs`."""
    spelled = ("".join(word.capitalize() for word in each.split("_")) for each in operations)
    return " ".join(f"--operation {name}" for name in spelled)


# Checks rights on groups: the applications' groups on both ends, and those that elect owners. Pure.
#
# A group that a principal may not DESCRIBE is not listed to it unless it may DESCRIBE the cluster;
# findings mention that.

FAILING_OVER: Final = "needed only for failover, which commits offsets of groups there"
FAILING_BACK: Final = "needed only for failback, which commits offsets of groups there"
ELECTING: Final = "without it a second process with this flow cannot stand by"
_NAMED: Final = 5
"""Most groups named one by one; above that, the command covers all groups."""
_GROUP_RIGHTS_FORBIDDEN: Final = "GROUP_UNAUTHORIZED"


def missing_group_rights(flow: CheckedFlow) -> Iterator[Right]:
    """Needed rights on groups that are missing."""
    source, target = flow.flow.source, flow.flow.target
    if any(_lacks(operations, "READ") for operations in flow.groups.elections.values()):
        yield right_of(target, flow.target_principal, ELECTIONS, "READ", ELECTING)
    settings = flow.config.checkpoint
    if not settings.enabled:
        return
    for operation, purpose in (("DESCRIBE", ""), ("READ", FAILING_BACK)):
        for resource in _lacking(flow.groups.on_source, operation):
            yield right_of(source, flow.source_principal, resource, operation, purpose)
    needed = {"READ": "" if settings.sync_group_offsets_enabled else FAILING_OVER}
    if settings.sync_group_deletes_enabled:
        needed["DELETE"] = ""
    for operation, purpose in needed.items():
        for resource in _lacking(flow.groups.on_target, operation):
            yield right_of(target, flow.target_principal, resource, operation, purpose)


def unchecked_groups(flow: CheckedFlow) -> Iterator[Finding]:
    """Rights on groups that are not known."""
    groups, source = flow.groups, flow.flow.source
    if groups.unlisted is not None:
        yield not_checked(flow, f"rights on groups: the groups of {source} cannot be listed", groups.unlisted)
    elif not groups.sees_all:
        yield not_checked(
            flow,
            f"groups of {source} on which {flow.source_principal or 'the principal'} has no right",
            f"{source} does not list them, so they are not translated; {len(groups.on_source)} groups that"
            " the rules take can be seen",
            "grant DESCRIBE on all groups to translate, or on their prefixes",
        )
    if groups.not_asked:
        yield not_checked(
            flow,
            f"rights on {groups.not_asked} more groups",
            f"only the first {len(groups.on_source)} were asked about",
        )
    for alias, answers in (
        (source, groups.on_source),
        (flow.flow.target, {**groups.elections, **groups.on_target}),
    ):
        unknown = {
            name: answer
            for name, answer in answers.items()
            if isinstance(answer, KafkaError) and answer.reason != _GROUP_RIGHTS_FORBIDDEN
        }
        if unknown:
            first, answer = next(iter(unknown.items()))
            more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
            yield not_checked(flow, f"rights on group {first}{more} of {alias}", answer)


def _lacking(groups: Mapping[str, Operations], operation: str) -> list[str]:
    """The resources that lack a right: the groups themselves, or all groups when they are many."""
    names = [name for name, operations in groups.items() if _lacks(operations, operation)]
    return [group_resource(name) for name in names] if len(names) <= _NAMED else [EVERY_GROUP]


def _lacks(operations: Operations, operation: str) -> bool:
    if isinstance(operations, KafkaError):
        return operations.reason == _GROUP_RIGHTS_FORBIDDEN
    return operation not in operations


FENCING: Final = "needed only for failover --fence"
_FORBIDDEN: Final = frozenset({"TOPIC_UNAUTHORIZED", "CLUSTER_UNAUTHORIZED"})
_LETS_WRITERS_BE_IDEMPOTENT: Final = (2, 8)
"""The first release in which WRITE on a topic implies IDEMPOTENT_WRITE (KIP-679)."""


def check_rights(flow: CheckedFlow, clusters: Mapping[ClusterAlias, ClusterFacts]) -> Iterator[Finding]:
    """One finding for each resource with missing rights, whose remedy is the command that grants them, and
    one for each failed check."""
    servers = servers_of(flow.config)
    missing: dict[tuple[ClusterAlias, str, str, str], list[Right]] = {}
    for right in missing_rights(flow, clusters):
        place = (right.cluster, right.principal, right.resource, right.purpose)
        missing.setdefault(place, []).append(right)
    for (cluster, principal, resource, purpose), rights in missing.items():
        operations = ", ".join(right.operation for right in rights)
        message = f"{principal} lacks {operations} on {resource} of {cluster}"
        make = warning if purpose else error
        words = f"{message}: {purpose}" if purpose else message
        yield make(str(flow.flow), "rights", words, acl_commands(rights, servers)[0])
    unknown = list(_unchecked(flow))
    yield from unknown
    if not missing and not unknown:
        yield fine(
            str(flow.flow),
            "rights",
            "both clusters grant the necessary rights on topics, groups, transactional ids and clusters",
        )


def missing_rights(flow: CheckedFlow, clusters: Mapping[ClusterAlias, ClusterFacts]) -> Iterator[Right]:
    """Needed rights that are missing. Those with a purpose are needed only for it."""
    yield from _on_clusters(flow, clusters)
    for internal in flow.internal:
        yield from _on_internal_topic(flow, internal)
    for name, told in flow.unseen.items():
        if told.reason in _FORBIDDEN:
            yield from _on_source_topic(flow, name, told)
    for topic in flow.topics:
        yield from _on_source_topic(flow, topic.name, topic.source_operations)
        yield from _on_target_topic(flow, topic)
    yield from missing_group_rights(flow)
    if flow.transactions is False:
        yield right_of(flow.flow.target, flow.target_principal, transactions_of(flow.flow), "WRITE")


def _unchecked(flow: CheckedFlow) -> Iterator[Finding]:
    ends = (
        (flow.flow.source, flow.source_operations),
        (flow.flow.target, flow.target_operations),
    )
    for alias, granted in ends:
        if isinstance(granted, KafkaError):
            yield not_checked(flow, f"rights on the cluster {alias} itself", granted)
    for internal in flow.internal:
        if _is_unknown(internal.operations):
            yield not_checked(flow, f"rights on {internal.name} of {internal.cluster}", internal.operations)
    for name, told in flow.unseen.items():
        if _is_unknown(told):
            yield not_checked(flow, f"whether {name} of {flow.flow.source} exists", told)
    for topic in flow.topics:
        if _is_unknown(topic.source_operations):
            yield not_checked(flow, f"rights on {topic.name} of {flow.flow.source}", topic.source_operations)
        if not isinstance(topic.target, KafkaError) and isinstance(topic.target_operations, KafkaError):
            about = f"rights on {topic.target_name} of {flow.flow.target}"
            yield not_checked(flow, about, topic.target_operations)
    yield from unchecked_groups(flow)
    if isinstance(flow.transactions, KafkaError):
        about = f"the right to WRITE on {transactions_of(flow.flow)} of {flow.flow.target}"
        yield not_checked(flow, about, flow.transactions)
    for client, principal in flow.other_principals.items():
        yield not_checked(
            flow,
            f"rights of {principal}, the principal of the {client}",
            "preflight only checks the rights of the admin client",
            "grant it the rights that --acls prints",
        )


def _is_unknown(operations: frozenset[str] | KafkaError) -> TypeGuard[KafkaError]:
    """Whether nothing is known of a topic: neither its absence nor a missing right."""
    return isinstance(operations, KafkaError) and operations.reason not in (
        _FORBIDDEN | {KafkaReason.TOPIC_UNKNOWN}
    )


def _on_clusters(flow: CheckedFlow, clusters: Mapping[ClusterAlias, ClusterFacts]) -> Iterator[Right]:
    config = flow.config
    source: dict[str, str] = {}
    target: dict[str, str] = {"DESCRIBE_CONFIGS": "without it the brokers' defaults are unknown"}
    if config.checkpoint.enabled:
        source |= {"DESCRIBE": FENCING, "ALTER": FENCING}
    if config.configsync.sync_acls_enabled:
        source["DESCRIBE"] = "ACLs are not copied without it"
        target |= dict.fromkeys(("DESCRIBE", "ALTER"), "ACLs are not copied without it")
    if config.configsync.sync_quotas_enabled:
        source["DESCRIBE_CONFIGS"] = "without it quotas are not copied"
        target["ALTER_CONFIGS"] = ""
    if _is_older(clusters[flow.flow.target], _LETS_WRITERS_BE_IDEMPOTENT):
        target["IDEMPOTENT_WRITE"] = ""
    writes_on_source = any(each.cluster == flow.flow.source and each.is_written for each in flow.internal)
    if writes_on_source and _is_older(clusters[flow.flow.source], _LETS_WRITERS_BE_IDEMPOTENT):
        source["IDEMPOTENT_WRITE"] = ""
    for alias, principal, needed, granted in (
        (flow.flow.source, flow.source_principal, source, flow.source_operations),
        (flow.flow.target, flow.target_principal, target, flow.target_operations),
    ):
        if isinstance(granted, KafkaError):
            continue
        for operation, purpose in sorted(needed.items()):
            if operation not in granted:
                yield right_of(alias, principal, CLUSTER, operation, purpose)


def _is_older(cluster: ClusterFacts, release: tuple[int, ...]) -> bool:
    return tuple(int(part) for part in cluster.release.split(".")) < release


def _on_source_topic(flow: CheckedFlow, name: str, granted: Operations) -> Iterator[Right]:
    needed = {"DESCRIBE": "", "READ": "", "DESCRIBE_CONFIGS": ""}
    if not flow.config.configsync.sync_configs_enabled:
        needed["DESCRIBE_CONFIGS"] = "without it the limits of the topic are unknown"
    if _is_unknown(granted):
        return
    if isinstance(granted, KafkaError):
        granted = frozenset()
    for operation, purpose in needed.items():
        if operation not in granted:
            resource = f"--topic '{name}'"
            yield right_of(flow.flow.source, flow.source_principal, resource, operation, purpose)


def _on_target_topic(flow: CheckedFlow, topic: TopicFacts) -> Iterator[Right]:
    config = flow.config
    name = f"--topic '{topic.target_name}'"
    if isinstance(topic.target, KafkaError):
        for operation in _of_the_unseen(topic.target, topic.creation):
            yield right_of(flow.flow.target, flow.target_principal, name, operation)
        return
    needed = {
        "DESCRIBE": "",
        "WRITE": "",
        "READ": "without it no group offsets are committed on it, and a new copy is translated",
        "ALTER": "without it no partitions are added",
        "DESCRIBE_CONFIGS": "without it its configs are not synced",
    }
    if config.checkpoint.sync_group_offsets_enabled:
        needed["READ"] = ""
    if config.configsync.sync_configs_enabled:
        needed["ALTER_CONFIGS"] = ""
    if config.configsync.follow_deletes:
        needed["DELETE"] = ""
    if isinstance(topic.target_operations, KafkaError):
        return
    for operation, purpose in needed.items():
        if operation not in topic.target_operations:
            yield right_of(flow.flow.target, flow.target_principal, name, operation, purpose)


def _on_internal_topic(flow: CheckedFlow, topic: InternalTopic) -> Iterator[Right]:
    principal = flow.source_principal if topic.cluster == flow.flow.source else flow.target_principal
    name = f"--topic '{topic.name}'"
    if isinstance(topic.operations, KafkaError):
        lacking = list(_of_the_unseen(topic.operations, topic.creation))
    else:
        lacking = [each for each in ("DESCRIBE", "READ", "WRITE") if each not in topic.operations]
    for operation in lacking:
        if operation in ("CREATE", "WRITE") and not topic.is_written:
            continue
        yield right_of(topic.cluster, principal, name, operation, topic.purpose)


def _of_the_unseen(seeing: KafkaError, creation: KafkaError | None) -> Iterator[str]:
    """Rights that are certainly missing on a topic that does not exist or is hidden. READ and WRITE imply
    DESCRIBE: a principal that is told of a missing ACL has none of them."""
    if creation is not None and creation.reason in _FORBIDDEN:
        yield "CREATE"
    if seeing.reason in _FORBIDDEN:
        yield from ("DESCRIBE", "READ", "WRITE")
