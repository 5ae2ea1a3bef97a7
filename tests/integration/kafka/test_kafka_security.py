"""Secured clusters: what an MM2 file says about TLS, logins and rights reaches both client libraries.

Each test asks by administrative calls, readers and writers.
"""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import (
    PKCS12Certificate,
    serialize_java_truststore,
    serialize_key_and_certificates,
)

from twinlog.clock import SystemClock
from twinlog.errors import ConfigError, FatalKafkaError, KafkaError, TransientKafkaError
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import (
    AclBinding,
    CommittedOffset,
    ConfigChange,
    KafkaCluster,
    NewTopic,
    OffsetSpec,
)
from twinlog.local.blocking_cluster import BlockingCluster, CertificateAuthority
from twinlog.local.spec import ClusterSpec, SaslMechanism, Security
from twinlog.model import TopicPartition
from twinlog.testing.brokers import eventually, retry_admin, start_clusters, stop_clusters, unique_name
from twinlog.testing.keystores import jks_truststore

STORE_PASSWORD = "store-secret"
TIMEOUT_SECONDS = 60.0


@pytest.fixture
def secured(tls_cluster: BlockingCluster) -> BlockingCluster:
    """Only the super user may do anything there."""
    return tls_cluster


@pytest.fixture(scope="module")
def mutual() -> Iterator[BlockingCluster]:
    """Clients must show a certificate, which names the user; only the super user may do anything."""
    security = Security(tls=True, client_certificates=True, authorizer=True)
    (cluster,) = clusters = start_clusters(ClusterSpec(name="mutual", security=security))
    yield cluster
    stop_clusters(clusters)


async def works(properties: Mapping[str, str]) -> None:
    """Use every way into the cluster once."""
    async with open_cluster("secured", properties, timeout_seconds=TIMEOUT_SECONDS) as cluster:
        topic = unique_name("secured")
        made = await cluster.create_topics([NewTopic(name=topic, partition_count=1, replication_factor=1)])
        assert made == {topic: None}
        await cluster.describe_acls()
        partition = TopicPartition(topic, 0)
        async with cluster.writer() as writer, cluster.reader() as reader:
            assert await writer.append(partition, key=b"k", value=b"v") == 0
            fetched = await reader.fetch(partition, 0, max_wait_seconds=1)
            assert [record.value for record in fetched.records] == [b"v"]


async def refusals(
    properties: Mapping[str, str], *, alias: str = "secured", timeout_seconds: float = TIMEOUT_SECONDS
) -> dict[str, KafkaError]:
    """The errors of each way in, all of which must fail."""
    partition = TopicPartition("any", 0)
    async with (
        open_cluster(alias, properties, timeout_seconds=timeout_seconds) as cluster,
        cluster.writer() as writer,
        cluster.reader() as reader,
    ):
        errors: dict[str, KafkaError] = {}
        ways: dict[str, Callable[[], Awaitable[object]]] = {
            "admin": cluster.describe_broker_configs,
            "list": cluster.list_topics,
            "acls": cluster.describe_acls,
            "reader": lambda: reader.fetch(partition, 0, max_wait_seconds=0),
            "writer": lambda: writer.append(partition, key=b"k", value=b"v"),
        }
        for name, enter in ways.items():
            errors[name] = await _raised(enter())
        return errors


@pytest.mark.parametrize("mechanism", list(SaslMechanism))
async def test_every_mechanism_logs_in_over_tls(
    secured: BlockingCluster, mechanism: SaslMechanism, caplog: pytest.LogCaptureFixture
) -> None:
    properties = secured.client_properties(mechanism=mechanism)
    assert properties["security.protocol"] == "SASL_SSL"
    with caplog.at_level(logging.DEBUG):
        await works(properties)
    assert secured.spec.security.super_password not in caplog.text


@pytest.mark.parametrize("store_type", ["PKCS12", "JKS"])
async def test_java_truststores_are_trusted(
    secured: BlockingCluster, tmp_path: Path, store_type: str
) -> None:
    properties = secured.client_properties()
    store = tmp_path / "trust"
    await asyncio.to_thread(_write_java_store, store, store_type, properties["ssl.truststore.location"])
    await works(
        {
            **properties,
            "ssl.truststore.type": store_type,
            "ssl.truststore.location": str(store),
            "ssl.truststore.password": STORE_PASSWORD,
        }
    )


def _write_java_store(store: Path, store_type: str, pem_file: str) -> None:
    authority = x509.load_pem_x509_certificate(Path(pem_file).read_bytes())
    if store_type == "JKS":
        store.write_bytes(jks_truststore([authority.public_bytes(Encoding.DER)], STORE_PASSWORD))
        return
    encryption = BestAvailableEncryption(STORE_PASSWORD.encode())
    store.write_bytes(serialize_java_truststore([PKCS12Certificate(authority, b"ca")], encryption))


async def test_a_client_certificate_is_shown(mutual: BlockingCluster) -> None:
    properties = mutual.client_properties()
    assert properties["ssl.keystore.type"] == "PEM"
    await works(properties)


async def test_an_identity_may_be_a_store_with_a_password(mutual: BlockingCluster, tmp_path: Path) -> None:
    properties = mutual.client_properties()
    key, certificate = _identity(properties)
    store = tmp_path / "identity.p12"
    encryption = BestAvailableEncryption(STORE_PASSWORD.encode())
    store.write_bytes(serialize_key_and_certificates(b"me", key, certificate, None, encryption))
    settings = {
        **properties,
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(store),
        "ssl.keystore.password": STORE_PASSWORD,
    }
    await works(settings)
    with pytest.raises(ConfigError, match="keystore"):
        await works({**settings, "ssl.keystore.password": "another"})


async def test_identity_and_trust_may_stand_in_the_properties(mutual: BlockingCluster) -> None:
    properties = mutual.client_properties()
    key, certificate = _identity(properties)
    encrypted = key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(STORE_PASSWORD.encode())
    )
    trusted = _text(properties["ssl.truststore.location"])
    for location in ("ssl.keystore.location", "ssl.truststore.location"):
        del properties[location]
    await works(
        {
            **properties,
            "ssl.keystore.key": encrypted.decode(),
            "ssl.key.password": STORE_PASSWORD,
            "ssl.keystore.certificate.chain": certificate.public_bytes(Encoding.PEM).decode(),
            "ssl.truststore.certificates": trusted,
        }
    )


def _text(file: str) -> str:
    return Path(file).read_text()


def _identity(properties: Mapping[str, str]) -> tuple[EllipticCurvePrivateKey, x509.Certificate]:
    content = Path(properties["ssl.keystore.location"]).read_bytes()
    key = load_pem_private_key(content, password=None)
    assert isinstance(key, EllipticCurvePrivateKey)
    return key, x509.load_pem_x509_certificate(content)


async def test_the_name_of_a_broker_is_compared_with_its_certificate_unless_that_is_off(
    secured: BlockingCluster,
) -> None:
    async with relayed(secured) as elsewhere:
        properties = {**secured.client_properties(), "bootstrap.servers": elsewhere}
        errors = await refusals(properties, timeout_seconds=10.0)
        assert {error.reason for error in errors.values()} <= {
            "TLS_FAILED", "TLS_UNTRUSTED", "KAFKA_UNAVAILABLE", "KAFKA_TIMEOUT",
        }  # fmt: skip
        await works({**properties, "ssl.endpoint.identification.algorithm": ""})


@asynccontextmanager
async def relayed(cluster: BlockingCluster) -> AsyncIterator[str]:
    """Another address of this machine that leads to the broker: its certificate does not name it."""
    host, _, port = cluster.bootstrap_servers.rpartition(":")

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection(host, int(port))
        async with asyncio.TaskGroup() as ways:
            ways.create_task(copy(reader, there[1]), name="there")
            ways.create_task(copy(there[0], writer), name="back")

    server = await asyncio.start_server(on_connection, "127.0.0.2", 0)
    try:
        yield f"127.0.0.2:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def test_without_the_certificate_the_way_is_shut(mutual: BlockingCluster) -> None:
    properties = {
        key: value for key, value in mutual.client_properties().items() if not key.startswith("ssl.keystore")
    }
    for error in (await refusals(properties, timeout_seconds=2.0)).values():
        assert error.reason in {"TLS_FAILED", "KAFKA_UNAVAILABLE", "KAFKA_TIMEOUT"}


@pytest.mark.parametrize("mechanism", list(SaslMechanism))
async def test_a_wrong_password_is_said_quickly_and_not_shown(
    secured: BlockingCluster, mechanism: SaslMechanism, caplog: pytest.LogCaptureFixture
) -> None:
    properties = secured.client_properties("alice", mechanism=mechanism)
    wrong = properties["sasl.jaas.config"].replace("alice's", "mallory's")
    assert wrong != properties["sasl.jaas.config"]
    loop = asyncio.get_running_loop()
    started = loop.time()
    with caplog.at_level(logging.DEBUG):
        errors = await refusals({**properties, "sasl.jaas.config": wrong})
    assert loop.time() - started < TIMEOUT_SECONDS
    for name, error in errors.items():
        assert isinstance(error, FatalKafkaError), (name, error)
        assert error.reason == "AUTHENTICATION_FAILED", (name, error)
        assert "secured" in str(error)
        assert "mallory" not in f"{error} {error.metadata}"
    assert "mallory" not in caplog.text


async def test_an_unknown_authority_is_not_trusted(secured: BlockingCluster, mutual: BlockingCluster) -> None:
    properties = {
        **secured.client_properties(),
        "ssl.truststore.location": mutual.client_properties()["ssl.truststore.location"],
    }
    errors = await refusals(properties, timeout_seconds=10.0)
    assert {error.reason for error in errors.values()} == {"TLS_UNTRUSTED"}


class _LongAgo(SystemClock):
    def now_ms(self) -> int:
        return super().now_ms() - 60 * 86_400_000


async def test_a_certificate_of_brokers_that_has_expired_is_not_trusted(tmp_path: Path) -> None:
    """The connection ends before anything of Kafka is said, so there need be no broker."""
    files = CertificateAuthority(tmp_path, _LongAgo()).issue_for_brokers()
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(files.broker)

    async def nobody_comes_so_far(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(nobody_comes_so_far, "127.0.0.1", 0, ssl=tls) as server:
        properties = {
            "bootstrap.servers": f"127.0.0.1:{server.sockets[0].getsockname()[1]}",
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(files.ca),
        }
        errors = await refusals(properties, timeout_seconds=10.0)
    assert {error.reason for error in errors.values()} == {"TLS_UNTRUSTED"}
    assert "expired" in str(errors["list"])


async def test_the_wrong_protocol_is_an_error_in_time(secured: BlockingCluster) -> None:
    properties = {"bootstrap.servers": secured.bootstrap_servers}
    for error in (await refusals(properties, timeout_seconds=2.0)).values():
        assert isinstance(error, TransientKafkaError)
        assert error.reason in {"KAFKA_UNAVAILABLE", "KAFKA_TIMEOUT"}


async def test_missing_rights_are_named_by_resource(secured: BlockingCluster) -> None:
    topic, group = unique_name("forbidden"), unique_name("forbidden")
    partition = TopicPartition(topic, 0)
    async with open_cluster("secured", secured.client_properties()) as owner:
        await retry_admin(
            lambda: owner.create_topics([NewTopic(name=topic, partition_count=1, replication_factor=1)])
        )
    properties = secured.client_properties("alice")
    async with open_cluster("alice", properties, timeout_seconds=TIMEOUT_SECONDS) as cluster:
        assert topic not in await cluster.list_topics()
        refused = {
            "describe": (await cluster.describe_topics([topic]))[topic],
            "create": (
                await cluster.create_topics(
                    [NewTopic(name="alices-own", partition_count=1, replication_factor=1)]
                )
            )["alices-own"],
            "grow": (await cluster.create_partitions({topic: 2}))[topic],
            "delete": (await cluster.delete_topics([topic]))[topic],
            "configs": (await cluster.describe_topic_configs([topic]))[topic],
            "alter": (
                await cluster.alter_topic_configs({topic: [ConfigChange(name="retention.ms", value="1")]})
            )[topic],
            "offsets": (await cluster.list_offsets(OffsetSpec.LATEST, [partition]))[partition],
            "group": (await cluster.describe_groups([group]))[group],
            "committed": (await cluster.group_offsets([group]))[group],
            "commit": (await cluster.alter_group_offsets(group, {partition: CommittedOffset(next_offset=1)}))[
                partition
            ],
            "acls": await _raised(cluster.describe_acls()),
            "brokers": await _raised(cluster.describe_broker_configs()),
        }
        async with cluster.reader() as reader, cluster.writer() as writer:
            refused["read"] = await _raised(reader.fetch(partition, 0, max_wait_seconds=0))
            refused["write"] = await _raised(writer.append(partition, key=b"k", value=b"v"))
    assert {what: _reason(answer) for what, answer in refused.items()} == {
        "describe": "TOPIC_UNAUTHORIZED",
        "create": "TOPIC_UNAUTHORIZED",
        "grow": "TOPIC_UNAUTHORIZED",
        "delete": "TOPIC_UNAUTHORIZED",
        "configs": "TOPIC_UNAUTHORIZED",
        "alter": "TOPIC_UNAUTHORIZED",
        "offsets": "TOPIC_UNAUTHORIZED",
        "group": "GROUP_UNAUTHORIZED",
        "committed": "GROUP_UNAUTHORIZED",
        "commit": "GROUP_UNAUTHORIZED",
        "acls": "CLUSTER_UNAUTHORIZED",
        "brokers": "CLUSTER_UNAUTHORIZED",
        "read": "TOPIC_UNAUTHORIZED",
        # Without the right to write any topic at all a producer is not even given its id.
        "write": "CLUSTER_UNAUTHORIZED",
    }


async def test_a_right_given_later_counts_for_open_clients(secured: BlockingCluster) -> None:
    topic = unique_name("granted")
    partition = TopicPartition(topic, 0)
    async with (
        open_cluster("secured", secured.client_properties()) as owner,
        open_cluster("alice", secured.client_properties("alice")) as cluster,
        cluster.writer() as writer,
        cluster.reader() as reader,
    ):
        await retry_admin(
            lambda: owner.create_topics([NewTopic(name=topic, partition_count=1, replication_factor=1)])
        )
        await _grant(owner, "another-topic", "WRITE")

        async def names_the_topic() -> bool:
            error = await _raised(writer.append(partition, key=b"k", value=b"v"))
            return error.reason == "TOPIC_UNAUTHORIZED"

        assert await eventually(names_the_topic)
        assert (await _raised(reader.fetch(partition, 0, max_wait_seconds=0))).reason == "TOPIC_UNAUTHORIZED"
        await _grant(owner, topic, "READ", "WRITE")

        async def writes() -> bool:
            try:
                return await writer.append(partition, key=b"k", value=b"v") == 0
            except FatalKafkaError as error:
                raise AssertionError(error.reason) from error

        assert await eventually(writes)
        fetched = await reader.fetch(partition, 0, max_wait_seconds=1)
        assert [record.value for record in fetched.records] == [b"v"]


async def _grant(owner: KafkaCluster, topic: str, *operations: str) -> None:
    bindings = [
        AclBinding(
            resource_type="TOPIC",
            resource_name=topic,
            pattern_type="LITERAL",
            principal="User:alice",
            host="*",
            operation=operation,
            permission="ALLOW",
        )
        for operation in operations
    ]
    await retry_admin(lambda: owner.create_acls(bindings))


async def _raised(call: Awaitable[object]) -> KafkaError:
    with pytest.raises(KafkaError) as raised:
        await call
    return raised.value


def _reason(answer: object) -> str:
    assert isinstance(answer, KafkaError), answer
    return answer.reason
