"""Tokens of an OpenID provider: JWTs whose signature, issuer, audience and times are checked.

A thread asks the provider for its keys, at most once in `MIN_REFRESH_SECONDS` and never twice at the same
time, whatever tokens arrive. While the provider is away, known keys stay valid for `MAX_AGE_SECONDS`.

Invariants: a call with a known key does not wait for the provider; the provider's answer is kept even if the
call that caused the request has ended.
"""

import asyncio
import contextvars
import http.client
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import jwt
import structlog

from twinlog import strange_json
from twinlog.clock import Clock, SystemClock
from twinlog.config.security import AuthSettings, OidcSettings, is_trusted_url
from twinlog.errors import WireFormatError
from twinlog.http_answers import NoRedirects, read_answer
from twinlog.service.access.roles import Caller, role_of
from twinlog.service.errors_wire import PeerUnavailableError, UnauthenticatedError

_log = structlog.stdlib.get_logger(__name__)

REFRESH_SECONDS = 300.0
MIN_REFRESH_SECONDS = 10.0
MAX_AGE_SECONDS = 24 * 3600.0
FETCH_SECONDS = 5.0
ANSWER_SECONDS = 2 * FETCH_SECONDS + 1
"""The longest wait of a call for the provider."""
MAX_DOCUMENT_BYTES = 1 << 20
MAX_KEYS = 64
MAX_TEXT = 256
"""Most characters of a subject or a group. Longer ones are refused, not cut: the shortened name may be
another's."""

_PUBLIC_KINDS = ("RSA", "EC", "OKP")
"""Accepted kinds of keys. A shared key (`oct`) would let anybody who reads it sign tokens."""

Keys = dict[str, jwt.PyJWK]
Fetch = Callable[[], Keys]


class OidcVerifier:
    """`TokenVerifier` for one provider."""

    def __init__(
        self,
        settings: OidcSettings,
        auth: AuthSettings,
        *,
        clock: Clock | None = None,
        fetch: Fetch | None = None,
    ) -> None:
        """`fetch` blocks and returns the provider's keys by id; raises OSError, WireFormatError."""
        self._settings = settings
        self._auth = auth
        self._clock = clock or SystemClock()
        self._fetch = fetch or (lambda: fetch_keys(settings))
        self._keys: Keys = {}
        self._read_at: float | None = None
        self._asked_at: float | None = None
        self._problem = "it has not answered yet"
        self._refreshing: asyncio.Task[None] | None = None

    async def verify(self, token: str) -> Caller:
        """Raises UnauthenticatedError (TOKEN_EXPIRED, TOKEN_INVALID), and PeerUnavailableError
        (TOKEN_SERVER_UNAVAILABLE) while the provider's keys are not known."""
        key = await self._key_of(token)
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                # Pass the bare key: with the whole PyJWK, a key without `alg` fits one algorithm only.
                key.key,
                algorithms=list(self._settings.algorithms),
                issuer=self._settings.issuer,
                audience=self._settings.audience,
                leeway=self._settings.clock_skew_seconds,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        except jwt.ExpiredSignatureError as error:
            raise UnauthenticatedError(
                "the token has expired: get a new one", reason="TOKEN_EXPIRED"
            ) from error
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            # The error names the wrong claim, never the token.
            raise _invalid(str(error) or type(error).__name__) from error
        subject = str(claims["sub"])
        if len(subject) > MAX_TEXT:
            raise _invalid(f"its subject has more than {MAX_TEXT} characters")
        groups = _values(claims, self._settings.roles_claim)
        principals = (f"sub:{subject}", *(f"group:{group}" for group in groups))
        return Caller(name=f"sub:{subject}", role=role_of(principals, self._auth), via="oidc")

    async def _key_of(self, token: str) -> jwt.PyJWK:
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError) as error:
            raise _invalid("it is not a JWT") from error
        if header.get("alg") not in self._settings.algorithms:
            raise _invalid("its algorithm is not among twinlog.auth.oidc.algorithms")
        wanted = str(header.get("kid", ""))
        known = wanted in self._keys
        if self._is_due(known=known):
            self._asked_at = self._clock.monotonic()
            # The task belongs to no call: it survives the caller, and its log lines name none. `_refresh` is
            # bounded.
            self._refreshing = asyncio.create_task(  # noqa: TID251
                self._refresh(), name="oidc-keys", context=contextvars.Context()
            )
        if self._refreshing is not None and not (known and self._age() <= MAX_AGE_SECONDS):
            await asyncio.wait({self._refreshing}, timeout=ANSWER_SECONDS)
        if self._age() > MAX_AGE_SECONDS:
            raise PeerUnavailableError(
                f"the keys of {self._settings.issuer} are not known: {self._problem}; check that it is up,"
                " and twinlog.auth.oidc.jwks.url",
                reason="TOKEN_SERVER_UNAVAILABLE",
                metadata={"issuer": self._settings.issuer},
            )
        if wanted not in self._keys:
            raise _invalid("its key is not one of the provider's")
        return self._keys[wanted]

    def _is_due(self, *, known: bool) -> bool:
        if self._refreshing is not None and not self._refreshing.done():
            return False
        if self._asked_at is not None and self._clock.monotonic() - self._asked_at < MIN_REFRESH_SECONDS:
            return False
        return not known or self._age() > REFRESH_SECONDS

    def _age(self) -> float:
        return float("inf") if self._read_at is None else self._clock.monotonic() - self._read_at

    async def _refresh(self) -> None:
        try:
            # As long as its thread lasts: a provider that hangs occupies one thread, not one for each
            # request.
            keys = await asyncio.to_thread(self._fetch)
        except (OSError, WireFormatError) as error:
            problem = str(error) or type(error).__name__
            if problem != self._problem:
                _log.warning("token_server_unavailable", issuer=self._settings.issuer, message=problem)
            self._problem = problem
        else:
            self._keys, self._problem = keys, ""
            self._read_at = self._clock.monotonic()


def _invalid(why: str) -> UnauthenticatedError:
    return UnauthenticatedError(
        f"the token is not accepted: {why}; it must be of twinlog.auth.oidc.issuer, for"
        " twinlog.auth.oidc.audience",
        reason="TOKEN_INVALID",
    )


def _values(claims: Any, path: str) -> list[str]:
    """The values of the claim of this name, which may contain dots (`https://example.com/roles`), else of a
    nested claim."""
    for name in [path] if path in claims else path.split("."):
        claims = claims.get(name) if isinstance(claims, dict) else None
    if isinstance(claims, str):
        claims = claims.split()
    names = claims if isinstance(claims, list) else []
    return [each for each in names if isinstance(each, str) and len(each) <= MAX_TEXT]


def fetch_keys(settings: OidcSettings) -> Keys:
    """Ask the provider. Blocks for up to twice FETCH_SECONDS; raises OSError, WireFormatError."""
    context = ssl.create_default_context(cafile=settings.ca_file or None)
    handlers = (urllib.request.HTTPSHandler(context=context), NoRedirects())
    opener = urllib.request.build_opener(urllib.request.ProxyHandler(), *handlers)
    url = settings.jwks_url
    if not url:
        discovery = f"{settings.issuer.rstrip('/')}/.well-known/openid-configuration"
        url = str(_document(opener, discovery).get("jwks_uri", ""))
        if not is_trusted_url(url):
            raise WireFormatError(f"{discovery} names no https jwks_uri")
    found = _document(opener, url).get("keys")
    if not isinstance(found, list):
        raise WireFormatError(f"{url} is no JSON Web Key Set")
    keys: Keys = {}
    for each in found[:MAX_KEYS]:
        try:
            if each.get("use", "sig") == "sig" and each.get("kty") in _PUBLIC_KINDS:
                keys[str(each.get("kid", ""))] = jwt.PyJWK.from_dict(each)
        except (jwt.PyJWTError, AttributeError, ValueError, TypeError):
            continue  # an unknown kind of key
    return keys


def _document(opener: urllib.request.OpenerDirector, url: str) -> dict[str, Any]:
    try:
        with opener.open(url, timeout=FETCH_SECONDS) as answer:
            content = read_answer(answer, most_bytes=MAX_DOCUMENT_BYTES, seconds=FETCH_SECONDS)
    except urllib.error.HTTPError as error:
        error.close()
        raise WireFormatError(f"{url} answered {error.code}") from error
    except (OSError, http.client.HTTPException) as error:
        raise WireFormatError(f"{url} is not reached: {str(error) or type(error).__name__}") from error
    try:
        found = strange_json.loads(content)
    except ValueError as error:
        raise WireFormatError(f"{url} is no JSON") from error
    if not isinstance(found, dict):
        raise WireFormatError(f"{url} is no JSON object")
    return found
