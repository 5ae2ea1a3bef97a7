"""The table of all configuration keys, in `keys.txt`; reading, checking and docs/configuration.md use it."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from twinlog.config.keys.spec import ALL_SERVICES, POLICIES, KeyScope, KeySpec, Service, ValueType
from twinlog.text_tables import read_table

SPARK_CONF_PREFIX: Final = "twinlog.spark.conf."
_ROW: Final = re.compile(r"([\w.-]+(?: [\w.-]+)*)( =[^(]*)? \((.+?)\): (.+)")
_SCOPES: Final = {
    "top": KeyScope.TOP,
    "flow": KeyScope.FLOW,
    "flow only": KeyScope.FLOW_ONLY,
    "target": KeyScope.TARGET,
    "target or top": KeyScope.TARGET_OR_TOP,
}
_SWITCHES: Final = {"negative is off": "negative_is_off", "each once": "distinct", "live": "live"}
_NUMBERS: Final = {"from": "minimum", "to": "maximum"}
_TEXTS: Final = {"MM2": "mm2_default", "else": "remedy"}


def _read_keys() -> Iterator[KeySpec]:
    for (readers, scope, *of_services), rows in read_table("twinlog.config.keys", "keys.txt"):
        named = tuple(map(Service, readers.replace("none", "").split())) if readers != "all" else ALL_SERVICES
        found = [spec for row in rows for spec in read_row(row, named, _SCOPES[scope])]
        yield from found
        if of_services:
            yield from (_of_service(spec, service) for service in Service for spec in found)


def read_row(line: str, services: tuple[Service, ...], scope: KeyScope) -> Iterator[KeySpec]:
    """
    >>> [key] = read_row("a.b = 3 (integer s, from 1, live): What it is.", ALL_SERVICES, KeyScope.TOP)
    >>> key.name, key.default, key.unit, key.minimum, key.live, key.meaning
    ('a.b', '3', 's', 1.0, True, 'What it is.')
    """
    found = _ROW.fullmatch(line)
    assert found is not None, line
    names, default, attributes, meaning = found.groups()
    if default is not None:
        default = default.removeprefix(" =").strip()
    (kind, _, unit), *limits = (each.partition(" ") for each in attributes.split(", "))
    more: dict[str, Any] = {"unit": unit}
    for word, blank, rest in limits:
        if (switch := _SWITCHES.get(f"{word}{blank}{rest}")) is not None:
            more[switch] = True
        elif word in _NUMBERS:
            more[_NUMBERS[word]] = float(rest)
        elif word in _TEXTS:
            more[_TEXTS[word]] = rest
        elif word == "one":
            more["choices"] = tuple(rest.removeprefix("of ").split())
        elif word == "was":
            more["aliases"] = (*more.get("aliases", ()), rest)
        else:
            assert rest == "a package's", line
            more["other_classes"] = POLICIES
    if not services:
        more["no_effect"], meaning = meaning, ""
    for name in names.split():
        yield KeySpec(name, ValueType(kind), default, services, meaning, scope, **more)


def _of_service(spec: KeySpec, service: Service) -> KeySpec:
    name = spec.name.replace("twinlog.", f"twinlog.{service}.", 1)
    services = ALL_SERVICES if spec.name.endswith("server.name") else (service,)
    meaning = f"`{spec.name}` for {service} only; wins over that key."
    return replace(spec, name=name, default=None, services=services, meaning=meaning)


ALL_KEYS: tuple[KeySpec, ...] = tuple(_read_keys())

BY_NAME: dict[str, KeySpec] = {spec.name: spec for spec in ALL_KEYS}

BY_ANY_NAME: dict[str, KeySpec] = {name: spec for spec in ALL_KEYS for name in (spec.name, *spec.aliases)}

INHERITED_BY_FLOWS: frozenset[str] = frozenset(
    name for name, spec in BY_ANY_NAME.items() if spec.scope is KeyScope.FLOW
)
"""Top-level keys that every flow inherits (MM2: the union of the three connectors' ConfigDefs), without the
client keys that Connect also defines."""


def default_port(service: Service, of: str = "listen") -> int:
    """Of the service's gRPC server; `of`: `metrics.listen`."""
    return int((BY_NAME[f"twinlog.{service}.{of}"].default or "").rpartition(":")[2])
