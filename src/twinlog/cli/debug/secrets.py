"""What must not be in a bundle. Pure.

Two nets, one behind the other: a value is shown only where its key is known to hold no secret, and every text
is searched for the secrets themselves, wherever they come from.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from twinlog.config.keys import BY_ANY_NAME
from twinlog.telemetry.redaction import REDACTED, blank_secrets, is_secret_key

SHORTEST = 4
"""Shorter ones are found by their keys alone: to blank `no` everywhere would leave nothing to read."""

SHORTEST_UNKNOWN = 8
"""Of values of keys that nobody knows."""

_WORDS = frozenset({"true", "false", "none", "null"})
_QUOTED = re.compile(r"([\w.\-]+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'|([^\s\"';]+))")
_URL = re.compile(r"\w+://[^\s:/@]*:([^\s@/]+)@")
_SHOWN = frozenset(
    {
        "bootstrap.servers",
        "security.protocol",
        "sasl.mechanism",
        "client.id",
        "client.rack",
        "isolation.level",
        "auto.offset.reset",
        "acks",
        "compression.type",
        "max.message.bytes",
        "max.request.size",
        "ssl.protocol",
        "ssl.enabled.protocols",
        "ssl.endpoint.identification.algorithm",
        "ssl.keystore.type",
        "ssl.truststore.type",
    }
)
_SHOWN_ENDS = (".ms", ".bytes", ".size", ".records", ".seconds", ".enabled", ".factor", ".retries")


def shown_value(key: str, value: str) -> str:
    """What a bundle shows of a property.

    >>> shown_value("A.bootstrap.servers", "a:9092")
    'a:9092'
    >>> shown_value("A.sasl.jaas.config", "x")
    '***'
    >>> shown_value("A.some.plugin.key", "x")
    '***'
    """
    return blank_secrets(value) if value == "" or _is_harmless(key) else REDACTED


def _is_harmless(key: str) -> bool:
    if is_secret_key(key):
        return False
    parts = key.split(".")
    names = {".".join(parts[begin:]) for begin in range(len(parts))}
    return bool(names & (BY_ANY_NAME.keys() | _SHOWN)) or key.endswith(_SHOWN_ENDS)


def secrets_of(properties: Iterable[tuple[str, str]]) -> frozenset[str]:
    """Every value, or part of one, that is a secret."""
    found: set[str] = set()
    for key, value in properties:
        if is_secret_key(key) or (not _is_harmless(key) and len(value) >= SHORTEST_UNKNOWN):
            found.add(value)
        found |= set(_URL.findall(value))
        found |= {
            part for name, *texts in _QUOTED.findall(value) if is_secret_key(name) for part in texts if part
        }
    return frozenset(
        text for each in found if len(text := each.strip()) >= SHORTEST and text.lower() not in _WORDS
    )


@dataclass(frozen=True, slots=True)
class Blanker:
    """Blanks what looks like a secret, and what is one."""

    secrets: frozenset[str]

    def __call__(self, text: str) -> str:
        # The longest first: a secret may be part of another one.
        for secret in sorted(self.secrets, key=len, reverse=True):
            text = text.replace(secret, REDACTED)
        return blank_secrets(text)


def of_environment(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """Variables that hold secrets by their names."""
    return [(name, value) for name, value in environment.items() if is_secret_key(name.replace("_", "."))]
