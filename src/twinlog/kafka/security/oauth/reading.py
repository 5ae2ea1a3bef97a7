"""Reads the settings of any OAUTHBEARER login; does not read files."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from urllib.parse import unquote, urlsplit

from twinlog.errors import ConfigError
from twinlog.kafka.security.jaas import LoginEntry
from twinlog.kafka.security.tls import refused

# The settings of an OAUTHBEARER login, and the token. Plain data; repr shows no secret.

MECHANISM = "OAUTHBEARER"
_SHAPE = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
"""RFC 6750: no other characters are allowed in a message to a broker or a header to a server."""


class Grant(StrEnum):
    """Where tokens come from."""

    CLIENT_SECRET = "client credentials with a secret"  # noqa: S105  # no secret itself
    CLIENT_ASSERTION = "client credentials with an assertion"
    JWT_BEARER = "an assertion"
    FILE = "a file"
    STATIC = "the file of settings"
    UNSECURED = "claims without a signature"
    MSK_IAM = "AWS credentials"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assertion:
    """A JWT that identifies the client: read from `file`, or created and signed for each request."""

    file: str = ""
    algorithm: str = "RS256"
    key_file: str = ""
    key_password: str = field(default="", repr=False)
    template_file: str = ""
    """JSON with `header` and `payload`, to which the other claims are added."""
    claims: tuple[tuple[str, str], ...] = ()
    """aud, iss and sub, if they are configured."""
    lifetime_seconds: int = 300
    backdated_seconds: int = 60
    """How far `nbf` lies in the past, because clocks differ."""
    with_id: bool = False
    """Add `jti`, different each time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsecuredClaims:
    """The claims of an unsigned token: Kafka's login for development."""

    texts: tuple[tuple[str, str], ...] = ()
    numbers: tuple[tuple[str, float], ...] = ()
    lists: tuple[tuple[str, tuple[str, ...]], ...] = ()
    lifetime_seconds: int = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsIdentity:
    """The AWS credentials that sign the token: the default chain, a profile, or an assumed role."""

    region: str
    profile: str = ""
    role_arn: str = ""
    role_session: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshWindow:
    """Java's `sasl.login.refresh.*`: a token is replaced after `factor` to `factor + jitter` of its life, not
    before `min_period_seconds` and at the latest `buffer_seconds` before its end, if it lives that long."""

    factor: float = 0.8
    jitter: float = 0.05
    min_period_seconds: float = 60.0
    buffer_seconds: float = 300.0

    def refresh_at(self, begun_at: float, expires_at: float, chance: float) -> float:
        """When to replace a token; `chance` from 0 to 1 keeps clients from replacing theirs at the same
        time."""
        proposed = begun_at + (expires_at - begun_at) * (self.factor + self.jitter * chance)
        if self.min_period_seconds + self.buffer_seconds > expires_at - begun_at:
            return proposed
        return max(min(proposed, expires_at - self.buffer_seconds), begun_at + self.min_period_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthLogin:
    """Equal logins share one token."""

    grant: Grant
    endpoint: str = ""
    """URL of the token server, or the path of a file."""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    static_token: str = field(default="", repr=False)
    scope: str = ""
    audience: str = ""
    encode_header: bool = False
    """Percent-encode id and secret in the Basic header, as RFC 6749 requires and many servers do not
    support."""
    assertion: Assertion | None = None
    unsecured: UnsecuredClaims | None = None
    aws: AwsIdentity | None = None
    extensions: tuple[tuple[str, str], ...] = ()
    """SASL extensions, which the broker gets in addition to the token."""
    tls: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """`ssl.*` for the token server; empty = the system's authorities."""
    timeout_seconds: float = 10.0
    backoff_seconds: float = 0.1
    backoff_max_seconds: float = 10.0
    window: RefreshWindow = RefreshWindow()

    @property
    def mechanism(self) -> str:
        """The mechanism's name for the broker."""
        return MECHANISM


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """`expires_at` in seconds since 1970."""

    text: str = field(repr=False)
    expires_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenOutlook:
    """The state of a token, without fetching another one."""

    expires_at: float | None
    """Seconds since 1970; None before the first token."""
    lifetime_seconds: float
    """From when it was issued, if it tells, else from when it was first seen; 0 before the first."""
    failing: bool
    """The last attempt to get a token failed."""


class TokenError(Exception):
    """There is no token. `refused`: a retry will not help. The message contains no secret."""

    def __init__(self, problem: str, *, refused: bool = False) -> None:
        super().__init__(problem)
        self.refused = refused


def checked(text: str, expires_at: float | None, *, where: str, now: float) -> Token:
    """The token. Raises TokenError if it is not a token, has expired, or has no expiry."""
    if not _SHAPE.fullmatch(text):
        raise TokenError(f"{where} gave no token", refused=True)
    if expires_at is None:
        raise TokenError(f"{where} gave a token that does not say when it expires", refused=True)
    if expires_at <= now:
        raise TokenError(f"{where} gave a token that expired {now - expires_at:.0f} s ago")
    return Token(text=text, expires_at=expires_at)


JAAS = "sasl.jaas.config"
URL = "sasl.oauthbearer.token.endpoint.url"
_EXTENSION_NAME, _EXTENSION_VALUE = re.compile(r"[A-Za-z]+"), re.compile(r"[\x21-\x7e \t\r\n]+")
_WINDOW = {
    "sasl.login.refresh.window.factor": ("factor", 0.5, 1.0),
    "sasl.login.refresh.window.jitter": ("jitter", 0.0, 0.25),
    "sasl.login.refresh.min.period.seconds": ("min_period_seconds", 0.0, 900.0),
    "sasl.login.refresh.buffer.seconds": ("buffer_seconds", 0.0, 3600.0),
}
"""With Kafka's ranges."""


class LoginReader:
    """The settings of one client of one cluster. Methods raise ConfigError with cluster, key and remedy for a
    setting that cannot be followed."""

    def __init__(self, properties: Mapping[str, str], entry: LoginEntry | None, alias: str) -> None:
        """`entry` is that of `sasl.jaas.config`; None when it is not set."""
        self.properties = properties
        self.options: Mapping[str, str] = {} if entry is None else entry.options
        """The options of the JAAS entry."""
        self._alias = alias

    def text(self, key: str) -> str:
        return self.properties.get(key, "").strip()

    def either(self, key: str, option: str) -> str:
        return self.text(key) or self.options.get(option, "").strip()

    def boolean(self, key: str) -> bool:
        text = self.text(key).lower()
        if text not in ("", "true", "false"):
            raise self.refused(key, f"{text!r} is neither true nor false")
        return text == "true"

    def _milliseconds(self, key: str, default: int) -> int:
        text = self.text(key)
        if not text:
            return default
        if not text.isdecimal() or int(text) == 0:
            raise self.refused(key, f"{text!r} is not a whole number above 0")
        return int(text)

    def seconds(self, key: str, default: int) -> int:
        text = self.text(key)
        if text and not text.isdecimal():
            raise self.refused(key, f"{text!r} is not a whole number from 0 up")
        return int(text) if text else default

    def number_option(self, name: str, value: str) -> float:
        try:
            return float(value)
        except ValueError:
            raise self.refused(JAAS, f"{name} is not a number") from None

    def one_of(self, key: str, names: tuple[str, ...]) -> str:
        """The class that a key names, without its package."""
        name = class_name(self.text(key))
        if name not in names:
            known = ", ".join(filter(None, names))
            raise self.refused(key, f"{name} is not supported; use {known}, or leave the key out")
        return name

    def check_url(self, url: str, key: str) -> None:
        parts = urlsplit(url)
        if not url:
            what = "oauth.token.endpoint.uri" if key == JAAS else "it"
            raise self.refused(key, f"{what} is missing; set it to the address where tokens are given")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise self.refused(key, "it is not an address with https, http or (for a token's file) file")
        if parts.username or parts.password:
            raise self.refused(key, "it holds a user or password; use the keys of client credentials")

    def file_of(self, url: str) -> str:
        path = unquote(urlsplit(url).path)
        if not path:
            raise self.refused(URL, "it names no file")
        return path

    def refused(self, key: str, problem: str) -> ConfigError:
        return refused(self._alias, key, problem)

    def made(self, *, grant: Grant, **given: Any) -> OAuthLogin:
        """`given`: further fields of the login."""
        first_ms = self._milliseconds("sasl.login.retry.backoff.ms", 100)
        return OAuthLogin(
            grant=grant,
            **given,
            extensions=self._extensions(),
            tls=tuple((name, value) for name, value in self.options.items() if name.startswith("ssl.")),
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

    def _extensions(self) -> tuple[tuple[str, str], ...]:
        found: dict[str, str] = {}
        for option, value in self.options.items():
            for prefix in ("extension_", "unsecuredLoginExtension_"):
                name = option.removeprefix(prefix)
                if name == option:
                    continue
                valid = _EXTENSION_NAME.fullmatch(name) and _EXTENSION_VALUE.fullmatch(value)
                if not valid or name == "auth":
                    raise self.refused(JAAS, f"{option} is no SASL extension: letters, and printable text")
                found[name] = value
        return tuple(found.items())

    def _window(self) -> RefreshWindow:
        values: dict[str, float] = {}
        for key, (name, least, most) in _WINDOW.items():
            text = self.text(key)
            if not text:
                continue
            try:
                values[name] = float(text)
            except ValueError:
                values[name] = -1.0
            if not least <= values[name] <= most:
                raise self.refused(key, f"{text!r} is not a number from {least:g} to {most:g}")
        return RefreshWindow(**values)


def class_name(text: str) -> str:
    return text.rpartition(".")[2]
