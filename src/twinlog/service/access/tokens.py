"""Static bearer tokens: a file of names, roles and hashes, read again when it changes.

    # NAME ROLE SHA256
    ci operator 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08

Hashes suffice because tokens are random and long; a password would need a slow hash.
"""

import hashlib
import hmac
import re
from dataclasses import dataclass
from pathlib import Path

import structlog

from twinlog.errors import ConfigError
from twinlog.service.access.pem_files import read_file
from twinlog.service.access.roles import Caller, Role

_log = structlog.stdlib.get_logger(__name__)

_HASH = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")


@dataclass(frozen=True, slots=True)
class TokenEntry:
    name: str
    role: Role
    hash: bytes


class TokenFile:
    """`find` uses the newest valid file; a removed name is refused at once."""

    def __init__(self, name: str) -> None:
        """Raises ConfigError (TOKENS_UNUSABLE)."""
        self._name = name
        self._told = ""
        self._signature = _signature(name)
        self._entries = parse_tokens(_content(name), file=name)

    def find(self, token: str) -> Caller | None:
        """The owner of a token, compared in constant time with every entry."""
        self._look()
        asked = hashlib.sha256(token.encode(errors="replace")).digest()
        found: TokenEntry | None = None
        for entry in self._entries:
            if hmac.compare_digest(entry.hash, asked):
                found = entry
        return None if found is None else Caller(name=f"file:{found.name}", role=found.role, via="token")

    def _look(self) -> None:
        try:
            signature = _signature(self._name)
            if signature == self._signature and not self._told:
                return
            entries = parse_tokens(_content(self._name), file=self._name)
        except ConfigError as error:
            if str(error) != self._told:
                self._told = str(error)
                _log.warning(
                    "tokens_unusable", reason=error.reason, message=f"{error}; the earlier ones stay"
                )
            return
        self._told, self._signature, self._entries = "", signature, entries
        _log.info("tokens_read", names=[entry.name for entry in entries])


def parse_tokens(content: bytes, *, file: str) -> tuple[TokenEntry, ...]:
    """Raises ConfigError (TOKENS_UNUSABLE) that names the line but does not repeat it: it may hold a
    token."""
    found: list[TokenEntry] = []
    for number, line in enumerate(content.decode(errors="replace").splitlines(), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        try:
            name, role, digest = words
            found.append(TokenEntry(name, Role.parse(role), bytes.fromhex(digest)))
            sound = _HASH.fullmatch(digest) is not None and _NAME.fullmatch(name) is not None
        except ValueError:
            sound = False
        if not sound:
            raise ConfigError(
                f"{file}:{number}: expected NAME ROLE SHA256 with a role of viewer, operator, admin and 64"
                " hexadecimal digits",
                reason="TOKENS_UNUSABLE",
                metadata={"file": file, "line": str(number)},
            )
    return tuple(found)


def _unusable(name: str, why: str) -> ConfigError:
    return ConfigError(f"{name}: {why}", reason="TOKENS_UNUSABLE", metadata={"file": name})


def _content(name: str) -> bytes:
    return read_file(name, unusable=_unusable)


def _signature(name: str) -> tuple[int, int, int, int]:
    try:
        status = Path(name).stat()
    except OSError as error:
        raise _unusable(name, f"cannot be read: {error.strerror}") from error
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino
