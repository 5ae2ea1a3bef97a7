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
from pathlib import Path

from aiokafka.abc import AbstractTokenProvider

from twinlog.config.keys.client import NOTES
from twinlog.config.values.providers import LocalFileSystem, reread
from twinlog.errors import ConfigError
from twinlog.kafka.security.client_security import ClientSecurity, client_security
from twinlog.kafka.security.oauth.fetching import fetch_token
from twinlog.kafka.security.oauth.jwt import lifetime_of
from twinlog.kafka.security.oauth.login import OAuthLogin, Token, TokenError, TokenOutlook
from twinlog.kafka.security.tls import ssl_context, tls_trust

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


class TokenKeeper:
    """Several threads and event loops may share it."""

    def __init__(
        self,
        login: OAuthLogin,
        fetch: Fetch,
        *,
        clock: Callable[[], float] = _seconds_since_1970,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`fetch` blocks and raises TokenError; `clock` returns seconds since 1970."""
        self._login = login
        self._fetch = fetch
        self._clock = clock
        self._chance = chance
        self._lock = threading.Lock()
        self._token: Token | None = None
        self._seen_at = 0.0
        """When this token was first returned, because a file may contain the same one again."""
        self._refresh_at = 0.0
        self._failure: TokenError | None = None
        self._failures = 0
        self._retry_at = 0.0

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
        now, token = self._clock(), self._present()
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
        alive = token is not None and self._clock() < token.expires_at - _MARGIN_SECONDS
        return token if alive else None

    def _fetched(self) -> Token:
        try:
            token = self._fetch(self._login, self._clock())
        except TokenError as error:
            self._failure = error
            self._failures += 1
            wait_seconds = self._login.backoff_seconds * 2 ** min(self._failures - 1, 30)
            self._retry_at = self._clock() + min(wait_seconds, self._login.backoff_max_seconds)
            present = self._present()
            if present is not None:
                return present
            raise
        now = self._clock()
        if self._token is None or self._token.text != token.text:
            self._seen_at = now
        self._refresh_at = self._login.window.refresh_at(now, token.expires_at, self._chance())
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
