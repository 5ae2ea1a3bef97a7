"""Finds config providers of other packages by their entry points.

A package declares `[project.entry-points."twinlog.config_providers"]` with the name in
`config.providers.<name>.class`, and a factory that gets its `param.*` and returns an object with `get(path,
key)`, which returns the value or None. It may block; it is called when a file is loaded, and again when a
client connects.
"""

from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from twinlog.errors import ConfigError

if TYPE_CHECKING:
    from twinlog.config.values.providers import Provider

GROUP = "twinlog.config_providers"


class OtherProvider:
    """A provider of another package. Its exceptions are only named by type, because their text may contain a
    secret."""

    def __init__(self, make: "Callable[[Mapping[str, str]], Provider]", params: Mapping[str, str]) -> None:
        try:
            self._provider = make(params)
        except Exception as error:  # Code of another package.
            raise ConfigError(f"the provider cannot be made: {type(error).__name__}") from error

    def get(self, path: str, key: str) -> str | None:
        try:
            value = self._provider.get(path, key)
        except Exception as error:  # Code of another package.
            raise ConfigError(f"the provider failed: {type(error).__name__}") from error
        if value is not None and not isinstance(value, str):
            raise ConfigError(f"the provider gave no text but {type(value).__name__}")
        return value


def other_provider(class_name: str, params: Mapping[str, str]) -> "Provider | None":
    """The provider with this name; None when no package has it. Raises ConfigError."""
    for found in entry_points(group=GROUP, name=class_name):
        try:
            make = found.load()
        except Exception as error:  # Code of another package.
            raise ConfigError(f"{found.value} cannot be imported: {type(error).__name__}") from error
        return OtherProvider(make, params)
    return None
