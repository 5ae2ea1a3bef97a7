"""One right, and the kafka-acls command that grants it. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from twinlog.config import FlowConfig
from twinlog.model import ClusterAlias, Flow
from twinlog.policy.internal_topics import transactional_id_prefix
from twinlog.preflight.facts import Finding, FlowFacts, warning

# Reports what preflight could not check. Pure.


def not_checked(flow: FlowFacts, what: str, why: object, remedy: str = "") -> Finding:
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
