"""Command line values that services and `twinlog run` share."""

from collections.abc import Sequence

from twinlog.errors import ConfigError
from twinlog.model import Flow


def parse_flows(names: Sequence[str]) -> tuple[Flow, ...]:
    """Read `--flows`. Raises ConfigError."""
    try:
        return tuple(Flow.parse(name) for name in names)
    except ValueError as error:
        raise ConfigError(f"--flows: {error}", metadata={"key": "--flows"}) from None


def parse_override(text: str) -> tuple[str, str]:
    """Read `--set KEY=VALUE`. Raises ConfigError; the value is not repeated, it may be a secret."""
    key, sign, value = text.partition("=")
    name = key.strip()
    if not (sign and name):
        raise ConfigError(f"--set {name}: expected KEY=VALUE", metadata={"key": name})
    return name, value
