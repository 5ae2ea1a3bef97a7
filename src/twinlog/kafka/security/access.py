"""The credentials and trusted certificates of a client at each connection.

Passwords in files (`${file:…}`, `${dir:…}`) and certificates are read again when they have changed. If a file
is not usable, for instance half written, the earlier credentials stay in use, and this is logged once.
aiokafka's classes pass this object on to their connections like any token provider.
"""

import functools
import logging
import os
import ssl
import threading
from collections.abc import Mapping
from pathlib import Path

from aiokafka.abc import AbstractTokenProvider

from twinlog.config.keys.client import NOTES
from twinlog.config.values.providers import LocalFileSystem
from twinlog.config.values.rereading import reread
from twinlog.errors import ConfigError
from twinlog.kafka.security.client_security import ClientSecurity, client_security
from twinlog.kafka.security.oauth.fetching import fetch_token
from twinlog.kafka.security.oauth.keeper import TokenKeeper
from twinlog.kafka.security.oauth.login import OAuthLogin, Token, TokenError
from twinlog.kafka.security.tls import ssl_context, tls_trust

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
