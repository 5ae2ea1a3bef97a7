"""The tables of docs/configuration.md: `python -m twinlog.config.docs docs/configuration.md`."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from twinlog.config.keys.client import EFFECTIVE_BY_CLIENT
from twinlog.config.keys.spec import KeySpec, Service, ValueType, expected
from twinlog.config.keys.table import ALL_KEYS
from twinlog.text_tables import markdown, renew


def tables() -> Mapping[str, str]:
    """By name."""
    effective = [spec for spec in ALL_KEYS if not spec.no_effect]
    own = [spec for spec in effective if spec.name.startswith("twinlog.")]
    inherited = [spec for spec in effective if spec not in own]
    differences = (
        (f"`{spec.name}`", _default(spec.default), _default(spec.mm2_default))
        for spec in effective
        if spec.mm2_default is not None
    )
    clients = (
        (client, ", ".join(f"`{key}`" for key in sorted(keys)))
        for client, keys in EFFECTIVE_BY_CLIENT.items()
    )
    return {
        "differences": markdown(("key", "here", "MirrorMaker 2"), differences),
        "own keys": _table(own),
        "inherited keys": "\n".join(
            f"### {title}\n\n{_table(spec for spec in inherited if spec.services == services)}"
            for title, services in _groups(inherited)
        ),
        "clients": markdown(("client", "settings"), clients),
        "without effect": _no_effect(spec for spec in ALL_KEYS if spec.no_effect),
    }


def _groups(specs: Iterable[KeySpec]) -> list[tuple[str, tuple[Service, ...]]]:
    """The sets of services that share keys, the largest first, each with a heading."""
    found = sorted({spec.services for spec in specs}, key=lambda services: (-len(services), services))
    return [
        ("All services" if len(services) == len(Service) else " and ".join(services).capitalize(), services)
        for services in found
    ]


def _table(specs: Iterable[KeySpec]) -> str:
    return markdown(("key", "written", "value", "default", "meaning"), (_row(spec) for spec in specs))


def _row(spec: KeySpec) -> Sequence[str]:
    aliases = "".join(f" (older: `{alias}`)" for alias in spec.aliases)
    return f"`{spec.name}`{aliases}", spec.scope, _value(spec), _default(spec.default), spec.meaning


def _value(spec: KeySpec) -> str:
    if spec.type is ValueType.CLASS:
        others = " or that of an installed package" if spec.other_classes else ""
        return "one of " + ", ".join(f"`{choice.rpartition('.')[2]}`" for choice in spec.choices) + others
    return expected(spec)


def _default(default: str | None) -> str:
    if default is None:
        return "automatic"
    if not default:
        return "empty"
    return f"`{default.rpartition('.')[2]}`" if default.startswith("org.") else f"`{default}`"


def _no_effect(specs: Iterable[KeySpec]) -> str:
    by_reason: dict[str, list[str]] = {}
    for spec in specs:
        by_reason.setdefault(spec.no_effect, []).append(f"`{spec.name}`")
    return markdown(("keys", "why"), ((", ".join(names), reason) for reason, names in by_reason.items()))


if __name__ == "__main__":
    renew(Path(sys.argv[1]), tables())
