"""The table of all configuration keys; reading, checking and docs/configuration.md use it."""

from twinlog.config.keys.flow import FLOW_KEYS
from twinlog.config.keys.security import SECURITY_KEYS
from twinlog.config.keys.spec import KeySpec, Scope
from twinlog.config.keys.twinlog import TWINLOG_KEYS
from twinlog.config.keys.worker import DRIVER_KEYS, WORKER_KEYS

ALL_KEYS: tuple[KeySpec, ...] = (*DRIVER_KEYS, *FLOW_KEYS, *WORKER_KEYS, *TWINLOG_KEYS, *SECURITY_KEYS)

BY_NAME: dict[str, KeySpec] = {spec.name: spec for spec in ALL_KEYS}

BY_ANY_NAME: dict[str, KeySpec] = {name: spec for spec in ALL_KEYS for name in (spec.name, *spec.aliases)}

INHERITED_BY_FLOWS: frozenset[str] = frozenset(
    name for name, spec in BY_ANY_NAME.items() if spec.scope is Scope.FLOW
)
"""Top-level keys that every flow inherits (MM2: the union of the three connectors' ConfigDefs), without the
client keys that Connect also defines."""
