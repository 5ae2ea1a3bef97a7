"""Strimzi's login for MirrorMaker 2: `oauth.*` in the options of `sasl.jaas.config`."""

from twinlog.kafka.security.oauth.login import Assertion, Grant, OAuthLogin
from twinlog.kafka.security.oauth.reading import JAAS, LoginReader

_UNKNOWN = (
    "oauth.refresh.token", "oauth.refresh.token.location", "oauth.password.grant.username",
    "oauth.client.assertion", "oauth.token.endpoint.uri.password",
)  # fmt: skip


def strimzi_login(reader: LoginReader) -> OAuthLogin:
    """Raises ConfigError."""
    unknown = [name for name in _UNKNOWN if reader.options.get(name)]
    if unknown:
        raise reader.refused(
            JAAS, f"{unknown[0]} is not supported; use oauth.client.id with oauth.client.secret"
        )
    location = reader.options.get("oauth.access.token.location", "")
    if location:
        return reader.made(grant=Grant.FILE, endpoint=location)
    token = reader.options.get("oauth.access.token", "")
    if token:
        return reader.made(grant=Grant.STATIC, static_token=token)
    url = reader.options.get("oauth.token.endpoint.uri", "")
    reader.check_url(url, JAAS)
    client_id = reader.options.get("oauth.client.id", "")
    assertion_file = reader.options.get("oauth.client.assertion.location", "")
    client_secret = reader.options.get("oauth.client.secret", "")
    if not client_id or not (client_secret or assertion_file):
        raise reader.refused(JAAS, "oauth.client.id or oauth.client.secret is missing; add both")
    return reader.made(
        grant=Grant.CLIENT_SECRET if client_secret else Grant.CLIENT_ASSERTION,
        endpoint=url,
        client_id=client_id,
        client_secret=client_secret,
        assertion=None if client_secret else Assertion(file=assertion_file),
        scope=reader.options.get("oauth.scope", ""),
        audience=reader.options.get("oauth.audience", ""),
    )
