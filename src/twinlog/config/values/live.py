"""The rules that a flow can follow without a restart, and what values from outside the file may contain.

A live rule comes from an RPC or from a topic of the target, so its sender may not be the operator of the
file. Its value is a literal, because a reference (`${file:…}`, `${env:…}`) would be replaced by a secret of
the process, and shown to the sender.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from twinlog.config.flow.settings import FlowConfig
from twinlog.config.keys.table import ALL_KEYS
from twinlog.errors import ConfigError
from twinlog.model import Flow

ENABLED: Final = "enabled"
LIVE_KEYS: Final = tuple(spec.name for spec in ALL_KEYS if spec.live)
_REFERENCE_OPENS: Final = "${"
_SHOWN_CHARACTERS: Final = 200


def live_overrides(flow: Flow, values: Mapping[str, str]) -> dict[str, str]:
    """Live rules of a flow as properties that take precedence over its file, but for `stopped_by`.

    Raises ConfigError for a key that is not live (INVALID_CONFIG), and for a value that is not a literal
    (REFERENCE_REFUSED).
    """
    for key in values:
        if key not in LIVE_KEYS:
            named = key[:_SHOWN_CHARACTERS]
            raise ConfigError(f"{named!r}: cannot be changed while a flow runs", key=named)
    require_literals(values)
    if values.get(ENABLED, "true") not in ("true", "false"):
        raise ConfigError(f"{ENABLED}: must be true or false", key=ENABLED)
    return {f"{flow}.{key}": value for key, value in values.items() if key != ENABLED}


def stopped_by(values: Mapping[str, str], config: FlowConfig) -> FlowConfig:
    """The flow as the rule on `enabled` leaves it. Its services go on, and copy heartbeats only while it is
    false. A flow that the file disables has no services, so no rule starts it."""
    return replace(config, enabled=config.enabled and values.get(ENABLED) != "false")


def require_same_checkpoints(before: FlowConfig, after: FlowConfig) -> None:
    """Raise ConfigError if live rules switch a flow's checkpoints on or off: only a start does that."""
    if before.checkpoint.enabled is not after.checkpoint.enabled:
        key = "emit.checkpoints.interval.seconds"
        raise ConfigError(
            f"{key}: a negative interval counts as emit.checkpoints.enabled=false, and checkpoints cannot be"
            " switched on or off while a flow runs: write the interval into the properties file and restart,"
            " or reset the rule",
            key=key,
        )


def require_literals(values: Mapping[str, str]) -> None:
    """Raise ConfigError (REFERENCE_REFUSED) for a value with `${`; the message does not contain it."""
    for key, value in values.items():
        if _REFERENCE_OPENS in value:
            raise ConfigError(
                f"{key}: a value that is changed live is taken literally and cannot hold '${{': "
                "write references to config.providers into the properties file",
                reason="REFERENCE_REFUSED",
                key=key,
            )
