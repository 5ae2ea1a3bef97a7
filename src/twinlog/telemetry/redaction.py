"""The safety net under the rule "secrets never reach a log": what looks like one becomes `***`.

Callers redact by meaning (the configuration knows which keys are secret); this only catches what slipped
through.
"""

import re
from collections.abc import Mapping
from typing import Any

REDACTED = "***"

_SECRET_KEY = re.compile(
    r"passw|secret|credential|jaas|(^|[._-])token($|[._-])|authorization|private[._-]?key|keystore[._-]key|api[._-]?key",
    re.IGNORECASE,
)
_NOT_SECRET_KEY = re.compile(r"(resume|page)_token", re.IGNORECASE)
_PEM_KEY = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
)
_ASSIGNMENT = re.compile(
    r"""(?P<name>[\w.\-]*(?:passw(?:or)?d|secret|credentials?|access[._-]?token)[\w.\-]*)(?P<sign>["']?\s*[=:]\s*)"""
    r"""(?P<value>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s,;&"'}]+)""",
    re.IGNORECASE,
)
_URL_PASSWORD = re.compile(r"(?P<before>\w+://[^\s:/@]+:)[^\s@/]+(?=@)")


def is_secret_key(name: str) -> bool:
    """True when a value under this name is taken for a secret (`sasl.jaas.config`, `ssl.key.password`, …)."""
    return _SECRET_KEY.search(name) is not None and _NOT_SECRET_KEY.search(name) is None


def redact_text(text: str) -> str:
    """Blank `password=…` and its like, passwords in URLs and PEM private keys inside a text."""
    text = _PEM_KEY.sub(REDACTED, text)
    text = _URL_PASSWORD.sub(lambda match: match["before"] + REDACTED, text)
    return _ASSIGNMENT.sub(lambda match: match["name"] + match["sign"] + REDACTED, text)


def redact(value: Any, *, depth: int = 4) -> Any:
    """A copy with secrets blanked, `depth` containers deep; numbers and other objects stay as they are."""
    if isinstance(value, str):
        return redact_text(value)
    if depth and isinstance(value, Mapping):
        return {
            key: REDACTED if isinstance(key, str) and is_secret_key(key) else redact(item, depth=depth - 1)
            for key, item in value.items()
        }
    if depth and isinstance(value, list | tuple):
        return [redact(item, depth=depth - 1) for item in value]
    return value
