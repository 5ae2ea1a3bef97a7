"""What is needed to get a token for OAUTHBEARER, and the token. Plain data; repr shows no secret."""

import re
from dataclasses import dataclass, field
from enum import StrEnum

MECHANISM = "OAUTHBEARER"
_SHAPE = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
"""RFC 6750: nothing else may stand in a message to a broker or a header to a server."""


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
    """A JWT that says who the client is: read from `file`, else made and signed for each request."""

    file: str = ""
    algorithm: str = "RS256"
    key_file: str = ""
    key_password: str = field(default="", repr=False)
    template_file: str = ""
    """JSON with `header` and `payload`: what the other claims are laid over."""
    claims: tuple[tuple[str, str], ...] = ()
    """aud, iss, sub, as far as they are set."""
    lifetime_seconds: int = 300
    backdated_seconds: int = 60
    """How far `nbf` lies before now: clocks differ."""
    with_id: bool = False
    """`jti`, another one each time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsecuredClaims:
    """Claims of a token that anybody can make: Kafka's login for development."""

    texts: tuple[tuple[str, str], ...] = ()
    numbers: tuple[tuple[str, float], ...] = ()
    lists: tuple[tuple[str, tuple[str, ...]], ...] = ()
    lifetime_seconds: int = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsIdentity:
    """Which AWS credentials sign the token: the default chain, a profile, or a role that is assumed."""

    region: str
    profile: str = ""
    role_arn: str = ""
    role_session: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshWindow:
    """Java's `sasl.login.refresh.*`: a token is replaced after `factor` to `factor + jitter` of its life,
    not before `min_period_seconds` and at the latest `buffer_seconds` before its end, if it lives that long.
    """

    factor: float = 0.8
    jitter: float = 0.05
    min_period_seconds: float = 60.0
    buffer_seconds: float = 300.0

    def refresh_at(self, begun_at: float, expires_at: float, chance: float) -> float:
        """When to replace a token; `chance` from 0 to 1 keeps clients from doing so all at once."""
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
    """Percent-encode id and secret in the Basic header, as RFC 6749 asks and many servers do not."""
    assertion: Assertion | None = None
    unsecured: UnsecuredClaims | None = None
    aws: AwsIdentity | None = None
    extensions: tuple[tuple[str, str], ...] = ()
    """SASL extensions, sent to the broker beside the token."""
    tls: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """`ssl.*` towards the token server; empty = the system's authorities."""
    timeout_seconds: float = 10.0
    backoff_seconds: float = 0.1
    backoff_max_seconds: float = 10.0
    window: RefreshWindow = RefreshWindow()

    @property
    def mechanism(self) -> str:
        """What the broker is told."""
        return MECHANISM


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """`expires_at` in seconds since 1970."""

    text: str = field(repr=False)
    expires_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenOutlook:
    """What is known of a token without asking for another one."""

    expires_at: float | None
    """Seconds since 1970; None before the first token."""
    lifetime_seconds: float
    """From when it was issued, as far as it says so, else from when it was first seen; 0 before the first."""
    failing: bool
    """The last attempt to get one failed."""


class TokenError(Exception):
    """No token was given. `refused`: another try will not help. The message holds no secret."""

    def __init__(self, problem: str, *, refused: bool = False) -> None:
        super().__init__(problem)
        self.refused = refused


def checked(text: str, expires_at: float | None, *, where: str, now: float) -> Token:
    """The token. Raises TokenError for what is no token, has expired, or never says when it does."""
    if not _SHAPE.fullmatch(text):
        raise TokenError(f"{where} gave no token", refused=True)
    if expires_at is None:
        raise TokenError(f"{where} gave a token that does not say when it expires", refused=True)
    if expires_at <= now:
        raise TokenError(f"{where} gave a token that expired {now - expires_at:.0f} s ago")
    return Token(text=text, expires_at=expires_at)
