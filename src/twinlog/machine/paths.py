"""Twinlog's directories, by the XDG base directory rules.

Not `platformdirs`: its directories differ on macOS, and one page of documentation should hold everywhere.
"""

import os
from pathlib import Path

from twinlog.errors import ConfigError


def cache_dir() -> Path:
    """For files that can be fetched or made again: jars, class archives, Java wrappers. Does not create
    it."""
    return _base("XDG_CACHE_HOME", ".cache")


def writable_cache(*parts: str) -> Path:
    """Create and return a directory below `cache_dir`. Raises ConfigError that names it and the remedy."""
    directory = cache_dir().joinpath(*parts)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        why = "" if os.access(directory, os.W_OK) else "no right to write there"
    except OSError as error:
        why = error.strerror or str(error)
    if why:
        raise ConfigError(
            f"cannot keep Kafka's files in {directory}: {why}."
            " Set XDG_CACHE_HOME to a directory that can be written.",
            reason="CACHE_UNWRITABLE",
            metadata={"directory": str(directory)},
        )
    return directory


def state_dir() -> Path:
    """For files about running clusters. Does not create it."""
    return _base("XDG_STATE_HOME", ".local/state")


def _base(variable: str, below_home: str) -> Path:
    root = os.environ.get(variable, "")
    # The XDG rules ask to ignore relative values.
    if root.startswith("/"):
        return Path(root, "twinlog")
    try:
        return Path.home() / below_home / "twinlog"
    except RuntimeError as error:
        raise FileNotFoundError(f"this user has no home directory: set {variable}") from error
