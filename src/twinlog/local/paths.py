"""Where embedded Kafka keeps things between runs, after the XDG base directory rules (also on macOS)."""

import os
from pathlib import Path


def cache_dir() -> Path:
    """What can be fetched or made again: jars, class archives, Java wrappers. Not created here."""
    return _base("XDG_CACHE_HOME", ".cache")


def state_dir() -> Path:
    """What tells of clusters that run now. Not created here."""
    return _base("XDG_STATE_HOME", ".local/state")


def _base(variable: str, below_home: str) -> Path:
    root = os.environ.get(variable, "")
    # The XDG rules ask to ignore relative values.
    base = Path(root) if root.startswith("/") else Path.home() / below_home
    return base / "twinlog"
