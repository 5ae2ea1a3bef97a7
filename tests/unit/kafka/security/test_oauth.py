"""Logging in by tokens: what each key means, what is refused, and when a token is fetched."""

import base64
import json
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from twinlog.clock import SystemClock
from twinlog.errors import ConfigError
from twinlog.kafka.clients import aiokafka_client_options
from twinlog.kafka.errors import translate
from twinlog.kafka.security.access import TokenKeeper, client_security
from twinlog.kafka.security.oauth.fetching import fetch_token
from twinlog.kafka.security.oauth.jwt import assertion_text, expiry_of, lifetime_of
from twinlog.kafka.security.oauth.reading import (
    Assertion,
    Grant,
    OAuthLogin,
    RefreshWindow,
    Token,
    TokenError,
    TokenOutlook,
    checked,
)
from twinlog.kafka.security.oauth.settings import region_of
from unit.cases import about

NOW = float(SystemClock().now_ms() // 1000)
HANDLER = "sasl.login.callback.handler.class"
BASE = {
    "bootstrap.servers": "one:9092",
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.jaas.config": "a.b.OAuthBearerLoginModule required;",
    HANDLER: "a.b.OAuthBearerLoginCallbackHandler",
    "sasl.oauthbearer.token.endpoint.url": "https://id.example/token",
    "sasl.oauthbearer.client.credentials.client.id": "me",
    "sasl.oauthbearer.client.credentials.client.secret": "planted",
}
ASSERTION = {
    "sasl.oauthbearer.assertion.claim.iss": "me",
    "sasl.oauthbearer.assertion.private.key.file": "/keys/one.pem",
}


def login_of(properties: Mapping[str, str]) -> OAuthLogin:
    login = client_security({**BASE, **properties}, alias="A").sasl
    assert isinstance(login, OAuthLogin)
    return login


def jaas(options: str) -> str:
    return f"a.b.OAuthBearerLoginModule required {options};"


def test_each_key_of_tokens_is_obeyed() -> None:
    login = login_of({})
    assert (login.grant, login.endpoint) == (Grant.CLIENT_SECRET, "https://id.example/token")
    assert (login.client_id, login.client_secret) == ("me", "planted")
    settings = {
        "sasl.oauthbearer.scope": "kafka",
        "sasl.oauthbearer.header.urlencode": "true",
        "sasl.oauthbearer.jwt.validator.class": "a.b.DefaultJwtValidator",
        "sasl.login.connect.timeout.ms": "3000",
        "sasl.login.read.timeout.ms": "4000",
        "sasl.login.retry.backoff.ms": "200",
        "sasl.login.retry.backoff.max.ms": "5000",
        "sasl.login.refresh.window.factor": "0.6",
        "sasl.login.refresh.window.jitter": "0.1",
        "sasl.login.refresh.min.period.seconds": "7",
        "sasl.login.refresh.buffer.seconds": "8",
    }
    login = login_of(settings)
    assert (login.scope, login.encode_header, login.timeout_seconds) == ("kafka", True, 4.0)
    assert (login.backoff_seconds, login.backoff_max_seconds) == (0.2, 5.0)
    assert login.window == RefreshWindow(factor=0.6, jitter=0.1, min_period_seconds=7, buffer_seconds=8)
    settings = {
        **ASSERTION,
        "sasl.oauthbearer.assertion.algorithm": "ES256",
        "sasl.oauthbearer.assertion.private.key.passphrase": "planted",
        "sasl.oauthbearer.assertion.template.file": "/template.json",
        "sasl.oauthbearer.assertion.claim.aud": "there",
        "sasl.oauthbearer.assertion.claim.sub": "myself",
        "sasl.oauthbearer.assertion.claim.exp.seconds": "30",
        "sasl.oauthbearer.assertion.claim.nbf.seconds": "5",
        "sasl.oauthbearer.assertion.claim.jti.include": "true",
    }
    login = login_of(settings)
    assert login.grant is Grant.CLIENT_ASSERTION
    assert login.assertion == Assertion(
        algorithm="ES256",
        key_file="/keys/one.pem",
        key_password="planted",
        template_file="/template.json",
        claims=(("aud", "there"), ("iss", "me"), ("sub", "myself")),
        lifetime_seconds=30,
        backdated_seconds=5,
        with_id=True,
    )
    bearer = {"sasl.oauthbearer.jwt.retriever.class": "a.b.JwtBearerJwtRetriever"}
    assert login_of({**bearer, **ASSERTION}).grant is Grant.JWT_BEARER
    login = login_of({"sasl.oauthbearer.assertion.file": "/assertion", **ASSERTION})
    assert login.assertion == Assertion(file="/assertion")


def test_files_of_tokens_and_options_of_other_logins_are_understood() -> None:
    login = login_of({"sasl.oauthbearer.token.endpoint.url": "file:///run/secrets/a%20token"})
    assert (login.grant, login.endpoint) == (Grant.FILE, "/run/secrets/a token")
    strimzi = {HANDLER: "io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler"}
    login = login_of({**strimzi, "sasl.jaas.config": jaas('oauth.access.token.location="/token"')})
    assert (login.grant, login.endpoint) == (Grant.FILE, "/token")
    login = login_of({"sasl.jaas.config": jaas('extension_logicalCluster="lkc-1" scope="s"')})
    assert (login.extensions, login.scope) == ((("logicalCluster", "lkc-1"),), "s")
    assert aiokafka_client_options(BASE | {"sasl.jaas.config": jaas('extension_pool="p"')})[
        "sasl_oauth_token_provider"
    ].extensions() == {"pool": "p"}


def test_the_login_for_development_makes_tokens_by_itself() -> None:
    options = 'unsecuredLoginStringClaim_sub="me" unsecuredLoginLifetimeSeconds="60"'
    login = login_of(
        {
            HANDLER: "",
            "sasl.oauthbearer.token.endpoint.url": "",
            "sasl.jaas.config": jaas(f'{options} unsecuredLoginListClaim_scope=",a,b"'),
        }
    )
    token = fetch_token(login, lambda: None, NOW)
    claims = jwt.decode(token.text, options={"verify_signature": False})
    assert (claims["sub"], claims["scope"], token.expires_at) == ("me", ["a", "b"], NOW + 60)


def test_what_cannot_be_obeyed_is_refused_with_its_key_and_remedy() -> None:
    for change, key, remedy in [
        ({HANDLER: "org.acme.Vault"}, HANDLER, "use one of"),
        ({"sasl.oauthbearer.token.endpoint.url": ""}, "sasl.oauthbearer.token.endpoint.url", "set it"),
        (
            {"sasl.oauthbearer.token.endpoint.url": "ftp://x/y"},
            "sasl.oauthbearer.token.endpoint.url",
            "https",
        ),
        (
            {"sasl.oauthbearer.token.endpoint.url": "https://me:planted@x/y"},
            "sasl.oauthbearer.token.endpoint.url",
            "client credentials",
        ),
        (
            {"sasl.oauthbearer.client.credentials.client.secret": ""},
            "sasl.oauthbearer.client.credentials.client.secret",
            "set it",
        ),
        (
            {"sasl.oauthbearer.jwt.retriever.class": "org.acme.Own"},
            "sasl.oauthbearer.jwt.retriever.class",
            "JwtBearerJwtRetriever",
        ),
        (
            {"sasl.oauthbearer.jwt.validator.class": "org.acme.Own"},
            "sasl.oauthbearer.jwt.validator.class",
            "leave the key out",
        ),
        (
            {"sasl.oauthbearer.assertion.claim.iss": "me"},
            "sasl.oauthbearer.assertion.private.key.file",
            "set it",
        ),
        (
            {**ASSERTION, "sasl.oauthbearer.assertion.algorithm": "HS256"},
            "sasl.oauthbearer.assertion.algorithm",
            "RS256",
        ),
        ({"sasl.login.refresh.window.factor": "2"}, "sasl.login.refresh.window.factor", "0.5 to 1"),
        ({"sasl.login.read.timeout.ms": "0"}, "sasl.login.read.timeout.ms", "above 0"),
        ({"sasl.jaas.config": jaas('extension_auth="planted"')}, "sasl.jaas.config", "extension"),
        ({"sasl.jaas.config": jaas('ssl.truststore.location="/none"')}, "ssl.truststore.location", "read"),
        ({"sasl.login.class": "org.acme.Login"}, "sasl.login.class", "leave the key out"),
        (
            {"sasl.mechanism": "AWS_MSK_IAM", "sasl.client.callback.handler.class": "org.acme.Own"},
            "sasl.client.callback.handler.class",
            "IAMClientCallbackHandler",
        ),
    ]:
        with about(change, key, remedy):
            with pytest.raises(ConfigError) as raised:
                login_of(change)
            assert f"cluster 'A': {key}: " in str(raised.value) or f"{key}: " in str(raised.value)
            assert remedy in str(raised.value)
            assert "planted" not in f"{raised.value} {raised.value.metadata}"


def test_no_secret_is_shown_by_a_login_or_a_token() -> None:
    login = replace(
        login_of({}),
        static_token="planted",
        assertion=Assertion(key_password="planted"),
        tls=(("ssl.key.password", "planted"),),
    )
    shown = f"{login!r} {client_security(BASE)!r} {Token(text='planted', expires_at=1.0)!r}"
    assert "planted" not in shown


def test_assertions_are_signed_and_laid_over_their_template(tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    key_file, template = tmp_path / "key.pem", tmp_path / "template.json"
    key_file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    template.write_text(json.dumps({"header": {"kid": "7"}, "payload": {"dept": "x", "iss": "other"}}))
    assertion = Assertion(
        algorithm="ES256",
        key_file=str(key_file),
        template_file=str(template),
        claims=(("aud", "there"), ("iss", "me")),
        with_id=True,
    )
    # Not NOW, which is of the beginning of a whole run: it lasts five minutes.
    text = assertion_text(assertion, SystemClock().now_ms() / 1000)
    claims = jwt.decode(text, key.public_key(), algorithms=["ES256"], audience="there", issuer="me")
    assert claims["exp"] - claims["iat"] == 300
    assert (claims["dept"], bool(claims["jti"])) == ("x", True)
    assert jwt.get_unverified_header(text) == {"alg": "ES256", "typ": "JWT", "kid": "7"}
    with pytest.raises(TokenError, match="does not fit RS256"):
        assertion_text(replace(assertion, algorithm="RS256"), NOW)


@pytest.mark.parametrize("text", ["", "two words", "a\x01auth=Bearer b", "ü"])
def test_only_what_is_a_token_is_sent(text: str) -> None:
    with pytest.raises(TokenError) as raised:
        checked(text, 10.0, where="it", now=1.0)
    assert raised.value.refused
    assert str(raised.value) == "it gave no token"


def test_a_half_written_file_of_a_token_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "token"
    payload = base64.urlsafe_b64encode(json.dumps({"exp": NOW + 60}).encode()).decode().rstrip("=")
    file.write_text(f"e30.{payload}"[:-8])
    login = OAuthLogin(grant=Grant.FILE, endpoint=str(file), backoff_seconds=1.0)
    clock = Clock(NOW)
    keeper = TokenKeeper(login, lambda login, now: fetch_token(login, lambda: None, now), clock=clock)
    with pytest.raises(TokenError):
        keeper.token()
    file.write_text(f"e30.{payload}.c2ln")
    clock.now += 1.0
    assert keeper.token().text == f"e30.{payload}.c2ln"


def jwt_of(payload: str) -> str:
    return f"e30.{base64.urlsafe_b64encode(payload.encode()).decode().rstrip('=')}.c2ln"


@pytest.mark.parametrize("exp", ["1e999", "NaN", "-Infinity", "9" * 400, "[" * 100_000, '"soon"', "true"])
def test_a_token_whose_end_is_no_moment_is_refused(exp: str) -> None:
    """Not kept for ever, not fetched for each connection, and no error that nobody knows."""
    text = jwt_of(f'{{"exp": {exp}}}')
    with pytest.raises(TokenError, match="does not say when it expires"):
        checked(text, expiry_of(text), where="it", now=NOW)


class Clock:
    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Server:
    """Gives tokens of 100 seconds, or fails."""

    def __init__(self) -> None:
        self.asked = 0
        self.failure: TokenError | None = None

    def __call__(self, _login: OAuthLogin, now: float) -> Token:
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        return Token(text=f"token-{self.asked}", expires_at=now + 100)


LOGIN = OAuthLogin(grant=Grant.CLIENT_SECRET, backoff_seconds=1.0, backoff_max_seconds=4.0)


def test_a_token_is_kept_until_most_of_its_life_is_over() -> None:
    clock, server = Clock(), Server()
    keeper = TokenKeeper(LOGIN, server, clock=clock, chance=lambda: 0.0)
    assert keeper.token().text == "token-1"
    clock.now += 79.0
    assert keeper.token().text == "token-1"
    clock.now += 1.0
    assert keeper.token().text == "token-2"


def test_the_present_token_is_used_while_its_server_is_away_and_the_server_left_alone() -> None:
    clock, server = Clock(), Server()
    keeper = TokenKeeper(LOGIN, server, clock=clock, chance=lambda: 0.0)
    keeper.token()
    server.failure = TokenError("away")
    clock.now += 90.0
    assert keeper.token().text == keeper.token().text == "token-1"
    assert server.asked == 2
    clock.now += 1.5
    assert keeper.token().text == "token-1"
    assert server.asked == 3
    clock.now += 8.0
    for _ in range(3):
        with pytest.raises(TokenError, match="away"):
            keeper.token()
    assert server.asked == 4
    server.failure = None
    clock.now += 4.0
    assert keeper.token().text == "token-5"


def test_while_one_waits_for_the_token_server_others_use_the_present_token() -> None:
    """A server that does not answer delays one connection, not all of the process."""
    clock, server = Clock(), Server()
    asked, answer = threading.Event(), threading.Event()

    def fetch(login: OAuthLogin, now: float) -> Token:
        if server.asked:
            asked.set()
            assert answer.wait(60)
        return server(login, now)

    keeper = TokenKeeper(LOGIN, fetch, clock=clock, chance=lambda: 0.0)
    keeper.token()
    clock.now += 90.0
    with ThreadPoolExecutor() as pool:
        first = pool.submit(keeper.token)
        assert asked.wait(60)
        others = [pool.submit(keeper.token) for _ in range(3)]
        try:
            assert {each.result(60).text for each in others} == {"token-1"}
        finally:
            answer.set()
        assert first.result(60).text == "token-2"


def test_what_is_known_of_a_token_is_told_without_asking_for_one() -> None:
    clock, server = Clock(), Server()
    keeper = TokenKeeper(LOGIN, server, clock=clock, chance=lambda: 0.0)
    assert keeper.outlook() is None
    server.failure = TokenError("away")
    with pytest.raises(TokenError):
        keeper.token()
    assert keeper.outlook() == TokenOutlook(expires_at=None, lifetime_seconds=0.0, failing=True)
    server.failure = None
    clock.now += 1.0
    keeper.token()
    assert keeper.outlook() == TokenOutlook(expires_at=1101.0, lifetime_seconds=100.0, failing=False)
    server.failure = TokenError("away")
    clock.now += 85.0
    keeper.token()
    assert keeper.outlook() == TokenOutlook(expires_at=1101.0, lifetime_seconds=100.0, failing=True)
    assert server.asked == 3


def test_a_token_that_is_given_again_does_not_live_shorter() -> None:
    clock, token = Clock(), Token(text="same", expires_at=1100.0)
    keeper = TokenKeeper(LOGIN, lambda _login, _now: token, clock=clock, chance=lambda: 0.0)
    for _ in range(3):
        assert keeper.token() == token
        outlook = keeper.outlook()
        assert outlook is not None
        assert outlook.lifetime_seconds == 100.0
        clock.now += 30.0


def test_a_token_lives_from_when_it_was_issued() -> None:
    text = jwt.encode({"iat": 500, "exp": 1100}, "x" * 32, algorithm="HS256")
    assert lifetime_of(text, 1100.0, 1000.0) == 600.0
    assert lifetime_of("opaque", 1100.0, 1000.0) == 100.0


@pytest.mark.parametrize(
    ("life", "chance", "after"),
    [(10.0, 0.0, 8.0), (10.0, 1.0, 8.5), (3600.0, 0.0, 2880.0), (1000.0, 1.0, 700.0), (361.0, 0.0, 61.0)],
)
def test_a_token_is_replaced_as_java_does(life: float, chance: float, after: float) -> None:
    assert RefreshWindow().refresh_at(100.0, 100.0 + life, chance) == pytest.approx(100.0 + after)


def test_errors_of_tokens_say_whether_waiting_helps() -> None:
    refused = translate(TokenError("no", refused=True), "log in", alias="A")
    away = translate(TokenError("no"), "log in", alias="A")
    assert (refused.reason, refused.retriable) == ("LOGIN_TOKEN_REFUSED", False)
    assert (away.reason, away.retriable) == ("LOGIN_TOKEN_UNAVAILABLE", True)


def test_the_region_stands_in_the_name_of_a_broker() -> None:
    assert region_of("boot-x.c1.kafka-serverless.us-east-1.amazonaws.com") == "us-east-1"
    assert region_of("b-1.demo.a1b2.c2.kafka.eu-central-1.amazonaws.com") == "eu-central-1"
    assert region_of("kafka.example.com") == ""
