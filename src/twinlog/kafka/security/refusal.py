"""How a setting that cannot be obeyed is refused."""

from twinlog.errors import ConfigError


def refused(alias: str, key: str, problem: str) -> ConfigError:
    """A ConfigError about one key of one cluster; `problem` says what is wrong and what to do."""
    where = f"cluster {alias!r}: {key}" if alias else key
    return ConfigError(f"{where}: {problem}", metadata={"cluster": alias, "key": key})
