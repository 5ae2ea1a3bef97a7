"""The compose files, as Compose puts them together."""

from typing import Any

import yaml

from unit.deploy.wheels import PROJECT

COMPOSE = PROJECT / "deploy/compose"
BASE, OBSERVABILITY, TLS = "compose.yaml", "compose.observability.yaml", "compose.tls.yaml"
FILES: dict[str, Any] = {
    name: yaml.safe_load((COMPOSE / name).read_text()) for name in (BASE, OBSERVABILITY, TLS)
}
EACH = [(file, name) for file, document in FILES.items() for name in document["services"]]
"""(file, container)."""
IDS = [name for _, name in EACH]


def merged(file: str, name: str) -> dict[str, Any]:
    """A container of a file that is given after compose.yaml: what is a table in both is one table."""
    base = FILES[BASE]["services"].get(name, {}) if file != BASE else {}
    own = FILES[file]["services"][name]
    tables = {
        key: {**base[key], **value}
        for key, value in own.items()
        if isinstance(value, dict) and isinstance(base.get(key), dict)
    }
    return {**base, **own, **tables}
