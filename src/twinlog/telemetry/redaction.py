r"""The safety net under the rule "secrets never reach a log": text that looks like a secret becomes `***`.

Callers redact by meaning (the configuration knows which keys are secret); this catches what they missed. It
reads strangers' text (names, patterns, headers of calls) on the event loop, so its time is linear in the text
by construction: a match attempt begins only where a run of its characters begins (`(?<!…)`), runs are
possessive (`++`, never given back), and so each character is read only a few times.
"""

import re
from collections.abc import Mapping
from typing import Any

REDACTED = "***"
LEFT_OUT = "…"

MAX_TEXT_CHARACTERS = 16 * 1024
"""Most characters of a text in a log line."""
MAX_ITEMS = 1_000
"""Most entries of a container in a log line."""
MAX_DEPTH = 8
"""Deepest level of containers within containers."""

_WORDS = (
    r"passw|passphrase|secret|credential|authorization|private[._-]?key|keystore[._-]key|api[._-]?key"
    r"|(?<![A-Za-z0-9])(?:(?:access|refresh|auth|bearer|id)[._-]?)?token(?![A-Za-z0-9])"
)
_SECRET_KEY = re.compile(f"{_WORDS}|jaas|(?:access|refresh)_?token", re.IGNORECASE)
_NOT_SECRET_KEY = re.compile(r"(resume|page)_token", re.IGNORECASE)
_PEM_KEY = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
)
_ASSIGNMENT = re.compile(
    r"(?P<before>(?<![\w.\-])"  # only where a name begins
    rf"(?![\w.\-]*?(?:resume|page)_token)(?=[\w.\-]*?(?:{_WORDS}))[\w.\-]++"
    r"""\\?["']?\s*+[=:]\s*+)"""
    r"""(?P<value>\\"(?:(?!\\").)*+(?:\\"|\Z)"""  # inside a quoted text
    r"""|"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|'(?:[^'\\]|\\.)*+(?:'|\\?\Z)"""
    r"""|(?:(?:Bearer|Basic|Digest|Negotiate)\s++)?[^\s,;&"'}]++)""",
    re.IGNORECASE | re.DOTALL,
)
_URL_PASSWORD = re.compile(r"(?P<before>(?<!\w)\w++://[^\s:/@]*+:)[^\s@/]++(?=@)")


def is_secret_key(name: str) -> bool:
    """True when a value of this name counts as a secret (`sasl.jaas.config`, `ssl.key.password`, …)."""
    name = name[:MAX_TEXT_CHARACTERS]
    return _SECRET_KEY.search(name) is not None and _NOT_SECRET_KEY.search(name) is None


def cut(text: str, limit: int) -> str:
    """The text, or its first `limit` characters and how many were left out.

    >>> cut("abcdef", 4)
    'abcd… (2 characters left out)'
    """
    return (
        text if len(text) <= limit else f"{text[:limit]}{LEFT_OUT} ({len(text) - limit} characters left out)"
    )


def redact_text(text: str) -> str:
    """Cut a text to MAX_TEXT_CHARACTERS and blank the secrets that `blank_secrets` finds."""
    return blank_secrets(cut(text, MAX_TEXT_CHARACTERS))


def blank_secrets(text: str) -> str:
    """Blank `password=…` and similar, passwords in URLs and PEM private keys. Takes linear time."""
    text = _PEM_KEY.sub(REDACTED, text)
    text = _URL_PASSWORD.sub(_blanked, text)
    return _ASSIGNMENT.sub(_blanked, text)


def redact(value: Any, *, depth: int = MAX_DEPTH) -> Any:
    """A copy with blanked secrets and bounded depth, items and text lengths. Numbers, truth values and None
    stay; any other object becomes its text."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, Mapping):
        return _redact_mapping(value, depth) if depth else LEFT_OUT
    if isinstance(value, list | tuple | set | frozenset):
        return _redact_sequence(value, depth) if depth else LEFT_OUT
    return redact_text(str(value))


def _redact_mapping(value: Mapping[Any, Any], depth: int) -> dict[Any, Any]:
    shown: dict[Any, Any] = {}
    for key, item in value.items():
        if len(shown) == MAX_ITEMS:
            shown[LEFT_OUT] = f"{len(value) - MAX_ITEMS} more"
            break
        name = redact_text(key) if isinstance(key, str) else key
        secret = isinstance(key, str) and is_secret_key(key)
        shown[name] = REDACTED if secret else redact(item, depth=depth - 1)
    return shown


def _redact_sequence(
    value: "list[Any] | tuple[Any, ...] | set[Any] | frozenset[Any]", depth: int
) -> list[Any]:
    shown: list[Any] = []
    for item in value:
        if len(shown) == MAX_ITEMS:
            shown.append(f"{LEFT_OUT} {len(value) - MAX_ITEMS} more")
            break
        shown.append(redact(item, depth=depth - 1))
    return shown


def _blanked(match: re.Match[str]) -> str:
    return match["before"] + REDACTED
