"""Parses `sasl.jaas.config`, the login configuration of Kafka's Java clients.

`MODULE FLAG key=value … ;` as Java's `JaasConfig` reads it with a `StreamTokenizer`: values are words or
quoted with " or ', a backslash in quotes escapes as in C. Unlike there, a line break before the closing
quote is none of the value: files of Secrets often end with one.
`#`, `//` and /* */ are comments. Errors never repeat any part of the value, because it contains a password.
"""

import asyncio
import importlib
import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from twinlog.kafka.security.tls import refused

_CONTROL_FLAGS = frozenset({"required", "requisite", "sufficient", "optional"})
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_OCTAL = frozenset("01234567")
_ESCAPED = re.compile(r"\\([0-3][0-7]{2}|[0-7]{1,2}|.)", re.DOTALL)
_TOKEN = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?(?:\*/|\Z)
    | (?P<quoted> "(?:[^"\\\n]|\\.)*\n?" | '(?:[^'\\\n]|\\.)*\n?')
    | (?P<word> [=;] | [^\s=;"']+)""",
    re.DOTALL | re.VERBOSE,
)
"""Blanks and comments have no name."""


class JaasSyntaxError(ValueError):
    """The text is not a login configuration; the message tells what is missing, without any part of the
    text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginEntry:
    """One login module with its options, which repr hides because they contain the password."""

    module: str
    options: Mapping[str, str] = field(repr=False)

    @property
    def module_name(self) -> str:
        """The class name without its package: `ScramLoginModule`."""
        return self.module.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    quoted: bool = False

    def is_mark(self, mark: str) -> bool:
        return self.text == mark and not self.quoted


def parse_jaas(text: str) -> LoginEntry:
    """Read the first entry of a login configuration. Raises JaasSyntaxError."""
    tokens = _tokens(text)
    if not tokens:
        raise JaasSyntaxError("it is empty")
    if len(tokens) < 2 or tokens[1].text.lower() not in _CONTROL_FLAGS:
        raise JaasSyntaxError("the login module is not followed by a control flag such as 'required'")
    options: dict[str, str] = {}
    position = 2
    while position < len(tokens) and not tokens[position].is_mark(";"):
        if position + 2 >= len(tokens) or not tokens[position + 1].is_mark("="):
            raise JaasSyntaxError(f'option {len(options) + 1} is not of the form key="value"')
        value = tokens[position + 2]
        if value.is_mark(";") or value.is_mark("="):
            raise JaasSyntaxError(f"option {len(options) + 1} has no value")
        options[tokens[position].text] = value.text
        position += 3
    if position >= len(tokens):
        raise JaasSyntaxError("it does not end with a semicolon")
    return LoginEntry(module=tokens[0].text, options=options)


def _without_break(value: str) -> str:
    return value[:-1].removesuffix("\r") if value.endswith("\n") else value


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise JaasSyntaxError("a quoted value is not closed")
        position = found.end()
        if found.lastgroup == "quoted":
            tokens.append(_Token(_ESCAPED.sub(_unescaped, _without_break(found[0][1:-1])), quoted=True))
        elif found.lastgroup == "word":
            tokens.append(_Token(found[0]))
    return tokens


def _unescaped(found: re.Match[str]) -> str:
    code = found[1]
    return chr(int(code, 8)) if code in _OCTAL or len(code) > 1 else _ESCAPES.get(code, code)


# Kerberos (GSSAPI): the options of Java's Krb5LoginModule in `sasl.jaas.config`, for the system's Kerberos.
#
# Realms and KDCs come from the machine's krb5.conf (`KRB5_CONFIG`), as with Java. The package `gssapi` is
# needed, which no wheel contains: it is built against the system's library. Without it the login is refused
# at the start.

GSSAPI = "GSSAPI"
MODULE = "Krb5LoginModule"
JAAS = "sasl.jaas.config"
SERVICE_NAME = "sasl.kerberos.service.name"
EXTRA = "pip install 'twinlog-core[gssapi]', which needs the system's Kerberos (Debian: libkrb5-dev, gcc)"


@dataclass(frozen=True, slots=True, kw_only=True)
class KerberosLogin:
    """Principal, credentials and service. It contains no secret: a key is in the file `keytab`."""

    service: str
    """The first part of the brokers' principals: `kafka`."""
    principal: str = ""
    """Empty = that of the ticket cache."""
    keytab: str = ""
    """The path of the file with the principal's key; empty = a ticket of the machine's default cache is used
    (`KRB5CCNAME`)."""
    mechanism: str = GSSAPI


def kerberos_login(properties: Mapping[str, str], entry: LoginEntry | None, *, alias: str) -> KerberosLogin:
    """Raises ConfigError for settings that are missing or cannot be followed."""
    if entry is None or entry.module_name != MODULE:
        raise refused(
            alias,
            JAAS,
            f"GSSAPI (Kafka's default of sasl.mechanism) needs com.sun.security.auth.module.{MODULE} here,"
            " with keyTab and principal or useTicketCache=true; or set sasl.mechanism to another one, such as"
            " SCRAM-SHA-512 or OAUTHBEARER",
        )
    options = {name.lower(): value for name, value in entry.options.items()}
    service = (properties.get(SERVICE_NAME, "") or options.get("servicename", "")).strip()
    if not service:
        raise refused(
            alias, SERVICE_NAME, "it is missing; set it to the brokers' service, which is kafka usually"
        )
    login = KerberosLogin(
        service=service,
        principal=options.get("principal", ""),
        keytab=options.get("keytab", "") if options.get("usekeytab", "").lower() == "true" else "",
    )
    from_cache = options.get("useticketcache", "").lower() == "true"
    if not login.keytab and not from_cache:
        raise refused(
            alias,
            JAAS,
            "a password cannot be asked for: set useKeyTab=true with keyTab and principal, or"
            " useTicketCache=true",
        )
    if options.get("ticketcache"):
        raise refused(alias, JAAS, "ticketCache: set KRB5CCNAME in the environment of each process instead")
    if login.keytab and not login.principal:
        raise refused(alias, JAAS, "principal is missing; a key table may hold the keys of many")
    return login


def require_package(alias: str) -> None:
    """Raises ConfigError if the package for the system's Kerberos is missing."""
    if importlib.util.find_spec("gssapi") is None:
        raise refused(alias, "sasl.mechanism", f"GSSAPI needs a package: {EXTRA}")


# The client's side of SASL GSSAPI (RFC 4752): a context of the Kerberos library, then the agreement on no
# further protection, which TLS provides.
#
# Credentials are read from the key table or the ticket cache each time, so the next login uses renewed
# ones; the library gets a new ticket when the earlier one has expired.


_NO_PROTECTION = 1
"""The bit of RFC 4752 for authentication only."""


class KerberosError(ValueError):
    """There is no ticket, or the broker's answer does not prove its principal."""


class KerberosAuthenticator:
    """One login at one broker. `step` calls the KDC, in a thread."""

    def __init__(self, login: KerberosLogin, host: str, *, context: Any = None) -> None:
        """`context` is a complete one of the library; None = the first step creates one."""
        self._login = login
        self._host = host
        self._context = context
        self._is_agreed = False

    async def step(self, challenge: bytes | None) -> tuple[bytes, bool] | None:
        """What to send next; None at the end. Raises KerberosError."""
        if self._is_agreed:
            return None
        return await asyncio.to_thread(self._next, challenge), True

    def _next(self, challenge: bytes | None) -> bytes:
        gssapi: Any = importlib.import_module("gssapi")
        try:
            if self._context is None:
                self._context = self._begun(gssapi)
            if not self._context.complete:
                return self._context.step(challenge) or b""
            return self.agreement(self._context.unwrap(challenge or b"").message)
        except gssapi.exceptions.GSSError as error:
            raise KerberosError(
                f"Kerberos: {error} (principal {self._login.principal or 'of the ticket cache'}, service"
                f" {self._login.service}/{self._host})"
            ) from None

    def _begun(self, gssapi: Any) -> Any:
        login = self._login
        store: dict[str, str] = {}
        if login.keytab:
            # A separate cache for this login: the machine's default one belongs to others.
            store = {"client_keytab": login.keytab, "ccache": f"MEMORY:{login.principal} {login.keytab}"}
        name = None
        if login.principal:
            name = gssapi.Name(login.principal, name_type=gssapi.NameType.kerberos_principal)
        credentials = gssapi.Credentials(name=name, usage="initiate", store=store or None)
        service = gssapi.Name(f"{login.service}@{self._host}", name_type=gssapi.NameType.hostbased_service)
        return gssapi.SecurityContext(
            name=service, creds=credentials, mech=gssapi.MechType.kerberos, usage="initiate"
        )

    def agreement(self, offer: bytes) -> bytes:
        """The protection of the connection from now on: none, which the broker must accept. Raises
        KerberosError."""
        if len(offer) != 4 or not offer[0] & _NO_PROTECTION:
            raise KerberosError("the broker asks for a protection of Kerberos' own: use TLS (SASL_SSL)")
        self._is_agreed = True
        answer = bytes([_NO_PROTECTION, 0, 0, 0])
        wrapped: bytes = self._context.wrap(answer, False).message
        return wrapped
