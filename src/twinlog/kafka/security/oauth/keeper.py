"""One token for each login of the process, shared by all clients of all flows.

A token is fetched when it is first needed, replaced before it expires (`RefreshWindow`), and never fetched
twice at the same time. If no new one is available, the present one is used as long as it lives. After a
failure the token server is not asked again before a back-off that doubles; callers get the same error
meanwhile.
"""

import asyncio
import random
import threading
import time
from collections.abc import Callable

from twinlog.kafka.security.oauth.jwt import lifetime_of
from twinlog.kafka.security.oauth.login import OAuthLogin, Token, TokenError, TokenOutlook

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
