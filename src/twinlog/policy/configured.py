"""The replication policy of a properties file."""

from collections.abc import Mapping

from twinlog.errors import ConfigError
from twinlog.policy.other_policies import other_policy
from twinlog.policy.rename import RENAME_KEY, parse_renames, reversible
from twinlog.policy.renaming import RenamingPolicy, Route
from twinlog.policy.replication import (
    DEFAULT_SEPARATOR,
    DefaultReplicationPolicy,
    IdentityReplicationPolicy,
    ReplicationPolicy,
)
from twinlog.transforms import Chain, RegexRouter, chain_from_config

POLICY_CLASS_KEY = "replication.policy.class"
SEPARATOR_KEY = "replication.policy.separator"
INTERNAL_SEPARATOR_KEY = "replication.policy.internal.topic.separator.enabled"
SOURCE_ALIAS_KEY = "source.cluster.alias"
CLUSTERS_KEY = "clusters"

DEFAULT_POLICY_CLASS = "org.apache.kafka.connect.mirror.DefaultReplicationPolicy"
IDENTITY_POLICY_CLASS = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"


def policy_from_config(config: Mapping[str, str]) -> ReplicationPolicy:
    """Build the policy of a flow or client from its resolved configuration.

    `replication.policy.internal.topic.separator.enabled` counts only beside an explicit separator (KIP-949).
    Raises ConfigError for an unknown class, an unusable separator, a switch that is neither true nor false,
    or invalid rules of `twinlog.topic.rename` (RENAME_REFUSED).
    """
    renames, routes = parse_renames(config.get(RENAME_KEY, "")), _routes(chain_from_config(config))
    base = _base(config)
    return RenamingPolicy(base=base, renames=renames, routes=routes) if renames.rules or routes else base


def _routes(chain: Chain) -> tuple[Route, ...]:
    """The routers of a chain. Raises ConfigError for one whose names cannot be read back: failback,
    checkpoints and the search for loops lead from a copy to its topic."""
    routes = []
    for step in chain.steps:
        router, key = step.transform, f"transforms.{step.name}"
        if isinstance(router, RegexRouter):
            try:
                back = reversible(router.regex_written, router.replacement_written)
            except ConfigError as error:
                raise _unroutable(key, str(error).removeprefix(f"{RENAME_KEY}: ")) from error
            routes.append(Route(step, back))
    return tuple(routes)


def _unroutable(key: str, why: str) -> ConfigError:
    return ConfigError(f"{key}: {why}", reason="RENAME_REFUSED", metadata={"key": key})


def _base(config: Mapping[str, str]) -> ReplicationPolicy:
    separator = config.get(SEPARATOR_KEY, DEFAULT_SEPARATOR)
    internal_separator = separator if _switch(config, INTERNAL_SEPARATOR_KEY) else DEFAULT_SEPARATOR
    aliases = tuple(alias for each in config.get(CLUSTERS_KEY, "").split(",") if (alias := each.strip()))
    name = config.get(POLICY_CLASS_KEY, DEFAULT_POLICY_CLASS).strip()
    if name == DEFAULT_POLICY_CLASS:
        return DefaultReplicationPolicy(
            separator=separator, internal_separator=internal_separator, aliases=aliases
        )
    if name == IDENTITY_POLICY_CLASS:
        return IdentityReplicationPolicy(
            separator=separator,
            internal_separator=internal_separator,
            aliases=aliases,
            source_cluster_alias=config.get(SOURCE_ALIAS_KEY),
        )
    other = other_policy(name, config, config.get(SOURCE_ALIAS_KEY, "source"))
    if other is not None:
        return other
    raise ConfigError(
        f"{POLICY_CLASS_KEY}: there is no policy {name!r}; "
        f"use {DEFAULT_POLICY_CLASS}, {IDENTITY_POLICY_CLASS},"
        " or that of an installed package (docs/policies.md)",
        metadata={"key": POLICY_CLASS_KEY, "value": name},
    )


def _switch(config: Mapping[str, str], key: str) -> bool:
    text = config.get(key, "true").strip().lower()
    if text not in ("true", "false"):
        raise ConfigError(f"{key}: expected true or false, got {config[key]!r}", metadata={"key": key})
    return text == "true"
