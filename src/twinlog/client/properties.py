"""Converts a client's properties into connections: MM2's MirrorClientConfig, and Twinlog's own for consumers.
Pure."""

from collections.abc import Mapping

from twinlog.config.keys.client import CLUSTER_CLIENT_KEYS
from twinlog.errors import ConfigError

ADMIN = "admin"
CONSUMER = "consumer"

_FIXED = {"auto.offset.reset": "earliest", "enable.auto.commit": "false", "isolation.level": "read_committed"}
"""What a logical consumer relies on: copies that appear later are read from their beginning, only `commit`
commits, and aborted records are not read."""


def client_properties(properties: Mapping[str, str], client: str) -> dict[str, str]:
    """The settings of one client: the client keys, overridden by `<client>.<key>`, and nothing else.

    Like MM2, this drops keys that are not client keys (`consumer.client.id`, …).
    """
    return {key: value for key, value in _overlaid(properties, client).items() if key in CLUSTER_CLIENT_KEYS}


def consumer_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """All settings, overridden by `consumer.<key>`.

    Raises ConfigError for a setting that a logical consumer cannot follow.
    """
    found = _overlaid(properties, CONSUMER)
    for key, fixed in _FIXED.items():
        if found.get(key, fixed).strip().lower() != fixed:
            raise ConfigError(
                f"{key} = {found[key]}: a logical consumer always has {fixed}; leave the key out",
                metadata={"key": key},
            )
    return found


def _overlaid(properties: Mapping[str, str], client: str) -> dict[str, str]:
    prefix = f"{client}."
    own = {key.removeprefix(prefix): value for key, value in properties.items() if key.startswith(prefix)}
    return {**properties, **own}


def cluster_name(properties: Mapping[str, str]) -> str:
    """The cluster's name in errors: a client has no alias for it, only addresses."""
    return f"at {properties.get('bootstrap.servers', '?')}"
