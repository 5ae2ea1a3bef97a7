"""Config providers of other packages: found by their entry point, and no secret in what goes wrong."""

from pathlib import Path

import pytest

from twinlog.config import load
from twinlog.errors import ConfigError
from twinlog.kafka.security.access import ClusterAccess, SaslLogin

MODULE = '''
from pathlib import Path

class Vault:
    """Reads what a test wrote, as a provider would ask its server."""

    def __init__(self, params):
        self._place = Path(params["address"])
        if not self._place.exists():
            raise OSError("planted")

    def get(self, path, key):
        text = (self._place / path).read_text()
        if text == "broken":
            raise RuntimeError("planted")
        return text if key == "password" else None
'''


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with a provider, installed; and where that finds its secrets."""
    package = tmp_path / "packages"
    (package / "acme_vault-1.0.dist-info").mkdir(parents=True)
    (package / "acme_vault-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: acme-vault\nVersion: 1.0\n"
    )
    (package / "acme_vault-1.0.dist-info" / "entry_points.txt").write_text(
        "[twinlog.config_providers]\ncom.acme.Vault = acme_vault_of_tests:Vault\n"
        "com.acme.Gone = acme_vault_of_tests_gone:Vault\n"
    )
    (package / "acme_vault_of_tests.py").write_text(MODULE)
    monkeypatch.syspath_prepend(package)
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    return secrets


def file_with(place: Path, class_name: str, address: Path) -> Path:
    file = place.parent / "mm2.properties"
    file.write_text(
        "clusters = A, B\nA->B.enabled = true\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\n"
        f"config.providers = vault\nconfig.providers.vault.class = {class_name}\n"
        f"config.providers.vault.param.address = {address}\n"
        "B.security.protocol = SASL_PLAINTEXT\nB.sasl.mechanism = PLAIN\n"
        'B.sasl.jaas.config = x.PlainLoginModule required username="me" password="${vault:kafka:password}";\n'
    )
    return file


def test_a_provider_of_another_package_is_asked_again_when_a_client_connects(place: Path) -> None:
    (place / "kafka").write_text("one")
    flows = load(file_with(place, "com.acme.Vault", place), environ={}).flows
    client = next(each.clients.target_admin for each in flows if each.flow.target == "B")
    access = ClusterAccess(client.properties)
    for written, expected in (("two", "two"), ("broken", "two"), ("three", "three")):
        (place / "kafka").write_text(written)
        access.refresh()
        assert isinstance(access.security.sasl, SaslLogin)
        assert access.security.sasl.password == expected


@pytest.mark.parametrize(
    ("class_name", "secret", "problem"),
    [
        ("com.acme.Vault", "broken", "the provider failed: RuntimeError"),
        ("com.acme.Vault", "", "the provider cannot be made: OSError"),
        ("com.acme.Gone", "one", "cannot be imported: ModuleNotFoundError"),
        ("com.acme.Other", "one", "that of an installed package"),
    ],
)
def test_what_is_wrong_with_a_provider_is_said_without_what_it_says(
    place: Path, class_name: str, secret: str, problem: str
) -> None:
    (place / "kafka").write_text(secret)
    with pytest.raises(ConfigError, match=problem) as raised:
        load(file_with(place, class_name, place if secret else place / "gone"), environ={})
    assert "planted" not in str(raised.value)
