"""What a client shows each time it connects, and whom it trusts: the credentials of that moment.

aiokafka's classes hand it on to their connections unseen, as they do any provider of tokens.
"""

from collections.abc import Mapping

from aiokafka.abc import AbstractTokenProvider

from twinlog.kafka.security.client_security import ClientSecurity, client_security
from twinlog.kafka.security.oauth.keeper import TokenKeeper
from twinlog.kafka.security.oauth.login import OAuthLogin
from twinlog.kafka.security.oauth.tokens import keeper_of


class ClusterAccess(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types
    """Of one client of one cluster."""

    def __init__(self, properties: Mapping[str, str], *, alias: str = "") -> None:
        """Raises ConfigError for settings that cannot be obeyed, and for files that cannot be read."""
        self.security: ClientSecurity = client_security(properties, alias=alias)

    @property
    def keeper(self) -> TokenKeeper | None:
        """Of the tokens; None for clients that log in otherwise."""
        login = self.security.sasl
        return keeper_of(login) if isinstance(login, OAuthLogin) else None

    async def token(self) -> str:
        """A valid token. Raises TokenError."""
        keeper = self.keeper
        return "" if keeper is None else (await keeper.token_soon()).text

    def extensions(self) -> dict[str, str]:
        """SASL extensions beside the token."""
        login = self.security.sasl
        return dict(login.extensions) if isinstance(login, OAuthLogin) else {}
