"""A configuration's needed rights as commands. Pure."""

from dataclasses import dataclass
from typing import Final

from twinlog.config import Configuration
from twinlog.model import ClusterAlias
from twinlog.preflight.adoption import fills_offsets
from twinlog.preflight.facts import CheckedFlow, own_topics
from twinlog.preflight.gather import principal_of
from twinlog.preflight.rights import (
    CLUSTER,
    ELECTIONS,
    EVERY_GROUP,
    FAILING_BACK,
    FAILING_OVER,
    FENCING,
    Right,
    acl_commands,
    right_of,
    servers_of,
    transactions_of,
)
from twinlog.selection_configured import topic_selector

# Lists every right that a flow needs, for a principal that has none yet. Pure.

PRESERVING: Final = "needed only for the source's offsets in copies of topics whose log does not start at 0"
_OLD_BROKERS = "needed only by brokers before 2.8"


def needed_rights(flow: CheckedFlow) -> list[Right]:
    """Uses prefixes and patterns instead of single topics. Rights that the flow needs come first, then those
    for one purpose each."""
    rights = [*_for_topics(flow), *_for_groups(flow), *_for_clusters(flow)]
    return sorted(rights, key=lambda right: right.purpose != "")


def _for_topics(flow: CheckedFlow) -> list[Right]:
    config, policy = flow.config, flow.selector.policy
    source = flow.flow.source
    prefix = policy.format_remote_topic(source, "")
    copies = (policy.format_remote_topic(source, "x"), *(topic.target_name for topic in flow.topics))
    # Other policies may name copies without a common beginning.
    is_prefix = prefix and all(name.startswith(prefix) for name in copies)
    remote = f"--topic '{prefix}' --resource-pattern-type prefixed" if is_prefix else "--topic '*'"
    on_copies = ["CREATE", "DESCRIBE", "READ", "WRITE", "ALTER", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"]
    if config.configsync.follow_deletes:
        on_copies.append("DELETE")
    return [
        *(_on(flow, source, "--topic '*'", each) for each in ("DESCRIBE", "READ", "DESCRIBE_CONFIGS")),
        *(_on(flow, flow.flow.target, remote, each) for each in on_copies),
        *(
            [_on(flow, flow.flow.target, remote, "DELETE", PRESERVING)]
            if "DELETE" not in on_copies and fills_offsets(flow)
            else []
        ),
        *(
            _on(flow, topic.cluster, f"--topic '{topic.name}'", each)
            for topic in own_topics(config, policy)
            for each in ("CREATE", "DESCRIBE", "READ", "WRITE")
        ),
    ]


def _for_groups(flow: CheckedFlow) -> list[Right]:
    source, target, settings = flow.flow.source, flow.flow.target, flow.config.checkpoint
    # Among several processes with a flow, the groups elect the owner.
    rights = [_on(flow, target, ELECTIONS, "READ")]
    if settings.enabled:
        reading = "" if settings.sync_group_offsets_enabled else FAILING_OVER
        rights += [
            _on(flow, source, EVERY_GROUP, "DESCRIBE"),
            _on(flow, target, EVERY_GROUP, "READ", reading),
            _on(flow, source, EVERY_GROUP, "READ", FAILING_BACK),
        ]
        if settings.sync_group_deletes_enabled:
            rights.append(_on(flow, target, EVERY_GROUP, "DELETE"))
    return rights


def _for_clusters(flow: CheckedFlow) -> list[Right]:
    config, source, target = flow.config, flow.flow.source, flow.flow.target
    rights: list[Right] = []
    if config.source.exactly_once:
        rights += [_on(flow, target, transactions_of(flow.flow), each) for each in ("DESCRIBE", "WRITE")]
        rights.append(_on(flow, target, CLUSTER, "IDEMPOTENT_WRITE", _OLD_BROKERS))
    else:
        rights.append(_on(flow, target, CLUSTER, "IDEMPOTENT_WRITE"))
    if any(topic.cluster == source for topic in own_topics(config, flow.selector.policy)):
        rights.append(_on(flow, source, CLUSTER, "IDEMPOTENT_WRITE", _OLD_BROKERS))
    rights.append(_on(flow, target, CLUSTER, "DESCRIBE_CONFIGS"))
    if config.configsync.sync_acls_enabled:
        rights.append(_on(flow, source, CLUSTER, "DESCRIBE"))
        rights += [_on(flow, target, CLUSTER, each) for each in ("DESCRIBE", "ALTER")]
    if config.configsync.sync_quotas_enabled:
        rights.append(_on(flow, source, CLUSTER, "DESCRIBE_CONFIGS"))
        rights.append(_on(flow, target, CLUSTER, "ALTER_CONFIGS"))
    if config.checkpoint.enabled:
        rights += [_on(flow, source, CLUSTER, each, FENCING) for each in ("DESCRIBE", "ALTER")]
    return rights


def _on(flow: CheckedFlow, cluster: ClusterAlias, resource: str, operation: str, purpose: str = "") -> Right:
    principal = flow.source_principal if cluster == flow.flow.source else flow.target_principal
    return right_of(cluster, principal, resource, operation, purpose)


@dataclass(frozen=True, slots=True, kw_only=True)
class AclCommand:
    """A kafka-acls command."""

    command: str
    purpose: str = ""
    """What its rights are needed for, if the flow works without them; otherwise empty."""


def needed_acl_commands(configuration: Configuration) -> list[str]:
    """Lines for a shell: `needed_acls`, with each purpose as a comment above its commands."""
    lines: list[str] = []
    purpose = ""
    for each in needed_acls(configuration):
        if each.purpose != purpose:
            purpose = each.purpose
            lines.append(f"# {purpose}:")
        lines.append(each.command)
    return lines


def needed_acls(configuration: Configuration) -> list[AclCommand]:
    """The kafka-acls commands for all enabled flows, one for each resource. Rights that are needed for one
    purpose only come last, purpose by purpose."""
    servers: dict[str, str] = {}
    rights: dict[str, list[Right]] = {"": []}
    for config in configuration.enabled_flows:
        servers |= servers_of(config)
        flow = CheckedFlow(
            config=config,
            selector=topic_selector(config),
            source_principal=principal_of(config.clients.source_admin),
            target_principal=principal_of(config.clients.target_admin),
        )
        for right in needed_rights(flow):
            rights.setdefault(right.purpose, []).append(right)
    needed = {_place(right) for right in rights[""]}
    return [
        AclCommand(command=command, purpose=purpose)
        for purpose, each in rights.items()
        for command in acl_commands(
            [right for right in each if not purpose or _place(right) not in needed], servers
        )
    ]


def _place(right: Right) -> tuple[str, str, str, str]:
    return right.cluster, right.principal, right.resource, right.operation
