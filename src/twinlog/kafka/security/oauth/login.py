"""The settings of an OAUTHBEARER login, and the token. Plain data; repr shows no secret."""

import re
from dataclasses import dataclass, field
from enum import StrEnum

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
