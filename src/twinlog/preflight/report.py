"""A configuration's needed rights as commands. Pure."""

from twinlog.config import Configuration
from twinlog.preflight.facts import FlowFacts
from twinlog.preflight.gather import principal_of
from twinlog.preflight.needed_rights import needed_rights
from twinlog.preflight.right import Right, acl_commands, servers_of
from twinlog.selection_configured import topic_selector


def needed_acl_commands(configuration: Configuration) -> list[str]:
    """Lines for a shell: the kafka-acls commands for all enabled flows, one for each resource.

    Rights that are needed for one purpose only follow under a comment with the purpose.
    """
    servers: dict[str, str] = {}
    rights: dict[str, list[Right]] = {"": []}
    for config in configuration.enabled_flows:
        servers |= servers_of(config)
        flow = FlowFacts(
            config=config,
            selector=topic_selector(config),
            source_principal=principal_of(config.clients.source_admin),
            target_principal=principal_of(config.clients.target_admin),
        )
        for right in needed_rights(flow):
            rights.setdefault(right.purpose, []).append(right)
    needed = {_place(right) for right in rights[""]}
    lines = acl_commands(rights.pop(""), servers)
    for purpose, each in rights.items():
        commands = acl_commands([right for right in each if _place(right) not in needed], servers)
        if commands:
            lines += [f"# {purpose}:", *commands]
    return lines


def _place(right: Right) -> tuple[str, str, str, str]:
    return right.cluster, right.principal, right.resource, right.operation
