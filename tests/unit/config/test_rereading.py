"""References to files are read again when a client connects; notes for that are never shown."""

import json
import logging
from pathlib import Path

import pytest

from twinlog.config import load
from twinlog.config.client_settings import ClientConfig
from twinlog.kafka.security.access import ClusterAccess, SaslLogin
from twinlog.local.blocking_cluster import CertificateAuthority
from twinlog.model import ClusterAlias, Flow

PACKAGE = "org.apache.kafka.common.config.provider"


def client_of(tmp_path: Path, jaas: str) -> ClientConfig:
    file = tmp_path / "mm2.properties"
    file.write_text(
        "clusters = A, B\nA->B.enabled = true\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\n"
        "config.providers = file, env\n"
        f"config.providers.file.class = {PACKAGE}.FileConfigProvider\n"
        f"config.providers.env.class = {PACKAGE}.EnvVarConfigProvider\n"
        f"B.security.protocol = SASL_PLAINTEXT\nB.sasl.mechanism = PLAIN\nB.sasl.jaas.config = {jaas}\n"
    )
    flows = load(file, environ={"NAME": "me"}).flows
    return next(each.clients.data_producer for each in flows if each.flow.target == "B")


def password_of(access: ClusterAccess) -> str:
    access.refresh()
    login = access.security.sasl
    assert isinstance(login, SaslLogin)
    return login.password


def test_a_password_in_a_file_is_read_again_also_where_only_properties_arrive(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.write_text("pw = planted-one\n")
    client = client_of(
        tmp_path, f'x.PlainLoginModule required username="me" password="${{file:{secrets}:pw}}";'
    )
    of_task = client.for_role(Flow(ClusterAlias("A"), ClusterAlias("B")), "connector")
    arrived = json.loads(json.dumps(dict(of_task.properties)))
    access = ClusterAccess(arrived)
    assert (access.rotates, password_of(access)) == (True, "planted-one")
    secrets.write_text("pw = planted-two\n")
    assert password_of(access) == "planted-two"
    for unfinished in ("", "pw"):
        secrets.write_text(unfinished)
        assert password_of(access) == "planted-two"
    secrets.unlink()
    assert password_of(access) == "planted-two"
    shown = f"{client!r} {client.redacted()!r} {access.security!r}"
    assert "planted" not in shown
    assert "twinlog.written" not in shown


def test_what_the_environment_gives_is_not_read_again(tmp_path: Path) -> None:
    client = client_of(tmp_path, 'x.PlainLoginModule required username="${env:NAME}" password="p";')
    assert not any(key.startswith("twinlog.written") for key in client.properties)
    assert not ClusterAccess(client.properties).rotates


def test_a_renewed_certificate_is_taken_and_a_half_written_one_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = CertificateAuthority(tmp_path)
    first, second = authority.issue_for_user("one"), authority.issue_for_user("two")
    store = tmp_path / "identity.pem"
    store.write_bytes(first.read_bytes())
    access = ClusterAccess(
        {"security.protocol": "SSL", "ssl.keystore.type": "PEM", "ssl.keystore.location": str(store)}
    )
    before = access.context
    store.write_bytes(second.read_bytes()[:200])
    with caplog.at_level(logging.WARNING):
        access.refresh()
        access.refresh()
    assert access.context is before
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["credentials_unusable"]
    store.write_bytes(second.read_bytes())
    access.refresh()
    assert access.context is not before
