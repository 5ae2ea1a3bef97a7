"""`sasl.oauthbearer.*`, `sasl.login.*` and the options of `sasl.jaas.config`, as Kafka 4.3 reads them.

Also those of Strimzi's login for MirrorMaker 2 (`oauth.*` in the JAAS options) and of Amazon's for MSK. A
setting of one key wins over the JAAS option of the same meaning, as in Kafka. No function here reads a file.
"""

import os
import re
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from twinlog.kafka.security.jaas import LoginEntry
from twinlog.kafka.security.oauth.jwt import ALGORITHMS
from twinlog.kafka.security.oauth.login import (
    Assertion,
    AwsIdentity,
    Grant,
    OAuthLogin,
    RefreshWindow,
    UnsecuredClaims,
)
from twinlog.kafka.security.oauth.msk_iam import PACKAGE, has_signer, region_of
from twinlog.kafka.security.refusal import refused

JAAS = "sasl.jaas.config"
HANDLER = "sasl.login.callback.handler.class"
URL = "sasl.oauthbearer.token.endpoint.url"
_CLIENT_HANDLER = "sasl.client.callback.handler.class"
_RETRIEVER = "sasl.oauthbearer.jwt.retriever.class"
_VALIDATOR = "sasl.oauthbearer.jwt.validator.class"
_CLIENT_ID = "sasl.oauthbearer.client.credentials.client.id"
_CLIENT_SECRET = "sasl.oauthbearer.client.credentials.client.secret"  # noqa: S105  # a name
_SCOPE = "sasl.oauthbearer.scope"
_ASSERTION = "sasl.oauthbearer.assertion."
_KEY_FILE = f"{_ASSERTION}private.key.file"

_SECURED = "OAuthBearerLoginCallbackHandler"
_UNSECURED = "OAuthBearerUnsecuredLoginCallbackHandler"
_STRIMZI = "JaasClientOauthLoginCallbackHandler"
_AMAZON = "IAMOAuthBearerLoginCallbackHandler"
_HANDLERS = (_SECURED, _UNSECURED, _STRIMZI, _AMAZON)
_AMAZON_CLIENT = "IAMClientCallbackHandler"

_DEFAULT_RETRIEVERS = ("", "DefaultJwtRetriever", "ClientCredentialsJwtRetriever", "FileJwtRetriever")
_JWT_BEARER_RETRIEVER = "JwtBearerJwtRetriever"
_VALIDATORS = ("", "DefaultJwtValidator", "ClientJwtValidator")
_EXTENSION_NAME, _EXTENSION_VALUE = re.compile(r"[A-Za-z]+"), re.compile(r"[\x21-\x7e \t\r\n]+")
_STRIMZI_UNKNOWN = (
    "oauth.refresh.token", "oauth.refresh.token.location", "oauth.password.grant.username",
    "oauth.client.assertion", "oauth.token.endpoint.uri.password",
)  # fmt: skip

_WINDOW = {
    "sasl.login.refresh.window.factor": ("factor", 0.5, 1.0),
    "sasl.login.refresh.window.jitter": ("jitter", 0.0, 0.25),
    "sasl.login.refresh.min.period.seconds": ("min_period_seconds", 0.0, 900.0),
    "sasl.login.refresh.buffer.seconds": ("buffer_seconds", 0.0, 3600.0),
}
"""With the ranges of Kafka."""


def oauth_login(properties: Mapping[str, str], entry: LoginEntry | None, *, alias: str) -> OAuthLogin:
    """The login of `sasl.mechanism=OAUTHBEARER`. `entry` is that of `sasl.jaas.config`, None when it is not
    set. Raises ConfigError naming cluster, key and remedy."""
    return _Reader(properties, entry, alias).login()


def msk_iam_login(properties: Mapping[str, str], entry: LoginEntry | None, *, alias: str) -> OAuthLogin:
    """The login of `sasl.mechanism=AWS_MSK_IAM`. Raises ConfigError."""
    reader = _Reader(properties, entry, alias)
    reader.one_of(_CLIENT_HANDLER, ("", _AMAZON_CLIENT))
    return reader.msk()


class _Reader:
    def __init__(self, properties: Mapping[str, str], entry: LoginEntry | None, alias: str) -> None:
        self._properties = properties
        self._options = {} if entry is None else entry.options
        self._alias = alias

    def login(self) -> OAuthLogin:
        handler = _class_name(self._text(HANDLER))
        if handler not in ("", *_HANDLERS):
            raise self._refused(HANDLER, f"{handler} is not supported; use one of {', '.join(_HANDLERS)}")
        if not handler:
            unsecured = any(name.startswith("unsecuredLogin") for name in self._options)
            handler = _UNSECURED if unsecured and not self._text(URL) else _SECURED
        if handler == _AMAZON:
            return self.msk()
        if handler == _UNSECURED:
            return self._unsecured()
        return self._strimzi() if handler == _STRIMZI else self._secured()

    def one_of(self, key: str, names: tuple[str, ...]) -> str:
        """The class that a key names, without its package."""
        name = _class_name(self._text(key))
        if name not in names:
            known = ", ".join(filter(None, names))
            raise self._refused(key, f"{name} is not supported; use {known}, or leave the key out")
        return name

    def _secured(self) -> OAuthLogin:
        retriever = self.one_of(_RETRIEVER, (*_DEFAULT_RETRIEVERS, _JWT_BEARER_RETRIEVER))
        self.one_of(_VALIDATOR, _VALIDATORS)
        url = self._text(URL)
        if urlsplit(url).scheme == "file" and retriever != _JWT_BEARER_RETRIEVER:
            return self._made(grant=Grant.FILE, endpoint=self._file_of(url))
        self._check_url(url, URL)
        assertion = self._assertion(needed=retriever == _JWT_BEARER_RETRIEVER)
        scope = self._either(_SCOPE, "scope")
        if retriever == _JWT_BEARER_RETRIEVER:
            return self._made(grant=Grant.JWT_BEARER, endpoint=url, scope=scope, assertion=assertion)
        client_id = self._either(_CLIENT_ID, "clientId")
        if assertion is not None:
            return self._made(
                grant=Grant.CLIENT_ASSERTION,
                endpoint=url,
                scope=scope,
                client_id=client_id,
                assertion=assertion,
            )
        client_secret = self._either(_CLIENT_SECRET, "clientSecret")
        for key, value in ((_CLIENT_ID, client_id), (_CLIENT_SECRET, client_secret)):
            if not value:
                raise self._refused(key, f"it is missing; set it, or {_KEY_FILE} to show an assertion")
        return self._made(
            grant=Grant.CLIENT_SECRET,
            endpoint=url,
            scope=scope,
            client_id=client_id,
            client_secret=client_secret,
            encode_header=self._boolean("sasl.oauthbearer.header.urlencode"),
        )

    def _strimzi(self) -> OAuthLogin:
        unknown = [name for name in _STRIMZI_UNKNOWN if self._options.get(name)]
        if unknown:
            raise self._refused(
                JAAS, f"{unknown[0]} is not supported; use oauth.client.id with oauth.client.secret"
            )
        location = self._options.get("oauth.access.token.location", "")
        if location:
            return self._made(grant=Grant.FILE, endpoint=location)
        token = self._options.get("oauth.access.token", "")
        if token:
            return self._made(grant=Grant.STATIC, static_token=token)
        url = self._options.get("oauth.token.endpoint.uri", "")
        self._check_url(url, JAAS)
        client_id = self._options.get("oauth.client.id", "")
        assertion_file = self._options.get("oauth.client.assertion.location", "")
        client_secret = self._options.get("oauth.client.secret", "")
        if not client_id or not (client_secret or assertion_file):
            raise self._refused(JAAS, "oauth.client.id or oauth.client.secret is missing; add both")
        return self._made(
            grant=Grant.CLIENT_SECRET if client_secret else Grant.CLIENT_ASSERTION,
            endpoint=url,
            client_id=client_id,
            client_secret=client_secret,
            assertion=None if client_secret else Assertion(file=assertion_file),
            scope=self._options.get("oauth.scope", ""),
            audience=self._options.get("oauth.audience", ""),
        )

    def _unsecured(self) -> OAuthLogin:
        texts, numbers, lists = dict[str, str](), dict[str, float](), dict[str, tuple[str, ...]]()
        for name, value in self._options.items():
            kind, _, claim = name.partition("_")
            if kind == "unsecuredLoginStringClaim":
                texts[claim] = value
            elif kind == "unsecuredLoginNumberClaim":
                numbers[claim] = self._number_option(name, value)
            elif kind == "unsecuredLoginListClaim" and value:
                lists[claim] = tuple(value[1:].split(value[0]))
        principal = self._options.get("unsecuredLoginPrincipalClaimName", "sub")
        if not texts.get(principal):
            raise self._refused(JAAS, f'unsecuredLoginStringClaim_{principal}="…" is missing; add it')
        name = "unsecuredLoginLifetimeSeconds"
        lifetime_seconds = int(self._number_option(name, self._options.get(name, "3600")))
        claims = UnsecuredClaims(
            texts=tuple(texts.items()),
            numbers=tuple(numbers.items()),
            lists=tuple(lists.items()),
            lifetime_seconds=lifetime_seconds,
        )
        return self._made(grant=Grant.UNSECURED, unsecured=claims)

    def msk(self) -> OAuthLogin:
        """With AWS credentials, by the options of aws-msk-iam-auth."""
        if not has_signer():
            raise self._refused(
                "sasl.mechanism", f"it needs the package {PACKAGE}: pip install 'twinlog-core[msk]'"
            )
        hosts = [
            entry.rpartition(":")[0] for entry in self._properties.get("bootstrap.servers", "").split(",")
        ]
        region = next(filter(None, map(region_of, hosts)), "")
        region = region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or ""
        if not region:
            raise self._refused(
                "bootstrap.servers",
                "no name of a broker says its AWS region; set AWS_REGION in the environment",
            )
        for name in ("awsRoleAccessKeyId", "awsRoleSecretAccessKey", "awsRoleExternalId"):
            if self._options.get(name):
                raise self._refused(
                    JAAS, f"{name} is not supported; put it into a profile of AWS's own files"
                )
        return self._made(
            grant=Grant.MSK_IAM,
            aws=AwsIdentity(
                region=region,
                profile=self._options.get("awsProfileName", ""),
                role_arn=self._options.get("awsRoleArn", ""),
                role_session=self._options.get("awsRoleSessionName", ""),
            ),
        )

    def _made(
        self,
        *,
        grant: Grant,
        endpoint: str = "",
        client_id: str = "",
        client_secret: str = "",
        static_token: str = "",
        scope: str = "",
        audience: str = "",
        encode_header: bool = False,
        assertion: Assertion | None = None,
        unsecured: UnsecuredClaims | None = None,
        aws: AwsIdentity | None = None,
    ) -> OAuthLogin:
        first_ms = self._milliseconds("sasl.login.retry.backoff.ms", 100)
        return OAuthLogin(
            grant=grant,
            endpoint=endpoint,
            client_id=client_id,
            client_secret=client_secret,
            static_token=static_token,
            scope=scope,
            audience=audience,
            encode_header=encode_header,
            assertion=assertion,
            unsecured=unsecured,
            aws=aws,
            extensions=self._extensions(),
            tls=tuple((name, value) for name, value in self._options.items() if name.startswith("ssl.")),
            timeout_seconds=max(
                self._milliseconds("sasl.login.connect.timeout.ms", 10_000),
                self._milliseconds("sasl.login.read.timeout.ms", 10_000),
            )
            / 1000,
            backoff_seconds=first_ms / 1000,
            backoff_max_seconds=max(first_ms, self._milliseconds("sasl.login.retry.backoff.max.ms", 10_000))
            / 1000,
            window=self._window(),
        )

    def _assertion(self, *, needed: bool) -> Assertion | None:
        """As Kafka chooses: a file with the assertion before one that is made here, and both before a
        secret."""
        file = self._text(f"{_ASSERTION}file")
        if file:
            return Assertion(file=file)
        if not needed and not self._text(f"{_ASSERTION}claim.iss"):
            return None
        key_file = self._text(_KEY_FILE)
        if not key_file:
            raise self._refused(_KEY_FILE, f"it is missing; set it, or {_ASSERTION}file")
        algorithm = self._text(f"{_ASSERTION}algorithm") or "RS256"
        if algorithm not in ALGORITHMS:
            raise self._refused(
                f"{_ASSERTION}algorithm", f"{algorithm} is not supported; use {' or '.join(ALGORITHMS)}"
            )
        claims = {name: self._text(f"{_ASSERTION}claim.{name}") for name in ("aud", "iss", "sub")}
        return Assertion(
            algorithm=algorithm,
            key_file=key_file,
            key_password=self._text(f"{_ASSERTION}private.key.passphrase"),
            template_file=self._text(f"{_ASSERTION}template.file"),
            claims=tuple((name, text) for name, text in claims.items() if text),
            lifetime_seconds=self._seconds(f"{_ASSERTION}claim.exp.seconds", 300),
            backdated_seconds=self._seconds(f"{_ASSERTION}claim.nbf.seconds", 60),
            with_id=self._boolean(f"{_ASSERTION}claim.jti.include"),
        )

    def _extensions(self) -> tuple[tuple[str, str], ...]:
        found: dict[str, str] = {}
        for option, value in self._options.items():
            for prefix in ("extension_", "unsecuredLoginExtension_"):
                name = option.removeprefix(prefix)
                if name == option:
                    continue
                valid = _EXTENSION_NAME.fullmatch(name) and _EXTENSION_VALUE.fullmatch(value)
                if not valid or name == "auth":
                    raise self._refused(JAAS, f"{option} is no SASL extension: letters, and printable text")
                found[name] = value
        return tuple(found.items())

    def _window(self) -> RefreshWindow:
        values: dict[str, float] = {}
        for key, (name, least, most) in _WINDOW.items():
            text = self._text(key)
            if not text:
                continue
            try:
                values[name] = float(text)
            except ValueError:
                values[name] = -1.0
            if not least <= values[name] <= most:
                raise self._refused(key, f"{text!r} is no number from {least:g} to {most:g}")
        return RefreshWindow(**values)

    def _check_url(self, url: str, key: str) -> None:
        parts = urlsplit(url)
        if not url:
            what = "oauth.token.endpoint.uri" if key == JAAS else "it"
            raise self._refused(key, f"{what} is missing; set it to the address where tokens are given")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise self._refused(key, "it is no address with https, http or (for a token's file) file")
        if parts.username or parts.password:
            raise self._refused(key, "it holds a user or password; use the keys of client credentials")

    def _file_of(self, url: str) -> str:
        path = unquote(urlsplit(url).path)
        if not path:
            raise self._refused(URL, "it names no file")
        return path

    def _either(self, key: str, option: str) -> str:
        return self._text(key) or self._options.get(option, "").strip()

    def _text(self, key: str) -> str:
        return self._properties.get(key, "").strip()

    def _boolean(self, key: str) -> bool:
        text = self._text(key).lower()
        if text not in ("", "true", "false"):
            raise self._refused(key, f"{text!r} is neither true nor false")
        return text == "true"

    def _milliseconds(self, key: str, default: int) -> int:
        text = self._text(key)
        if not text:
            return default
        if not text.isdecimal() or int(text) == 0:
            raise self._refused(key, f"{text!r} is not a whole number above 0")
        return int(text)

    def _seconds(self, key: str, default: int) -> int:
        text = self._text(key)
        if text and not text.isdecimal():
            raise self._refused(key, f"{text!r} is not a whole number from 0 up")
        return int(text) if text else default

    def _number_option(self, name: str, value: str) -> float:
        try:
            return float(value)
        except ValueError:
            raise self._refused(JAAS, f"{name} is no number") from None

    def _refused(self, key: str, problem: str) -> Exception:
        return refused(self._alias, key, problem)


def _class_name(text: str) -> str:
    return text.rpartition(".")[2]
