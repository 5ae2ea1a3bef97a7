"""Passwords and certificates change while clients work: nothing is started again, nothing is lost."""

import asyncio
import hashlib
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from twinlog.config import load
from twinlog.errors import KafkaError
from twinlog.kafka.clients import aiokafka_client_options
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import KafkaCluster, ManagedReader, ManagedWriter, NewTopic
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.protocol.requests import SchemaRequest
from twinlog.local.blocking_cluster import BlockingCluster, CertificateAuthority
from twinlog.local.spec import ClusterSpec, SaslMechanism, Security
from twinlog.model import TopicPartition
from twinlog.service.waiting import wait_or_stop
from twinlog.testing.brokers import eventually, retry_admin, start_clusters, stop_clusters, unique_name

TIMEOUT_SECONDS = 60.0
ITERATIONS = 4096
SESSION_SECONDS = 5.0
PROVIDER = "org.apache.kafka.common.config.provider.FileConfigProvider"


@pytest.fixture(scope="module")
def brokers() -> Iterator[BlockingCluster]:
    """Clients show a certificate and log in by SCRAM; sessions and idle connections end after seconds."""
    spec = ClusterSpec(
        name="rotation",
        security=Security(
            tls=True,
            client_certificates=True,
            mechanisms=(SaslMechanism.SCRAM_SHA_512,),
            users={"alice": "first-password"},
        ),
        properties={
            "listener.name.client.scram-sha-512.connections.max.reauth.ms": str(int(SESSION_SECONDS * 1000)),
            "connections.max.idle.ms": "10000",
            # With SASL brokers ask for a certificate only where the listener's own setting says so (KIP-684).
            "listener.name.client.ssl.client.auth": "required",
        },
    )
    (cluster,) = clusters = start_clusters(spec)
    yield cluster
    stop_clusters(clusters)


class Load:
    """Writes, reads and lists without a pause, by all clients. After an error it tries again."""

    def __init__(
        self, cluster: KafkaCluster, writer: ManagedWriter, reader: ManagedReader, partition: TopicPartition
    ) -> None:
        self._cluster, self._writer, self._reader, self._partition = cluster, writer, reader, partition
        self.rounds = 0
        self.errors: list[KafkaError] = []

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                offset = await self._writer.append(self._partition, key=b"k", value=b"v")
                fetched = await self._reader.fetch(self._partition, offset, max_wait_seconds=1)
                assert fetched.records[0].offset == offset
                assert self._partition.topic in await self._cluster.list_topics()
            except KafkaError as error:
                self.errors.append(error)
                await wait_or_stop(stop, 0.1)
            else:
                self.rounds += 1


@asynccontextmanager
async def load_on(properties: dict[str, str]) -> AsyncIterator[Load]:
    stop = asyncio.Event()
    async with open_cluster("rotation", properties, timeout_seconds=TIMEOUT_SECONDS) as cluster:
        topic = unique_name("rotation")
        await retry_admin(
            lambda: cluster.create_topics([NewTopic(name=topic, partition_count=1, replication_factor=1)])
        )
        async with cluster.writer() as writer, cluster.reader() as reader, asyncio.TaskGroup() as group:
            load = Load(cluster, writer, reader, TopicPartition(topic, 0))
            group.create_task(load.run(stop), name="load")
            try:
                await eventually(lambda: load.rounds > 3)
                yield load
            finally:
                stop.set()


def from_file(brokers: BlockingCluster, directory: Path) -> dict[str, str]:
    """Properties of alice as a service has them: the password by a provider, the certificate in a file."""
    properties = brokers.client_properties("alice")
    write_whole(directory / "secrets", b"password = first-password\n")
    shutil.copy(properties["ssl.keystore.location"], directory / "identity.pem")
    settings = {
        **properties,
        "ssl.keystore.location": str(directory / "identity.pem"),
        "sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required"
            f' username="alice" password="${{file:{directory}/secrets:password}}";'
        ),
    }
    lines = [
        "clusters = A, B",
        "A->B.enabled = true",
        "config.providers = file",
        f"config.providers.file.class = {PROVIDER}",
        "B.bootstrap.servers = 127.0.0.1:1",
        *(f"A.{key} = {value}" for key, value in settings.items()),
    ]
    file = directory / "mm2.properties"
    file.write_text("\n".join(lines))
    admins = (each.clients.source_admin for each in load(file, environ={}).flows if each.flow.source == "A")
    return dict(next(admins).properties)


def write_whole(file: Path, content: bytes) -> None:
    """As who rotates secrets does: beside it, then renamed."""
    beside = file.with_suffix(".new")
    beside.write_bytes(content)
    beside.rename(file)


async def set_password(brokers: BlockingCluster, password: str) -> None:
    """What an administrator does on the brokers."""
    salt = os.urandom(16)
    change = {
        "name": "alice",
        "mechanism": 2,  # SCRAM-SHA-512
        "iterations": ITERATIONS,
        "salt": salt,
        "salted_password": hashlib.pbkdf2_hmac("sha512", password.encode(), salt, ITERATIONS),
    }
    request = SchemaRequest(
        "alter_user_scram_credentials", range(1), {"deletions": (), "upsertions": [change]}
    )
    options = aiokafka_client_options(brokers.client_properties())
    session = DataClientPool("rotation", options, timeout_seconds=TIMEOUT_SECONDS)
    try:
        answer = await session.send_any(request, "change a password")
    finally:
        await session.close()
    assert [result.error_code for result in answer.results] == [0]


async def test_a_password_and_a_certificate_are_rotated_under_load(
    brokers: BlockingCluster, tmp_path: Path
) -> None:
    properties = await asyncio.to_thread(from_file, brokers, tmp_path)
    store, secrets = tmp_path / "identity.pem", tmp_path / "secrets"
    async with load_on(properties) as load:
        assert not load.errors
        renewed = await asyncio.to_thread(
            lambda: Path(brokers.client_properties("alice")["ssl.keystore.location"]).read_bytes()
        )
        assert renewed != store.read_bytes()
        store.write_bytes(renewed[:300])
        passed = load.rounds
        await eventually(lambda: load.rounds > passed + 3)
        write_whole(store, renewed)
        await set_password(brokers, "second-password")
        write_whole(secrets, b"password = second-password\n")
        passed = load.rounds
        await eventually(lambda: load.rounds > passed + 3)
        assert {error.reason for error in load.errors} <= {"AUTHENTICATION_FAILED", "KAFKA_UNAVAILABLE"}
        load.errors.clear()
        until = asyncio.get_running_loop().time() + 3 * SESSION_SECONDS
        await eventually(lambda: asyncio.get_running_loop().time() > until)
        # Of the sessions that began by the first password none is left by now.
        assert load.rounds > passed + 6
        assert {error.reason for error in load.errors} <= {"KAFKA_UNAVAILABLE"}
    old = {key: value for key, value in properties.items() if not key.startswith("twinlog.written")}
    async with open_cluster("rotation", old, timeout_seconds=TIMEOUT_SECONDS) as cluster:
        with pytest.raises(KafkaError) as raised:
            await cluster.list_topics()
        assert raised.value.reason == "AUTHENTICATION_FAILED"
    assert "second-password" not in f"{raised.value} {load.errors}"


async def test_the_certificate_of_the_moment_is_shown(brokers: BlockingCluster, tmp_path: Path) -> None:
    """A client that began with a certificate that brokers do not trust works once the file holds another."""
    properties = brokers.client_properties()
    trusted = await asyncio.to_thread(Path(properties["ssl.keystore.location"]).read_bytes)
    store = tmp_path / "identity.pem"
    await asyncio.to_thread(_write_stranger, tmp_path, store)
    async with (
        open_cluster(
            "rotation", {**properties, "ssl.keystore.location": str(store)}, timeout_seconds=5.0
        ) as cluster,
        cluster.reader() as reader,
    ):
        partition = TopicPartition(unique_name("none"), 0)
        with pytest.raises(KafkaError):
            await cluster.list_topics()
        with pytest.raises(KafkaError):
            await reader.fetch(partition, 0, max_wait_seconds=0)
        write_whole(store, trusted)

        async def every_client_is_let_in() -> bool:
            await cluster.list_topics()
            with pytest.raises(KafkaError, match="no such topic"):
                await reader.fetch(partition, 0, max_wait_seconds=0)
            return True

        assert await eventually(every_client_is_let_in)


def _write_stranger(directory: Path, store: Path) -> None:
    store.write_bytes(CertificateAuthority(directory).issue_for_user("alice").read_bytes())
