"""The replication policy of a properties file."""

from collections.abc import Mapping
from typing import cast

from twinlog.config.keys.spec import POLICIES, other_class
from twinlog.errors import ConfigError
from twinlog.policy.rename import RENAME_KEY, RenameMap, RenamingPolicy, parse_renames, reversible
from twinlog.policy.replication import (
    DEFAULT_SEPARATOR,
    DefaultReplicationPolicy,
    IdentityReplicationPolicy,
    ReplicationPolicy,
)
from twinlog.transforms import Chain, RegexRouter, chain_from_config

# Replication policies of other packages (`twinlog.policies`).

_QUESTIONS = tuple(name for name in vars(ReplicationPolicy) if not name.startswith("_"))
"""The methods that every policy has."""
_PROBES = ("orders", "heartbeats", "a.b")


def other_policy(class_name: str, config: Mapping[str, str], alias: str) -> ReplicationPolicy | None:
    """The policy of this name that a package declares, made with `config`; None without one.

    It is first asked for the names of a few topics: a policy that fails, returns no name, or gives two topics
    one name would fail or mix them later. Raises ConfigError.
    """
    make = other_class(POLICIES, class_name)
    if make is None:
        return None
    try:
        policy = make(dict(config))
        missing = [name for name in _QUESTIONS if not hasattr(policy, name)]
        names = [] if missing else [policy.format_remote_topic(alias, topic) for topic in _PROBES]
    except Exception as error:  # another package's code
        raise _wrong(class_name, f"{type(error).__name__}: {error}") from error
    if missing:
        raise _wrong(class_name, f"it has no {', '.join(missing)}: see twinlog.policy.ReplicationPolicy")
    if not all(isinstance(name, str) and name for name in names):
        raise _wrong(class_name, "format_remote_topic gives no name")
    if len(set(names)) < len(names):
        raise _wrong(class_name, "format_remote_topic gives two topics one name")
    return cast("ReplicationPolicy", policy)


def _wrong(class_name: str, why: str) -> ConfigError:
    key = "replication.policy.class"
    return ConfigError(f"{key}: {class_name}: {why}", metadata={"key": key, "value": class_name})


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


def _routes(chain: Chain) -> tuple[RenameMap, ...]:
    """The routers of a chain that give a topic's copy its name. Raises ConfigError for one whose names cannot
    be read back: failback, checkpoints and the search for loops lead from a copy to its topic."""
    routes: list[RenameMap] = []
    for step in chain.steps:
        router, key = step.transform, f"transforms.{step.name}"
        if isinstance(router, RegexRouter) and not step.routes_records:
            try:
                routes.append(reversible(step, router))
            except ConfigError as error:
                why = str(error).removeprefix(f"{RENAME_KEY}: ")
                raise ConfigError(f"{key}: {why}", reason="RENAME_REFUSED", key=key) from error
    return tuple(routes)


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
        raise ConfigError(f"{key}: expected true or false, got {config[key]!r}", key=key)
    return text == "true"
