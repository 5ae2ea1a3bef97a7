"""The rights a configuration needs, as commands. Pure."""

from twinlog.config import Configuration
from twinlog.preflight.facts import FlowFacts
from twinlog.preflight.gather import principal_of
from twinlog.preflight.rights import Right, acl_commands, all_rights, servers_of
from twinlog.selection_configured import topic_selector


def needed_acl_commands(configuration: Configuration) -> list[str]:
    """The kafka-acls commands for everything that the enabled flows do, one for each resource."""
    rights: list[Right] = []
    servers: dict[str, str] = {}
    for config in configuration.enabled_flows:
        servers |= servers_of(config)
        rights += all_rights(
            FlowFacts(
                config=config,
                selector=topic_selector(config),
                source_principal=principal_of(config.clients.source_admin),
                target_principal=principal_of(config.clients.target_admin),
            )
        )
    return acl_commands(rights, servers)
