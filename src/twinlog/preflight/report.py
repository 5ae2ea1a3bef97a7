"""A configuration's needed rights as commands. Pure."""

from dataclasses import dataclass

from twinlog.config import Configuration
from twinlog.preflight.facts import FlowFacts
from twinlog.preflight.gather import principal_of
from twinlog.preflight.needed_rights import needed_rights
from twinlog.preflight.right import Right, acl_commands, servers_of
from twinlog.selection_configured import topic_selector


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
        flow = FlowFacts(
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
