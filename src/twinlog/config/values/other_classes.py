"""Classes of other packages, found by their entry points.

A package declares, for instance, `[project.entry-points."twinlog.policies"]` with the name that stands in the
file (that of the Java class, so that MM2 takes the same file), and what is to be called in its place.
"""

from importlib.metadata import entry_points
from typing import Any

from twinlog.errors import ConfigError

POLICIES = "twinlog.policies"
"""Called with `replication.policy.*` and `source.cluster.alias`; gives a `ReplicationPolicy`."""


def is_installed(group: str, class_name: str) -> bool:
    return any(True for _ in entry_points(group=group, name=class_name))


def other_class(group: str, class_name: str) -> Any | None:
    """What a package declares under this name, None when none does. Raises ConfigError when it cannot be
    imported."""
    for found in entry_points(group=group, name=class_name):
        try:
            return found.load()
        except Exception as error:  # code of others
            raise ConfigError(
                f"{class_name}: {found.value} cannot be imported: {type(error).__name__}: {error}"
            ) from error
    return None
