"""`sasl.oauthbearer.*`, `sasl.login.*` and the options of `sasl.jaas.config`, as in Kafka 4.3.

Also those of Strimzi's login for MirrorMaker 2 (`oauth.*` in the JAAS options) and of Amazon's for MSK. As in
Kafka, a key takes precedence over the JAAS option with the same meaning. No function here reads files.
"""

import importlib
import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from twinlog.config.keys.client import LOGIN_HANDLERS
from twinlog.kafka.security.jaas import LoginEntry
from twinlog.kafka.security.oauth.jwt import ALGORITHMS
from twinlog.kafka.security.oauth.reading import (
    JAAS,
    URL,
    Assertion,
    AwsIdentity,
    Grant,
    LoginReader,
    OAuthLogin,
    TokenError,
    UnsecuredClaims,
    class_name,
)

# Tokens for Amazon MSK with IAM: a signed request, created by Amazon's package from AWS credentials.
#
# MSK's brokers accept it as OAUTHBEARER, on the port on which they accept AWS_MSK_IAM from Java clients.

PACKAGE = "aws-msk-iam-sasl-signer-python"
_MODULE = "aws_msk_iam_sasl_signer.MSKAuthTokenProvider"
_REGION = re.compile(r"\.(?:kafka|kafka-serverless)\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?$")


def region_of(host: str) -> str:
    """The region that stands in the name of a broker of MSK, "" for other names.

    >>> region_of("b-1.demo.a1b2c3.c2.kafka.eu-central-1.amazonaws.com")
    'eu-central-1'
    """
    found = _REGION.search(host.lower())
    return found[1] if found else ""


def has_signer() -> bool:
    """Whether Amazon's package is installed."""
    return _signer() is not None


def msk_token(identity: AwsIdentity) -> tuple[str, float]:
    """A token and its expiry in seconds since 1970. Blocks: credentials may come from an AWS server. Raises
    TokenError."""
    provider = _signer()
    if provider is None:
        raise TokenError(f"the package {PACKAGE} is not installed", refused=True)
    try:
        if identity.role_arn:
            session = identity.role_session or "twinlog"
            text, expiry_ms = provider.generate_auth_token_from_role_arn(
                identity.region, identity.role_arn, session
            )
        elif identity.profile:
            text, expiry_ms = provider.generate_auth_token_from_profile(identity.region, identity.profile)
        else:
            text, expiry_ms = provider.generate_auth_token(identity.region)
    except Exception as error:  # noqa: BLE001  # the loop boundary of a library with errors of its own
        # Only the type: messages of the AWS library may contain what was sent.
        raise TokenError(f"AWS gave no credentials to sign with: {type(error).__name__}") from None
    return str(text), float(expiry_ms) / 1000


def _signer() -> Any:
    try:
        return importlib.import_module(_MODULE)
    except ImportError:
        return None


# Strimzi's login for MirrorMaker 2: `oauth.*` in the options of `sasl.jaas.config`.

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


# Amazon's login for MSK: the options of aws-msk-iam-auth, and the region in the brokers' names.


def msk_login(reader: LoginReader) -> OAuthLogin:
    """The login with tokens that AWS credentials sign. Raises ConfigError."""
    if not has_signer():
        raise reader.refused(
            "sasl.mechanism", f"it needs the package {PACKAGE}: pip install 'twinlog-core[msk]'"
        )
    hosts = [entry.rpartition(":")[0] for entry in reader.properties.get("bootstrap.servers", "").split(",")]
    region = next(filter(None, map(region_of, hosts)), "")
    region = region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or ""
    if not region:
        raise reader.refused(
            "bootstrap.servers",
            "no name of a broker says its AWS region; set AWS_REGION in the environment",
        )
    for name in ("awsRoleAccessKeyId", "awsRoleSecretAccessKey", "awsRoleExternalId"):
        if reader.options.get(name):
            raise reader.refused(JAAS, f"{name} is not supported; put it into a profile of AWS's own files")
    return reader.made(
        grant=Grant.MSK_IAM,
        aws=AwsIdentity(
            region=region,
            profile=reader.options.get("awsProfileName", ""),
            role_arn=reader.options.get("awsRoleArn", ""),
            role_session=reader.options.get("awsRoleSessionName", ""),
        ),
    )


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
