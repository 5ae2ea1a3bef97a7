"""The credentials and trusted certificates of a client at each connection.

Passwords in files (`${file:…}`, `${dir:…}`) and certificates are read again when they have changed. If a file
is not usable, for instance half written, the earlier credentials stay in use, and this is logged once.
aiokafka's classes pass this object on to their connections like any token provider.
"""

import asyncio
import functools
import logging
import os
import random
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

from aiokafka.abc import AbstractTokenProvider

from twinlog.config.keys.client import NOTES
from twinlog.config.values.providers import LocalFileSystem, reread
from twinlog.errors import ConfigError
from twinlog.kafka.security.jaas import (
    GSSAPI,
    JaasSyntaxError,
    KerberosLogin,
    LoginEntry,
    kerberos_login,
    parse_jaas,
    require_package,
)
from twinlog.kafka.security.oauth.fetching import fetch_token
from twinlog.kafka.security.oauth.jwt import lifetime_of
from twinlog.kafka.security.oauth.reading import JAAS, OAuthLogin, Token, TokenError, TokenOutlook
from twinlog.kafka.security.oauth.reading import MECHANISM as OAUTHBEARER
from twinlog.kafka.security.oauth.settings import HANDLER, msk_iam_login, oauth_login
from twinlog.kafka.security.tls import TlsTrust as TlsTrust
from twinlog.kafka.security.tls import refused as refused
from twinlog.kafka.security.tls import ssl_context, tls_trust

# Authentication and trust of a client, from Java's `security.protocol`, `sasl.*` and `ssl.*` keys.
#
# All clients are configured from `ClientSecurity` (`twinlog.kafka.clients`). Its repr and all errors
# hide passwords and keys. Files are read when `client_security` is called, so a client that is opened again
# after a certificate was renewed uses the new one.

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MSK_IAM = "AWS_MSK_IAM"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER, MSK_IAM, GSSAPI)
_PASSWORD_MODULES = ("PlainLoginModule", "ScramLoginModule")
_TOKEN_MODULES = {OAUTHBEARER: "OAuthBearerLoginModule", MSK_IAM: "IAMLoginModule"}
_OWN_CLASSES = ("sasl.login.class", "sasl.client.callback.handler.class")
"""Java classes, which Twinlog cannot run."""
_PLAIN_HANDLERS = ("", "AbstractLogin$DefaultLoginCallbackHandler")


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslLogin:
    mechanism: str
    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSecurity:
    protocol: str
    sasl: SaslLogin | OAuthLogin | KerberosLogin | None
    tls: TlsTrust | None


def client_security(properties: Mapping[str, str], *, alias: str = "") -> ClientSecurity:
    """Read the security settings of one cluster. Reads the named files.

    Raises ConfigError naming cluster, key and remedy for anything that is missing, unreadable or unsupported.
    """
    protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in PROTOCOLS:
        raise refused(alias, "security.protocol", f"{protocol!r} is none of {', '.join(PROTOCOLS)}")
    return ClientSecurity(
        protocol=protocol,
        sasl=_sasl_login(properties, alias) if protocol.startswith("SASL_") else None,
        tls=tls_trust(properties, alias) if protocol.endswith("SSL") else None,
    )


def _sasl_login(properties: Mapping[str, str], alias: str) -> SaslLogin | OAuthLogin | KerberosLogin:
    mechanism = properties.get("sasl.mechanism", "GSSAPI").strip().upper()
    if mechanism not in MECHANISMS:
        raise refused(
            alias, "sasl.mechanism", f"{mechanism} is not supported; use one of {', '.join(MECHANISMS)}"
        )
    entry = _jaas_entry(properties, alias)
    if mechanism == GSSAPI:
        login_by_ticket = kerberos_login(properties, entry, alias=alias)
        require_package(alias)
        return login_by_ticket
    if mechanism in _TOKEN_MODULES:
        login = _token_login(mechanism, properties, entry, alias)
        if login.tls:
            tls_trust(dict(login.tls), alias)  # Report now what cannot be read.
        return login
    for key in (*_OWN_CLASSES, HANDLER):
        name = properties.get(key, "").strip()
        if name.rpartition(".")[2] not in _PLAIN_HANDLERS:
            raise refused(
                alias, key, f"{name} is Java's; leave the key out, and give user and password in {JAAS}"
            )
    if entry is None:
        raise refused(alias, JAAS, f'{mechanism} needs it: <LoginModule> required username="…" password="…";')
    return _password_login(mechanism, entry, alias)


def _jaas_entry(properties: Mapping[str, str], alias: str) -> LoginEntry | None:
    text = properties.get(JAAS, "").strip()
    try:
        return parse_jaas(text) if text else None
    except JaasSyntaxError as error:
        raise refused(alias, JAAS, f"{error} (its text is not shown, it holds a password)") from None


def _token_login(
    mechanism: str, properties: Mapping[str, str], entry: LoginEntry | None, alias: str
) -> OAuthLogin:
    module = _TOKEN_MODULES[mechanism]
    if entry is not None and entry.module_name not in _TOKEN_MODULES.values():
        raise refused(alias, JAAS, f"{entry.module_name} is not for {mechanism}; use {module}")
    if properties.get("sasl.login.class", "").strip():
        raise refused(alias, "sasl.login.class", "classes of Java cannot be run; leave the key out")
    if mechanism == MSK_IAM:
        return msk_iam_login(properties, entry, alias=alias)
    return oauth_login(properties, entry, alias=alias)


def _password_login(mechanism: str, entry: LoginEntry, alias: str) -> SaslLogin:
    if entry.module_name not in _PASSWORD_MODULES:
        raise refused(
            alias, JAAS, f"{entry.module_name} is not supported; use {' or '.join(_PASSWORD_MODULES)}"
        )
    if entry.options.get("tokenauth", "false").lower() == "true":
        raise refused(alias, JAAS, "delegation tokens (tokenauth) are not supported; use a SCRAM user")
    for option in ("username", "password"):
        if not entry.options.get(option):
            raise refused(alias, JAAS, f'{option} is missing; add {option}="…" before the semicolon')
    return SaslLogin(
        mechanism=mechanism, username=entry.options["username"], password=entry.options["password"]
    )


# One token for each login of the process, shared by all clients of all flows.
#
# A token is fetched when it is first needed, replaced before it expires (`RefreshWindow`), and never
# fetched twice at the same time. If no new one is available, the present one is used as long as it lives.
# After a failure the token server is not asked again before a back-off that doubles; callers get the same
# error meanwhile.

Fetch = Callable[[OAuthLogin, float], Token]
_MARGIN_SECONDS = 1.0
"""A token that is this close to its end would expire on its way to the broker."""


def _seconds_since_1970() -> float:
    return time.time_ns() / 1e9


@dataclass(slots=True, eq=False, repr=False)
class TokenKeeper:
    """Several threads and event loops may share it."""

    login: OAuthLogin
    fetch: Fetch
    """Blocks and raises TokenError."""
    _: KW_ONLY
    clock: Callable[[], float] = _seconds_since_1970
    """Seconds since 1970."""
    chance: Callable[[], float] = random.random
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _token: Token | None = None
    _seen_at: float = 0.0
    """When this token was first returned, because a file may contain the same one again."""
    _refresh_at: float = 0.0
    _failure: TokenError | None = None
    _failures: int = 0
    _retry_at: float = 0.0

    def token(self) -> Token:
        """A valid token. Blocks while it fetches one,
        and while another caller does and there is none. Raises TokenError."""
        known = self._at_hand()
        if known is not None:
            return known
        present = self._present()
        if not self._lock.acquire(blocking=present is None):
            assert present is not None
            return present  # Another caller is fetching, and its server may take long.
        try:
            fetched_meanwhile = self._at_hand()
            return self._fetched() if fetched_meanwhile is None else fetched_meanwhile
        finally:
            self._lock.release()

    async def token_soon(self) -> Token:
        """`token` for event loops, which must not block."""
        known = self._at_hand()
        return await asyncio.to_thread(self.token) if known is None else known

    def outlook(self) -> TokenOutlook | None:
        """Fetches nothing, and does not wait. None while no token was requested."""
        token, failing = self._token, self._failure is not None
        if token is None:
            return TokenOutlook(expires_at=None, lifetime_seconds=0.0, failing=True) if failing else None
        lifetime_seconds = lifetime_of(token.text, token.expires_at, self._seen_at)
        return TokenOutlook(expires_at=token.expires_at, lifetime_seconds=lifetime_seconds, failing=failing)

    def _at_hand(self) -> Token | None:
        """The token in use; None when another one should be fetched. Raises the TokenError of a recent
        failure."""
        now, token = self.clock(), self._present()
        if token is not None and now < self._refresh_at:
            return token
        failure = self._failure
        if failure is not None and now < self._retry_at:
            if token is not None:
                return token
            raise TokenError(str(failure), refused=failure.refused)
        return None

    def _present(self) -> Token | None:
        """The token in use while it is valid."""
        token = self._token
        alive = token is not None and self.clock() < token.expires_at - _MARGIN_SECONDS
        return token if alive else None

    def _fetched(self) -> Token:
        try:
            token = self.fetch(self.login, self.clock())
        except TokenError as error:
            self._failure = error
            self._failures += 1
            wait_seconds = self.login.backoff_seconds * 2 ** min(self._failures - 1, 30)
            self._retry_at = self.clock() + min(wait_seconds, self.login.backoff_max_seconds)
            present = self._present()
            if present is not None:
                return present
            raise
        now = self.clock()
        if self._token is None or self._token.text != token.text:
            self._seen_at = now
        self._refresh_at = self.login.window.refresh_at(now, token.expires_at, self.chance())
        self._failure, self._failures = None, 0
        self._token = token
        return token


# All token keepers of a process, shared by its clients and flows.

_MOST_LOGINS = 256


@functools.lru_cache(maxsize=_MOST_LOGINS)
def keeper_of(login: OAuthLogin) -> TokenKeeper:
    """The keeper for all clients with this login."""
    return TokenKeeper(login, _fetch)


def _fetch(login: OAuthLogin, now: float) -> Token:
    def tls() -> ssl.SSLContext | None:
        return ssl_context(tls_trust(dict(login.tls))) if login.tls else None

    try:
        return fetch_token(login, tls, now)
    except ConfigError as error:
        raise TokenError(f"{error} (of the token server, in sasl.jaas.config)") from error


_STORES = ("ssl.truststore.location", "ssl.keystore.location")

log = logging.getLogger(__name__)


class ClusterAccess(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types
    """The credentials of one client of one cluster. Several threads may share it."""

    def __init__(self, properties: Mapping[str, str], *, alias: str = "") -> None:
        """Raises ConfigError for settings that cannot be followed, for files that cannot be read, and for
        certificates and keys that OpenSSL refuses."""
        self._alias = alias
        self._properties = properties
        self._lock = threading.Lock()
        self.rotates = NOTES in properties or any(properties.get(key) for key in _STORES)
        """Whether any of it can change while the process runs."""
        self._seen = _state(properties)
        self._unusable: object = None
        self.security: ClientSecurity = client_security(properties, alias=alias)
        self.context: ssl.SSLContext | None = _context(self.security, alias)

    def refresh(self) -> None:
        """Read what has changed. Blocks on files; raises nothing."""
        if not self.rotates:
            return
        with self._lock:
            fresh = reread(self._properties, environ=os.environ, files=LocalFileSystem())
            state = _state(fresh)
            if state in (self._seen, self._unusable):
                return
            try:
                security = client_security(fresh, alias=self._alias)
                context = _context(security, self._alias)
            except (ConfigError, OSError, ValueError) as error:
                self._unusable = state
                log.warning("credentials_unusable: the earlier ones stay in use: %s", error)
                return
            self._properties = fresh  # What cannot be read next time stays as it is now.
            self.security, self.context, self._seen = security, context, state
            self._unusable = None
            log.info("credentials_changed: cluster %s", self._alias)

    @property
    def keeper(self) -> TokenKeeper | None:
        """Keeps the tokens fresh; None for clients with other logins."""
        login = self.security.sasl
        return keeper_of(login) if isinstance(login, OAuthLogin) else None

    async def token(self) -> str:
        """A valid token. Raises TokenError."""
        keeper = self.keeper
        return "" if keeper is None else (await keeper.token_soon()).text

    def extensions(self) -> dict[str, str]:
        """SASL extensions in addition to the token."""
        login = self.security.sasl
        return dict(login.extensions) if isinstance(login, OAuthLogin) else {}


def _state(properties: Mapping[str, str]) -> object:
    """Equal as long as nothing has changed."""
    stores = [properties[key].strip() for key in _STORES if properties.get(key, "").strip()]
    return dict(properties), [_stamp(path) for path in stores]


def _stamp(path: str) -> object:
    try:
        state = Path(path).stat()
    except OSError:
        return None
    return state.st_mtime_ns, state.st_size, state.st_ino


def _context(security: ClientSecurity, alias: str) -> ssl.SSLContext | None:
    return None if security.tls is None else ssl_context(security.tls, alias)
