"""Tokens of an OpenID provider, from a small one of the test's own on loopback."""

import asyncio
import base64
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from contract.access.access_rig import METHODS, TIMEOUT_SECONDS, expected, opened
from twinlog.clock import SystemClock
from twinlog.config.security import AuthSettings, OidcSettings
from twinlog.errors import TwinlogError
from twinlog.service.access.oidc import (
    MAX_AGE_SECONDS,
    MAX_TEXT,
    MIN_REFRESH_SECONDS,
    REFRESH_SECONDS,
    Keys,
    OidcVerifier,
)
from twinlog.service.access.roles import Role
from twinlog.testing.brokers import eventually
from twinlog.testing.virtual_time import FakeClock

AUTH = AuthSettings(viewers=("*",), operators=("sub:robot-7",), admins=("group:mirror-admin",))
KEYS = {"one": ec.generate_private_key(ec.SECP256R1()), "two": ec.generate_private_key(ec.SECP256R1())}
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def public(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(KEYS[name].public_key()))
    return {**found, "kid": name, "use": "sig", "alg": "ES256"}


@dataclass(slots=True)
class Provider:
    """Serves its discovery document and keys over HTTP; `answer` overrides every answer."""

    port: int = 0
    keys: list[dict[str, Any]] = field(default_factory=lambda: [public("one")])
    answer: bytes | None = None
    asked: int = 0

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self.port}/realm"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.asked += 1
        document = (
            {"jwks_uri": f"{self.issuer}/keys"} if b"well-known" in head.split()[1] else {"keys": self.keys}
        )
        body = json.dumps(document).encode()
        whole = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(body), body)
        writer.write(whole if self.answer is None else self.answer)
        await writer.drain()
        writer.close()

    def token(self, *, key: str = "one", algorithm: str = "ES256", **changes: Any) -> str:
        now = SystemClock().now_ms() // 1000
        claims = {"iss": self.issuer, "aud": "twinlog", "sub": "ann", "exp": now + 600, **changes}
        claims = {name: value for name, value in claims.items() if value is not None}
        token: str = jwt.encode(claims, KEYS[key], algorithm=algorithm, headers={"kid": key})
        return token

    def verifier(self, clock: FakeClock | None = None, **changes: Any) -> OidcVerifier:
        settings = OidcSettings(**{"issuer": self.issuer, "audience": "twinlog", **changes})
        return OidcVerifier(settings, AUTH, clock=clock or FakeClock())


@asynccontextmanager
async def listening(provider: Provider) -> AsyncIterator[Provider]:
    server = await asyncio.start_server(provider.serve, "127.0.0.1", provider.port)
    provider.port = server.sockets[0].getsockname()[1]
    async with server:
        yield provider


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    async with listening(Provider()) as started:
        yield started


async def reason(verifier: OidcVerifier, token: str) -> str:
    with pytest.raises(TwinlogError) as refused:
        await verifier.verify(token)
    assert token not in str(refused.value)
    return refused.value.reason


@pytest.mark.parametrize(
    ("claims", "role"),
    [
        ({}, Role.VIEWER),
        ({"groups": ["other", "mirror-admin"]}, Role.ADMIN),
        ({"groups": "other mirror-admin"}, Role.ADMIN),
        ({"groups": {"mirror-admin": True}}, Role.VIEWER),
        ({"sub": "robot-7"}, Role.OPERATOR),
    ],
)
async def test_claims_become_a_role(provider: Provider, claims: dict[str, Any], role: Role) -> None:
    caller = await provider.verifier().verify(provider.token(**claims))
    assert (caller.role, caller.via) == (role, "oidc")
    assert caller.name == f"sub:{claims.get('sub', 'ann')}"


@pytest.mark.parametrize(
    ("claims", "role"),
    [
        ({}, Role.VIEWER),
        ({"sub": "robot-7"}, Role.OPERATOR),
        ({"groups": ["mirror-admin"]}, Role.ADMIN),
    ],
)
async def test_every_method_for_a_token_of_the_provider_of_every_role(
    provider: Provider, tmp_path: Path, claims: dict[str, Any], role: Role
) -> None:
    async with opened(tmp_path, oidc=provider.verifier()) as port:
        refused = await port.every_refusal(port.client(token=provider.token(**claims)))
        assert refused == {method.full_name: expected(method, role) for method in METHODS}
        assert {name for _, name in port.seen} == {f"sub:{claims.get('sub', 'ann')}"}


async def test_while_the_provider_is_away_others_are_served(tmp_path: Path) -> None:
    async with listening(Provider()) as provider:
        token, verifier = provider.token(), provider.verifier()
    async with opened(tmp_path, tokens=True, oidc=verifier) as port:
        refused = await port.every_refusal(port.client(token=token))
        assert set(refused.values()) == {"TOKEN_SERVER_UNAVAILABLE", "WRONG_PORT"}
        refused = await port.every_refusal(port.client(token="admin-token"))
        assert set(refused.values()) == {"", "WRONG_PORT"}


async def test_roles_may_be_in_a_nested_claim(provider: Provider) -> None:
    verifier = provider.verifier(roles_claim="realm_access.roles")
    caller = await verifier.verify(provider.token(realm_access={"roles": ["mirror-admin"]}))
    assert caller.role is Role.ADMIN


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ({"exp": 1}, "TOKEN_EXPIRED"),
        ({"exp": None}, "TOKEN_INVALID"),
        ({"iss": "https://elsewhere.example"}, "TOKEN_INVALID"),
        ({"iss": None}, "TOKEN_INVALID"),
        ({"aud": "another-service"}, "TOKEN_INVALID"),
        ({"aud": None}, "TOKEN_INVALID"),
        ({"sub": None}, "TOKEN_INVALID"),
        ({"nbf": 99_999_999_999}, "TOKEN_INVALID"),
    ],
)
async def test_a_claim_that_is_wrong_or_missing_refuses_the_token(
    provider: Provider, claims: dict[str, Any], expected: str
) -> None:
    assert await reason(provider.verifier(), provider.token(**claims)) == expected


async def test_names_of_any_length_are_never_cut_into_those_of_others(provider: Provider) -> None:
    long = "a" * MAX_TEXT
    auth = AuthSettings(viewers=("*",), operators=(f"sub:{long}",), admins=(f"group:{long}",))
    settings = OidcSettings(issuer=provider.issuer, audience="twinlog")
    verifier = OidcVerifier(settings, auth, clock=FakeClock())
    assert (await verifier.verify(provider.token(groups=[long]))).role is Role.ADMIN
    assert (await verifier.verify(provider.token(groups=[f"{long}b"]))).role is Role.VIEWER
    assert await reason(verifier, provider.token(sub=f"{long}b")) == "TOKEN_INVALID"


async def test_clocks_may_differ_by_the_skew_that_is_configured(provider: Provider) -> None:
    now = SystemClock().now_ms() // 1000
    late = provider.token(exp=now - 60)
    assert await reason(provider.verifier(clock_skew_seconds=5.0), late) == "TOKEN_EXPIRED"
    assert (await provider.verifier(clock_skew_seconds=300.0).verify(late)).name == "sub:ann"


async def test_a_signature_of_another_key_or_another_algorithm_is_refused(provider: Provider) -> None:
    verifier = provider.verifier()
    forged = jwt.encode({"sub": "ann"}, KEYS["two"], algorithm="ES256", headers={"kid": "one"})
    assert await reason(verifier, forged) == "TOKEN_INVALID"
    none = jwt.encode({"sub": "ann"}, "", algorithm="none", headers={"kid": "one"})
    assert await reason(verifier, none) == "TOKEN_INVALID"
    shared = jwt.encode({"sub": "ann"}, "s" * 64, algorithm="HS256", headers={"kid": "one"})
    assert await reason(verifier, shared) == "TOKEN_INVALID"
    other = jwt.encode({"sub": "ann"}, RSA, algorithm="RS512", headers={"kid": "one"})
    assert await reason(verifier, other) == "TOKEN_INVALID"
    assert await reason(verifier, "not.a.token") == "TOKEN_INVALID"


async def test_a_new_key_of_the_provider_is_found_and_an_old_one_is_forgotten(provider: Provider) -> None:
    clock = FakeClock()
    verifier = provider.verifier(clock)
    await verifier.verify(provider.token())
    provider.keys = [public("two")]
    clock.advance(MIN_REFRESH_SECONDS + 1)
    await verifier.verify(provider.token(key="two"))
    assert await reason(verifier, provider.token(key="one")) == "TOKEN_INVALID"


async def test_strange_tokens_do_not_make_us_ask_the_provider_again_and_again(provider: Provider) -> None:
    verifier = provider.verifier()
    await verifier.verify(provider.token())
    asked = provider.asked
    for number in range(20):
        strange = jwt.encode({}, KEYS["two"], algorithm="ES256", headers={"kid": f"k{number}"})
        assert await reason(verifier, strange) == "TOKEN_INVALID"
    assert provider.asked == asked


async def test_while_the_provider_is_away_known_keys_serve_for_a_day() -> None:
    clock = FakeClock()
    async with listening(Provider()) as provider:
        verifier = provider.verifier(clock)
        token = provider.token()
        await verifier.verify(token)
    clock.advance(REFRESH_SECONDS + 1)
    assert (await verifier.verify(token)).name == "sub:ann"
    clock.advance(MAX_AGE_SECONDS)
    assert await reason(verifier, token) == "TOKEN_SERVER_UNAVAILABLE"
    clock.advance(MIN_REFRESH_SECONDS + 1)
    async with listening(provider):
        assert (await verifier.verify(token)).name == "sub:ann"


@dataclass(slots=True)
class Hanging:
    """A provider whose answers wait for `free`, in the thread that asks."""

    keys: Keys
    free: threading.Event = field(default_factory=threading.Event)
    asked: int = 0

    def __call__(self) -> Keys:
        self.asked += 1
        assert self.free.wait(TIMEOUT_SECONDS)
        return dict(self.keys)


def hanging(clock: FakeClock) -> tuple[Hanging, OidcVerifier, str]:
    """The provider, a verifier that asks it, and a token of its key."""
    fetch = Hanging({"one": jwt.PyJWK.from_dict(public("one"))})
    settings = OidcSettings(issuer="https://id.example", audience="twinlog")
    token = Provider().token(iss=settings.issuer)
    return fetch, OidcVerifier(settings, AUTH, clock=clock, fetch=fetch), token


async def test_a_call_whose_key_is_known_does_not_wait_for_the_provider() -> None:
    clock = FakeClock()
    fetch, verifier, token = hanging(clock)
    fetch.free.set()
    await verifier.verify(token)
    fetch.free.clear()
    clock.advance(REFRESH_SECONDS + 1)
    try:
        for _ in range(3):
            assert (await verifier.verify(token)).name == "sub:ann"
            clock.advance(MIN_REFRESH_SECONDS + 1)
        await eventually(lambda: fetch.asked == 2)
        assert not fetch.free.is_set(), "the answers came while the provider was silent"
    finally:
        fetch.free.set()


async def test_what_the_provider_answers_is_kept_when_the_call_that_asked_is_gone() -> None:
    fetch, verifier, token = hanging(FakeClock())
    async with asyncio.TaskGroup() as group:
        first = group.create_task(verifier.verify(token), name="first")
        second = group.create_task(verifier.verify(token), name="second")
        await eventually(lambda: fetch.asked == 1)
        first.cancel()
        await asyncio.wait({first})
        fetch.free.set()
    assert first.cancelled()
    assert second.result().name == "sub:ann"
    assert (await verifier.verify(token)).name == "sub:ann"
    assert fetch.asked == 1


@pytest.mark.parametrize("algorithm", ["RS256", "RS512", "PS256"])
async def test_a_key_that_names_no_algorithm_serves_all_of_its_kind(
    provider: Provider, algorithm: str
) -> None:
    found = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(RSA.public_key()))
    provider.keys = [{**found, "kid": "rsa"}]
    verifier = provider.verifier(algorithms=(algorithm,))
    claims = jwt.decode(provider.token(), options={"verify_signature": False})
    token = jwt.encode(claims, RSA, algorithm=algorithm, headers={"kid": "rsa"})
    assert (await verifier.verify(token)).name == "sub:ann"


async def test_a_shared_key_of_the_provider_is_not_taken(provider: Provider) -> None:
    secret = b"planted-" * 8
    encoded = base64.urlsafe_b64encode(secret).decode().rstrip("=")
    provider.keys = [{"kty": "oct", "kid": "shared", "k": encoded}]
    claims = jwt.decode(provider.token(), options={"verify_signature": False})
    token = jwt.encode(claims, secret, algorithm="HS256", headers={"kid": "shared"})
    assert await reason(provider.verifier(algorithms=("HS256",)), token) == "TOKEN_INVALID"


async def test_the_name_of_a_claim_may_have_dots(provider: Provider) -> None:
    name = "https://twinlog.example/roles"
    claims: dict[str, Any] = {name: ["mirror-admin"]}
    caller = await provider.verifier(roles_claim=name).verify(provider.token(**claims))
    assert caller.role is Role.ADMIN


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\n<htm>",
        b'HTTP/1.1 200 OK\r\nContent-Length: 41\r\nConnection: close\r\n\r\n{"jwks_uri": "http://elsewhere.example/k"}',
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n[]",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\nConnection: close\r\n\r\n" + b"[" * 100_000,
        b"HTTP/1.1 200 OK\r\nContent-Length: 200\r\nConnection: close\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{",
        b"no HTTP\r\n\r\n",
    ],
)
async def test_a_provider_that_answers_nonsense_is_named(provider: Provider, answer: bytes) -> None:
    provider.answer = answer
    verifier = provider.verifier()
    with pytest.raises(TwinlogError, match="the keys of http://127") as refused:
        await verifier.verify(provider.token())
    assert (refused.value.reason, refused.value.retriable) == ("TOKEN_SERVER_UNAVAILABLE", True)
