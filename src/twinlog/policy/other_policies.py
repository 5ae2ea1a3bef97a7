"""Replication policies of other packages (`twinlog.policies`)."""

from collections.abc import Mapping
from typing import cast

from twinlog.config.values.other_classes import POLICIES, other_class
from twinlog.errors import ConfigError
from twinlog.policy.replication import ReplicationPolicy

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
