"""What a debug bundle leaves out, in whatever form it stands there."""

import json
from urllib.parse import quote

import pytest

from twinlog.cli.debug.secrets import Blanker, of_environment, of_secret_file, secrets_of

SECRET = 'pa"ss\\wörd&='
JAAS = (
    'x.PlainLoginModule required username="u" password="'
    + SECRET.replace("\\", r"\\").replace('"', r"\"")
    + '";'
)


@pytest.mark.parametrize(
    "text",
    [
        SECRET,
        json.dumps({"event": f"login with {SECRET} failed"}),
        json.dumps({"event": f"login with {SECRET} failed"}, ensure_ascii=False),
        f"ValueError({SECRET!r})",
        "https://collector/?with=" + quote(SECRET, safe=""),
    ],
)
@pytest.mark.parametrize("properties", [[("B.ssl.key.password", SECRET)], [("A.sasl.jaas.config", JAAS)]])
def test_a_secret_is_blanked_in_the_forms_of_logs_and_urls(
    properties: list[tuple[str, str]], text: str
) -> None:
    shown = Blanker(secrets_of(properties))(text)
    assert "***" in shown
    assert "rd&" not in shown
    assert "rd%26" not in shown


def test_headers_for_a_collector_of_telemetry_are_secrets() -> None:
    environment = {
        "OTEL_EXPORTER_OTLP_HEADERS": "x-team=team-s3cret,authorization=Bearer%20b3arer-s3cret",
        "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "x-traces=tr4ces-s3cret",
        "OTEL_SERVICE_NAME": "harmless-name",
    }
    text = "team-s3cret b3arer-s3cret tr4ces-s3cret harmless-name"
    assert Blanker(secrets_of(of_environment(environment)))(text) == "*** *** *** harmless-name"


def test_what_files_of_tokens_and_keys_hold_is_secret() -> None:
    secrets = secrets_of(of_secret_file("-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0\n"))
    assert Blanker(secrets)("line MIIEvQIBADANBgkqhkiG9w0 of it") == "line *** of it"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("sent Bearer abc.def-ghi~jkl/mno=", "sent Bearer ***"),
        ("is eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ4In0.c2ln here", "is *** here"),
    ],
)
def test_tokens_that_nobody_told_of_are_blanked_by_their_form(text: str, shown: str) -> None:
    assert Blanker(frozenset())(text) == shown


def test_a_token_in_the_place_of_a_users_name_is_a_secret() -> None:
    assert Blanker(secrets_of([("A.proxy", "https://t0ken-alone@host/")]))("t0ken-alone") == "***"
