"""`sasl.oauthbearer.*`, `sasl.login.*` and the options of `sasl.jaas.config`, as in Kafka 4.3.

Also those of Strimzi's login for MirrorMaker 2 (`oauth.*` in the JAAS options) and of Amazon's for MSK. As in
Kafka, a key takes precedence over the JAAS option with the same meaning. No function here reads files.
"""

from collections.abc import Mapping
from urllib.parse import urlsplit

from twinlog.config.keys.client import LOGIN_HANDLERS
from twinlog.kafka.security.jaas import LoginEntry
from twinlog.kafka.security.oauth.jwt import ALGORITHMS
from twinlog.kafka.security.oauth.login import (
    Assertion,
    Grant,
    OAuthLogin,
    UnsecuredClaims,
)
from twinlog.kafka.security.oauth.msk_login import msk_login
from twinlog.kafka.security.oauth.reading import JAAS, URL, LoginReader, class_name
from twinlog.kafka.security.oauth.strimzi_login import strimzi_login

HANDLER = "sasl.login.callback.handler.class"
_CLIENT_HANDLER = "sasl.client.callback.handler.class"
_RETRIEVER = "sasl.oauthbearer.jwt.retriever.class"
_VALIDATOR = "sasl.oauthbearer.jwt.validator.class"
_CLIENT_ID = "sasl.oauthbearer.client.credentials.client.id"
_CLIENT_SECRET = "sasl.oauthbearer.client.credentials.client.secret"  # noqa: S105  # a name
_SCOPE = "sasl.oauthbearer.scope"
_ASSERTION = "sasl.oauthbearer.assertion."
_KEY_FILE = f"{_ASSERTION}private.key.file"

_SECURED, _UNSECURED, _STRIMZI, _AMAZON = LOGIN_HANDLERS
_AMAZON_CLIENT = "IAMClientCallbackHandler"

_DEFAULT_RETRIEVERS = ("", "DefaultJwtRetriever", "ClientCredentialsJwtRetriever", "FileJwtRetriever")
_JWT_BEARER_RETRIEVER = "JwtBearerJwtRetriever"
_VALIDATORS = ("", "DefaultJwtValidator", "ClientJwtValidator")


def oauth_login(properties: Mapping[str, str], entry: LoginEntry | None, *, alias: str) -> OAuthLogin:
    """The login for `sasl.mechanism=OAUTHBEARER`. `entry` is that of `sasl.jaas.config`; None when it is not
    set. Raises ConfigError with cluster, key and remedy."""
    reader = LoginReader(properties, entry, alias)
    handler = class_name(reader.text(HANDLER))
    if handler not in ("", *LOGIN_HANDLERS):
        raise reader.refused(HANDLER, f"{handler} is not supported; use one of {', '.join(LOGIN_HANDLERS)}")
    if not handler:
        unsecured = any(name.startswith("unsecuredLogin") for name in reader.options)
        handler = _UNSECURED if unsecured and not reader.text(URL) else _SECURED
    if handler == _AMAZON:
        return msk_login(reader)
    if handler == _UNSECURED:
        return _unsecured_login(reader)
    return strimzi_login(reader) if handler == _STRIMZI else _kafka_login(reader)


def msk_iam_login(properties: Mapping[str, str], entry: LoginEntry | None, *, alias: str) -> OAuthLogin:
    """The login for `sasl.mechanism=AWS_MSK_IAM`. Raises ConfigError."""
    reader = LoginReader(properties, entry, alias)
    reader.one_of(_CLIENT_HANDLER, ("", _AMAZON_CLIENT))
    return msk_login(reader)


def _kafka_login(reader: LoginReader) -> OAuthLogin:
    retriever = reader.one_of(_RETRIEVER, (*_DEFAULT_RETRIEVERS, _JWT_BEARER_RETRIEVER))
    reader.one_of(_VALIDATOR, _VALIDATORS)
    url = reader.text(URL)
    if urlsplit(url).scheme == "file" and retriever != _JWT_BEARER_RETRIEVER:
        return reader.made(grant=Grant.FILE, endpoint=reader.file_of(url))
    reader.check_url(url, URL)
    assertion = _assertion(reader, needed=retriever == _JWT_BEARER_RETRIEVER)
    scope = reader.either(_SCOPE, "scope")
    if retriever == _JWT_BEARER_RETRIEVER:
        return reader.made(grant=Grant.JWT_BEARER, endpoint=url, scope=scope, assertion=assertion)
    client_id = reader.either(_CLIENT_ID, "clientId")
    if assertion is not None:
        return reader.made(
            grant=Grant.CLIENT_ASSERTION,
            endpoint=url,
            scope=scope,
            client_id=client_id,
            assertion=assertion,
        )
    client_secret = reader.either(_CLIENT_SECRET, "clientSecret")
    for key, value in ((_CLIENT_ID, client_id), (_CLIENT_SECRET, client_secret)):
        if not value:
            raise reader.refused(key, f"it is missing; set it, or {_KEY_FILE} to show an assertion")
    return reader.made(
        grant=Grant.CLIENT_SECRET,
        endpoint=url,
        scope=scope,
        client_id=client_id,
        client_secret=client_secret,
        encode_header=reader.boolean("sasl.oauthbearer.header.urlencode"),
    )


def _assertion(reader: LoginReader, *, needed: bool) -> Assertion | None:
    """As in Kafka: a file with the assertion takes precedence over one that is created here, and both over a
    secret."""
    file = reader.text(f"{_ASSERTION}file")
    if file:
        return Assertion(file=file)
    if not needed and not reader.text(f"{_ASSERTION}claim.iss"):
        return None
    key_file = reader.text(_KEY_FILE)
    if not key_file:
        raise reader.refused(_KEY_FILE, f"it is missing; set it, or {_ASSERTION}file")
    algorithm = reader.text(f"{_ASSERTION}algorithm") or "RS256"
    if algorithm not in ALGORITHMS:
        raise reader.refused(
            f"{_ASSERTION}algorithm", f"{algorithm} is not supported; use {' or '.join(ALGORITHMS)}"
        )
    claims = {name: reader.text(f"{_ASSERTION}claim.{name}") for name in ("aud", "iss", "sub")}
    return Assertion(
        algorithm=algorithm,
        key_file=key_file,
        key_password=reader.text(f"{_ASSERTION}private.key.passphrase"),
        template_file=reader.text(f"{_ASSERTION}template.file"),
        claims=tuple((name, text) for name, text in claims.items() if text),
        lifetime_seconds=reader.seconds(f"{_ASSERTION}claim.exp.seconds", 300),
        backdated_seconds=reader.seconds(f"{_ASSERTION}claim.nbf.seconds", 60),
        with_id=reader.boolean(f"{_ASSERTION}claim.jti.include"),
    )


def _unsecured_login(reader: LoginReader) -> OAuthLogin:
    texts, numbers, lists = dict[str, str](), dict[str, float](), dict[str, tuple[str, ...]]()
    for name, value in reader.options.items():
        kind, _, claim = name.partition("_")
        if kind == "unsecuredLoginStringClaim":
            texts[claim] = value
        elif kind == "unsecuredLoginNumberClaim":
            numbers[claim] = reader.number_option(name, value)
        elif kind == "unsecuredLoginListClaim" and value:
            lists[claim] = tuple(value[1:].split(value[0]))
    principal = reader.options.get("unsecuredLoginPrincipalClaimName", "sub")
    if not texts.get(principal):
        raise reader.refused(JAAS, f'unsecuredLoginStringClaim_{principal}="…" is missing; add it')
    name = "unsecuredLoginLifetimeSeconds"
    lifetime_seconds = int(reader.number_option(name, reader.options.get(name, "3600")))
    claims = UnsecuredClaims(
        texts=tuple(texts.items()),
        numbers=tuple(numbers.items()),
        lists=tuple(lists.items()),
        lifetime_seconds=lifetime_seconds,
    )
    return reader.made(grant=Grant.UNSECURED, unsecured=claims)
