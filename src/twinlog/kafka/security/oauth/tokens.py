"""All token keepers of a process, shared by its clients and flows."""

import functools
import ssl

from twinlog.errors import ConfigError
from twinlog.kafka.security.oauth.fetching import fetch_token
from twinlog.kafka.security.oauth.keeper import TokenKeeper
from twinlog.kafka.security.oauth.login import OAuthLogin, Token, TokenError
from twinlog.kafka.security.tls import ssl_context, tls_trust

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
