"""Finds classes of other packages by their entry points.

A package declares, for instance, `[project.entry-points."twinlog.policies"]` with the name in the file (that
of the Java class, so that MM2 accepts the same file) and what to call instead.
"""

from importlib.metadata import entry_points
from typing import Any

from twinlog.errors import ConfigError

POLICIES = "twinlog.policies"
"""Called with `replication.policy.*` and `source.cluster.alias`; returns a `ReplicationPolicy`."""


def is_installed(group: str, class_name: str) -> bool:
    return any(True for _ in entry_points(group=group, name=class_name))


def other_class(group: str, class_name: str) -> Any | None:
    """The object that a package declares under this name; None when there is none. Raises ConfigError when it
    cannot be imported."""
    for found in entry_points(group=group, name=class_name):
        try:
            return found.load()
        except Exception as error:  # Code of another package.
            raise ConfigError(
                f"{class_name}: {found.value} cannot be imported: {type(error).__name__}: {error}"
            ) from error
    return None
