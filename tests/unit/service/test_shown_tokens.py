"""When the tokens end that a process shows to clusters and to the other services."""

from pathlib import Path

import jwt

from twinlog.clock import SystemClock
from twinlog.kafka.security.access import ClusterAccess
from twinlog.kafka.security.oauth.reading import TokenOutlook
from twinlog.service.credentials import READ_SECONDS, Tokens
from twinlog.telemetry.metrics.spec import CLUSTER
from twinlog.testing.virtual_time import FakeClock

NOW = SystemClock().now_ms() // 1000
HOUR_SECONDS = 3600


def token(*, left_seconds: int, name: str = "twinlog", now: int = NOW) -> str:
    claims = {"sub": name, "iat": now + left_seconds - HOUR_SECONDS, "exp": now + left_seconds}
    return str(jwt.encode(claims, "x" * 32, algorithm="HS256"))


def told(tokens: Tokens) -> dict[str, TokenOutlook]:
    return {attributes.get(CLUSTER, "the file"): outlook for attributes, outlook in tokens.outlooks()}


def outlook(*, left_seconds: int, failing: bool = False, now: int = NOW) -> TokenOutlook:
    return TokenOutlook(expires_at=now + left_seconds, lifetime_seconds=HOUR_SECONDS, failing=failing)


def test_the_end_of_the_token_for_other_services_is_shown_and_a_new_one_is_seen(tmp_path: Path) -> None:
    clock, file = FakeClock(now_ms=NOW * 1000), tmp_path / "token"
    file.write_text(token(left_seconds=300))
    tokens = Tokens({"A": {}}, token_file=str(file), clock=clock)
    assert told(tokens) == {"the file": outlook(left_seconds=300)}
    file.write_text(token(left_seconds=3000))
    assert told(tokens) == {"the file": outlook(left_seconds=300)}
    clock.advance(READ_SECONDS)
    assert told(tokens) == {"the file": outlook(left_seconds=3000)}
    file.unlink()
    clock.advance(READ_SECONDS)
    assert told(tokens) == {"the file": outlook(left_seconds=3000, failing=True)}


def test_nothing_is_said_of_a_token_that_does_not_say_when_it_expires_but_that_it_can_be_read(
    tmp_path: Path,
) -> None:
    file = tmp_path / "token"
    file.write_text("a-long-random-token")
    found = told(Tokens({}, token_file=str(file), clock=FakeClock(now_ms=NOW * 1000)))
    assert found == {"the file": TokenOutlook(expires_at=None, lifetime_seconds=0.0, failing=False)}


def test_a_login_is_shown_once_a_client_has_asked_for_its_token_and_clusters_without_one_never(
    tmp_path: Path,
) -> None:
    # Clients look at the clock of the machine, and this module may have been read long ago.
    now = SystemClock().now_ms() // 1000
    clock, file = FakeClock(now_ms=now * 1000), tmp_path / "token"
    file.write_text(token(left_seconds=300, name=str(tmp_path), now=now))
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": file.as_uri(),
    }
    broken = {"security.protocol": "SSL", "ssl.truststore.location": "/nowhere"}
    tokens = Tokens({"A": login, "B": {}, "C": broken}, token_file="", clock=clock)
    assert told(tokens) == {}
    keeper = ClusterAccess(login, alias="A").keeper
    assert keeper is not None
    keeper.token()
    assert told(tokens) == {"A": outlook(left_seconds=300, now=now)}
