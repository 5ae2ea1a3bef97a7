"""Keeps secrets out of a bundle. Pure.

Two layers: a value is shown only if its key is known to hold no secret, and every text is searched for the
secrets themselves, wherever they come from.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import quote, quote_plus, unquote

from twinlog.config.keys.table import BY_ANY_NAME
from twinlog.telemetry.logging import REDACTED, blank_secrets, is_secret_key

SHORTEST = 4
"""Shorter secrets are only found by their keys: blanking `no` everywhere would leave nothing readable."""

SHORTEST_UNKNOWN = 8
"""The same for values of unknown keys."""

_WORDS = frozenset({"true", "false", "none", "null"})
_QUOTED = re.compile(r"([\w.\-]+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'|([^\s\"';]+))")
_URL = re.compile(r"\w+://[^\s:/@]*:([^\s@/]+)@")
_URL_TOKEN = re.compile(r"\w+://([^\s:/@]{8,})@")
"""Even a user name alone may be a token."""
_ESCAPED = re.compile(r"\\(.)")
_BEARER = re.compile(r"(?P<before>(?<!\w)Bearer\s++)[\w\-.~+/]{8,}+=*+", re.IGNORECASE)
_JWT = re.compile(r"(?<![\w\-])eyJ[\w\-]++\.[\w\-]++\.[\w\-]*+")
_HEADERS = re.compile(r"OTEL_EXPORTER_OTLP_(?:\w+_)?HEADERS")
_SECRET_FILE = re.compile(
    r"(?:token|tokens|key|password|secret|credentials)[._](?:file|location)$", re.IGNORECASE
)
_SHORTEST_IN_A_FILE = 16
_SHOWN = frozenset(
    {
        *("bootstrap.servers", "security.protocol", "sasl.mechanism", "client.id", "client.rack", "acks"),
        *("isolation.level", "auto.offset.reset", "compression.type", "max.message.bytes"),
        *("max.request.size", "ssl.protocol", "ssl.enabled.protocols", "ssl.keystore.type"),
        *("ssl.endpoint.identification.algorithm", "ssl.truststore.type"),
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
        found |= {*_URL.findall(value), *_URL_TOKEN.findall(value)}
        found |= {
            part for name, *texts in _QUOTED.findall(value) if is_secret_key(name) for part in texts if part
        }
    known = {text for each in found if len(text := each.strip()) >= SHORTEST and text.lower() not in _WORDS}
    return frozenset(form for secret in known for form in _forms(secret) if len(form) >= SHORTEST)


def _forms(secret: str) -> Iterator[str]:
    """As written in properties, in JSON, in Python and in URLs."""
    for text in {secret, _ESCAPED.sub(r"\1", secret), unquote(secret)}:
        yield text
        yield from (json.dumps(text, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False))
        yield repr(text)[1:-1]
        yield from (quote(text), quote(text, safe=""), quote_plus(text))


@dataclass(frozen=True, slots=True)
class Blanker:
    """Replaces secrets, and everything that looks like one."""

    secrets: frozenset[str]

    def __call__(self, text: str) -> str:
        # The longest first, because a secret may be part of another one.
        for secret in sorted(self.secrets, key=len, reverse=True):
            text = text.replace(secret, REDACTED)
        text = _BEARER.sub(lambda found: found["before"] + REDACTED, text)
        return blank_secrets(_JWT.sub(REDACTED, text))


def of_environment(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """Secrets in variables with telling names, and headers for a telemetry collector."""
    found = [(name, value) for name, value in environment.items() if is_secret_key(name.replace("_", "."))]
    for name, value in environment.items():
        if _HEADERS.fullmatch(name):
            values = (unquote(each.partition("=")[2].strip()) for each in value.split(","))
            found += [("password", each.removeprefix("Bearer ").removeprefix("Basic ")) for each in values]
    return found


def is_secret_file(key: str) -> bool:
    """Whether the file that a property names holds secrets.

    >>> is_secret_file("twinlog.client.token.file"), is_secret_file("twinlog.tls.certificate.file")
    (True, False)
    """
    return _SECRET_FILE.search(key) is not None


def of_secret_file(content: str) -> list[tuple[str, str]]:
    """Tokens, and lines of keys."""
    return [("password", word) for word in content.split() if len(word) >= _SHORTEST_IN_A_FILE]
