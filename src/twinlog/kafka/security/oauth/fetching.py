"""Gets one token: from a token server, a file, or created here. Blocks for at most `timeout_seconds` until a
server answers, and as long again while it sends its answer.

Messages name the source and its error code (`invalid_client`), never a request, an answer or a token.
"""

import base64
import http.client
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from urllib.parse import quote_plus, urlencode, urlsplit

from twinlog import strange_json
from twinlog.http_answers import NoRedirects, read_answer
from twinlog.kafka.security.oauth.jwt import (
    assertion_text,
    expiry_of,
    read_small,
    seconds_of,
    unsecured_token,
)
from twinlog.kafka.security.oauth.reading import Assertion, Grant, OAuthLogin, Token, TokenError, checked
from twinlog.kafka.security.oauth.settings import msk_token

_MAX_ANSWER_BYTES = 1 << 20
_ERROR_CODE = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_TOO_MANY = 429
_REQUEST_TIMEOUT = 408
_ASSERTION_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


def fetch_token(login: OAuthLogin, tls: Callable[[], ssl.SSLContext | None], now: float) -> Token:
    """A fresh token; `tls` is called for a token server. Raises TokenError, or what `tls` raises."""
    if login.grant is Grant.FILE:
        text = read_small(login.endpoint).decode("ascii", "replace").strip()
        return checked(text, expiry_of(text), where=login.endpoint, now=now)
    if login.grant is Grant.STATIC:
        return checked(login.static_token, expiry_of(login.static_token), where="the file", now=now)
    if login.unsecured is not None:
        text, expires_at = unsecured_token(login.unsecured, now)
        return checked(text, expires_at, where="unsecuredLoginLifetimeSeconds", now=now)
    if login.aws is not None:
        text, expires_at = msk_token(login.aws)
        return checked(text, expires_at, where="the signer", now=now)
    return _from_server(login, tls(), now)


def _from_server(login: OAuthLogin, context: ssl.SSLContext | None, now: float) -> Token:
    headers = {
        "Accept": "application/json",
        "Cache-Control": "no-cache",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    form = {"grant_type": "client_credentials"}
    if login.grant is Grant.CLIENT_SECRET:
        headers["Authorization"] = f"Basic {_basic(login)}"
    elif login.grant is Grant.JWT_BEARER:
        form = {"grant_type": _ASSERTION_GRANT, "assertion": _assertion(login.assertion, now)}
    else:
        form |= {
            "client_assertion_type": _ASSERTION_TYPE,
            "client_assertion": _assertion(login.assertion, now),
        }
        if login.client_id:
            form["client_id"] = login.client_id
    form |= {name: text for name, text in (("scope", login.scope), ("audience", login.audience)) if text}
    request = urllib.request.Request(  # noqa: S310  # http and https only: see settings.py
        login.endpoint, data=urlencode(form).encode("ascii"), headers=headers, method="POST"
    )
    opener = urllib.request.build_opener(NoRedirects, urllib.request.HTTPSHandler(context=context))
    where = urlsplit(login.endpoint)._replace(query="").geturl()
    try:
        with opener.open(request, timeout=login.timeout_seconds) as answer:
            content = read_answer(answer, most_bytes=_MAX_ANSWER_BYTES + 1, seconds=login.timeout_seconds)
    except urllib.error.HTTPError as error:
        with error:
            raise _refusal(where, error.code, _error_body(error, login.timeout_seconds)) from None
    except (OSError, http.client.HTTPException) as error:
        cause = getattr(error, "reason", error)
        raise TokenError(f"{where} cannot be reached: {cause}") from error
    return _read_answer(content, where, now)


def _error_body(error: urllib.error.HTTPError, timeout_seconds: float) -> bytes:
    """What a token server says beside a status that is an error; empty where its answer breaks off."""
    try:
        return read_answer(error, most_bytes=_MAX_ANSWER_BYTES, seconds=timeout_seconds)
    except (OSError, http.client.HTTPException):
        return b""


def _read_answer(content: bytes, where: str, now: float) -> Token:
    try:
        fields = strange_json.loads(content) if len(content) <= _MAX_ANSWER_BYTES else None
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        raise TokenError(f"{where} answered with something else than a JSON object")
    text = fields.get("access_token") or fields.get("id_token")
    if not isinstance(text, str):
        raise TokenError(f"{where} answered without access_token")
    expires_at = expiry_of(text)
    lifetime_seconds = seconds_of(fields.get("expires_in"))
    if expires_at is None and lifetime_seconds is not None:
        expires_at = now + lifetime_seconds
    return checked(text.strip(), expires_at, where=where, now=now)


def _refusal(where: str, status: int, content: bytes) -> TokenError:
    try:
        code = strange_json.loads(content).get("error", "")
    except (ValueError, AttributeError):
        code = ""
    told = f" {code}" if isinstance(code, str) and _ERROR_CODE.fullmatch(code) else ""
    final = 300 <= status < 500 and status not in (_TOO_MANY, _REQUEST_TIMEOUT)
    return TokenError(f"{where} answered {status}{told}", refused=final)


def _basic(login: OAuthLogin) -> str:
    name, secret = login.client_id, login.client_secret
    if login.encode_header:
        name, secret = quote_plus(name), quote_plus(secret)
    return base64.b64encode(f"{name}:{secret}".encode()).decode("ascii")


def _assertion(assertion: Assertion | None, now: float) -> str:
    if assertion is None:
        raise TokenError("no assertion is configured", refused=True)
    return assertion_text(assertion, now)
