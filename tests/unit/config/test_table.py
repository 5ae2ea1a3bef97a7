"""The table of keys is sound, agrees with what the clients really take, and is what the page says."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from twinlog.config import docs
from twinlog.config.keys.client import EFFECTIVE_BY_CLIENT, KEYS_BY_CLIENT, is_secret
from twinlog.config.keys.spec import expected, parse_value
from twinlog.config.keys.table import ALL_KEYS
from twinlog.kafka import clients
from twinlog.text_tables import renewed
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
    page = PAGE.read_text(encoding="utf-8")
    assert page == renewed(page, docs.tables()), (
        ".venv/bin/python -m twinlog.config.docs docs/configuration.md"
    )


class Asked(dict[str, str]):
    """Properties that note which keys are read."""

    def __init__(self) -> None:
        super().__init__({"bootstrap.servers": "a:9092"})
        self.keys_read: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.keys_read.add(key)
        return super().get(key, default)


def test_what_is_said_to_have_an_effect_is_what_the_clients_read() -> None:
    common = EFFECTIVE_BY_CLIENT["admin"] & EFFECTIVE_BY_CLIENT["producer"]
    every: list[tuple[str, Sequence[Callable[[Asked], object]]]] = [
        ("admin", [clients.aiokafka_client_options, lambda of: clients.call_timeout_seconds(of, default=1)]),
        ("producer", [clients.aiokafka_producer_options, clients.delivery_timeout_seconds]),
        ("consumer", [clients.aiokafka_client_options, clients.fetch_options]),
    ]
    for client, reads in every:
        asked = Asked()
        for read in reads:
            read(asked)
        # Where a new partition starts is decided by the source service, no client is told.
        own = EFFECTIVE_BY_CLIENT[client] - common - {"auto.offset.reset"}
        assert own <= asked.keys_read <= EFFECTIVE_BY_CLIENT[client]
        assert EFFECTIVE_BY_CLIENT[client] <= KEYS_BY_CLIENT[client]


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
