"""The error for a setting that cannot be followed."""

from twinlog.errors import ConfigError


def refused(alias: str, key: str, problem: str) -> ConfigError:
    """A ConfigError about one key of one cluster; `problem` has the cause and the remedy."""
    where = f"cluster {alias!r}: {key}" if alias else key
    return ConfigError(f"{where}: {problem}", metadata={"cluster": alias, "key": key})
