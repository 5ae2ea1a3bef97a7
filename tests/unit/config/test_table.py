"""The table of keys is sound, agrees with what the clients really take, and is what the page says."""

import re
from collections import Counter
from pathlib import Path

import pytest

from twinlog.config import docs
from twinlog.config.keys.client import EFFECTIVE_BY_CLIENT, KEYS_BY_CLIENT, is_secret
from twinlog.config.keys.spec import expected, parse_value
from twinlog.config.keys.table import ALL_KEYS
from twinlog.kafka import clients
from unit.cases import about

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def test_no_key_is_there_twice() -> None:
    names = Counter(name for spec in ALL_KEYS for name in (spec.name, *spec.aliases))
    assert [name for name, count in names.items() if count > 1] == []


def test_a_key_explains_itself_or_why_it_is_ignored() -> None:
    for spec in ALL_KEYS:
        with about(spec):
            assert bool(spec.no_effect) != bool(spec.meaning)
            assert bool(spec.services) != bool(spec.no_effect)
            assert expected(spec)
            for default in (spec.default, spec.mm2_default):
                if default is not None:
                    parse_value(spec, default)


def test_an_expected_range_can_be_typed_as_it_is_shown() -> None:
    for spec in ALL_KEYS:
        with about(spec):
            shown = expected(spec)
            for bound in (spec.minimum, spec.maximum):
                if bound is not None and bound == int(bound):
                    assert str(int(bound)) in shown.split()


def test_a_page_that_a_key_refers_to_exists() -> None:
    for spec in ALL_KEYS:
        for page in re.findall(r"docs/[a-z]+\.md", spec.meaning + spec.no_effect):
            assert (PAGE.parents[1] / page).is_file(), f"{spec.name} names {page}"


def test_the_page_is_generated_from_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == docs.render(), (
        "run: python -m twinlog.config.docs docs/configuration.md"
    )


def test_the_generator_writes_where_it_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert docs.main([]) == 0
    assert capsys.readouterr().out == docs.render()


def test_what_is_said_to_have_an_effect_is_what_the_clients_map() -> None:
    assert EFFECTIVE_BY_CLIENT["admin"] == clients.CLIENT_KEYS | {clients.CALL_TIMEOUT_KEY}
    assert EFFECTIVE_BY_CLIENT["producer"] == clients.CLIENT_KEYS | clients.PRODUCER_KEYS
    # Where a new partition starts is decided by the source service, no client is told.
    of_consumer = clients.CLIENT_KEYS | clients.CONSUMER_KEYS | {"auto.offset.reset"}
    assert EFFECTIVE_BY_CLIENT["consumer"] == of_consumer
    for client, names in EFFECTIVE_BY_CLIENT.items():
        assert names <= KEYS_BY_CLIENT[client]


@pytest.mark.parametrize(
    ("key", "secret"),
    [
        ("A.sasl.jaas.config", True),
        ("ssl.key.password", True),
        ("B.consumer.ssl.keystore.key", True),
        ("sasl.oauthbearer.client.credentials.client.secret", True),
        ("sasl.oauthbearer.assertion.private.key.passphrase", True),
        ("sasl.oauthbearer.token.endpoint.url", False),
        ("sasl.oauthbearer.assertion.private.key.file", False),
        ("ssl.keystore.certificate.chain", False),
        ("ssl.keystore.location", False),
        ("A.bootstrap.servers", False),
        ("topics", False),
    ],
)
def test_secrets(key: str, secret: bool) -> None:
    assert is_secret(key) is secret
