"""Kerberos: a KDC of this test's own, a broker that trusts it, and clients with a key table or a ticket."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from integration.kafka.kdc import REALM, Kdc, require_kerberos, running_kdc
from twinlog.errors import KafkaError
from twinlog.kafka.clients import aiokafka_producer_options
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import NewTopic
from twinlog.kafka.writer import KafkaLogWriter
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.spec import ClusterSpec, SaslMechanism, Security
from twinlog.model import TopicPartition
from twinlog.testing.brokers import make_topics, retry_admin, start_clusters, stop_clusters, unique_name

MODULE = "com.sun.security.auth.module.Krb5LoginModule"
SHORT_MS = 6_000
"""How long a session lives: long enough for a slow machine to renew one."""


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    require_kerberos()
    with running_kdc(tmp_path_factory.mktemp("kdc")) as running:
        yield running


@pytest.fixture(scope="module")
def keytab(kdc: Kdc) -> Path:
    """Keytab of the user that the broker takes for its super user."""
    return kdc.keytab("super")


@pytest.fixture(scope="module")
def brokers(kdc: Kdc) -> Iterator[BlockingCluster]:
    own = kdc.keytab("kafka/127.0.0.1")
    options = f'useKeyTab=true storeKey=true keyTab="{own}" principal="kafka/127.0.0.1@{REALM}"'
    spec = ClusterSpec(
        name="kerberos",
        security=Security(mechanisms=(SaslMechanism.PLAIN,), authorizer=True),
        properties={
            "listener.name.client.sasl.enabled.mechanisms": "PLAIN,GSSAPI",
            "listener.name.client.gssapi.sasl.jaas.config": f"{MODULE} required {options};",
            "listener.name.client.gssapi.connections.max.reauth.ms": str(SHORT_MS),
            "sasl.kerberos.service.name": "kafka",
        },
        java_options=(f"-Djava.security.krb5.conf={kdc.krb5_conf}",),
    )
    (cluster,) = clusters = start_clusters(spec)
    yield cluster
    stop_clusters(clusters)


@pytest.fixture(autouse=True)
def realm(kdc: Kdc, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in kdc.environment.items():
        monkeypatch.setenv(name, value)


def properties(brokers: BlockingCluster, options: str) -> dict[str, str]:
    return {
        "bootstrap.servers": brokers.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.jaas.config": f"{MODULE} required {options};",
    }


def by_keytab(brokers: BlockingCluster, keytab: Path) -> dict[str, str]:
    return properties(brokers, f'useKeyTab=true keyTab="{keytab}" principal="super@{REALM}"')


async def written(brokers: BlockingCluster, client: Mapping[str, str]) -> None:
    """A record of a client of our own connections is on the broker."""
    topic = unique_name("kerberos")
    partition = TopicPartition(topic, 0)
    async with open_cluster("A", brokers.client_properties()) as admin:
        await make_topics(admin, NewTopic(name=topic, partition_count=1, replication_factor=1))
        async with KafkaLogWriter(
            "A", aiokafka_producer_options(client, alias="A"), timeout_seconds=60
        ) as writer:
            assert await writer.append(partition, key=b"k", value=b"v") == 0
        async with admin.reader() as reader:
            fetched = await reader.fetch(partition, 0, max_wait_seconds=1)
            assert [record.value for record in fetched.records] == [b"v"]


async def test_a_key_table_logs_in(brokers: BlockingCluster, keytab: Path) -> None:
    await written(brokers, by_keytab(brokers, keytab))


async def test_a_ticket_of_the_default_cache_logs_in(
    brokers: BlockingCluster, kdc: Kdc, keytab: Path
) -> None:
    kdc.log_in("super", keytab)
    await written(brokers, properties(brokers, "useTicketCache=true"))


async def test_who_has_no_ticket_is_told_with_principal_and_service(
    brokers: BlockingCluster, tmp_path: Path
) -> None:
    (tmp_path / "empty.keytab").write_bytes(b"\x05\x02")
    client = by_keytab(brokers, tmp_path / "empty.keytab")
    with pytest.raises(KafkaError, match=f"super@{REALM}") as refused:
        await written(brokers, client)
    assert refused.value.reason == "AUTHENTICATION_FAILED"
    assert "kafka/127.0.0.1" in str(refused.value)


async def test_every_client_of_a_cluster_logs_in(brokers: BlockingCluster, keytab: Path) -> None:
    client = by_keytab(brokers, keytab)
    topic = unique_name("kerberos")
    async with open_cluster("A", client, timeout_seconds=60) as cluster:
        await retry_admin(
            lambda: cluster.create_topics([NewTopic(name=topic, partition_count=1, replication_factor=1)])
        )
        async with cluster.writer() as writer, cluster.reader() as reader:
            assert await writer.append(TopicPartition(topic, 0), key=b"k", value=b"v") == 0
            fetched = await reader.fetch(TopicPartition(topic, 0), 0, max_wait_seconds=1)
            assert [record.value for record in fetched.records] == [b"v"]
        assert await cluster.describe_acls() is not None
