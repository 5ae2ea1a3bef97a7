"""OAUTHBEARER: every client logs in by tokens that come from one place, and stays logged in.

The brokers check signature, issuer, audience and times of each token; the token server is the tests' own.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)

from integration.kafka.token_server import (
    AUDIENCE,
    CLIENT_ID,
    CLIENT_SECRET,
    PLANTED,
    TokenServer,
    broker_properties,
    token_server,
)
from twinlog.errors import KafkaError
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import KafkaCluster, ManagedReader, ManagedWriter, NewTopic
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.spec import ClusterSpec, SaslMechanism, Security
from twinlog.model import TopicPartition
from twinlog.testing.brokers import retry_admin, start_clusters, stop_clusters, unique_name

TIMEOUT_SECONDS = 60.0
PACKAGE = "org.apache.kafka.common.security.oauthbearer"
SHORT_SECONDS = 12.0
"""How long sessions live on the brokers: long enough for a slow machine to renew one."""


@pytest.fixture(scope="module")
def server() -> Iterator[TokenServer]:
    with token_server() as running:
        yield running


@pytest.fixture(scope="module")
def brokers(server: TokenServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BlockingCluster]:
    """Only the super user may do anything, and a session ends after six seconds."""
    keys = tmp_path_factory.mktemp("oauth") / "keys.json"
    server.write_keys(keys)
    spec = ClusterSpec(
        name="oauth",
        security=Security(mechanisms=(SaslMechanism.PLAIN,), authorizer=True),
        properties={
            **broker_properties(keys),
            "listener.name.client.oauthbearer.connections.max.reauth.ms": str(int(SHORT_SECONDS * 1000)),
        },
        java_options=(f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys.as_uri()}",),
    )
    (cluster,) = clusters = start_clusters(spec)
    yield cluster
    stop_clusters(clusters)


@pytest.fixture(autouse=True)
def usual(server: TokenServer) -> Iterator[None]:
    yield
    server.outage, server.subject, server.lifetime_seconds = 0, "super", 3600.0


def by_secret(brokers: BlockingCluster, server: TokenServer, **more: str) -> dict[str, str]:
    return {
        "bootstrap.servers": brokers.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f"{PACKAGE}.OAuthBearerLoginModule required;",
        "sasl.login.callback.handler.class": f"{PACKAGE}.OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": server.url,
        "sasl.oauthbearer.client.credentials.client.id": CLIENT_ID,
        "sasl.oauthbearer.client.credentials.client.secret": CLIENT_SECRET,
        "sasl.oauthbearer.scope": unique_name("scope"),
        **more,
    }


@asynccontextmanager
async def every_way(
    properties: Mapping[str, str],
) -> AsyncIterator[tuple[KafkaCluster, ManagedWriter, ManagedReader, TopicPartition]]:
    """A cluster with a topic, and a way in by each of the three clients."""
    async with open_cluster("oauth", properties, timeout_seconds=TIMEOUT_SECONDS) as cluster:
        topic = unique_name("oauth")
        await retry_admin(
            lambda: cluster.create_topics([NewTopic(name=topic, partition_count=1, replication_factor=1)])
        )
        async with cluster.writer() as writer, cluster.reader() as reader:
            yield cluster, writer, reader, TopicPartition(topic, 0)


async def works(properties: Mapping[str, str]) -> None:
    async with every_way(properties) as (cluster, writer, reader, partition):
        await cluster.describe_acls()
        assert await writer.append(partition, key=b"k", value=b"v") == 0
        fetched = await reader.fetch(partition, 0, max_wait_seconds=1)
        assert [record.value for record in fetched.records] == [b"v"]


async def test_every_client_logs_in_with_one_token(
    brokers: BlockingCluster, server: TokenServer, caplog: pytest.LogCaptureFixture
) -> None:
    properties = by_secret(brokers, server)
    given = len(server.given)
    with caplog.at_level(logging.DEBUG):
        await works(properties)
    assert len(server.given) == given + 1
    assert server.forms[-1]["scope"] == properties["sasl.oauthbearer.scope"]
    for planted in (*PLANTED, server.given[-1], server.given[-1].rpartition(".")[2]):
        assert planted not in caplog.text


async def test_the_options_of_older_files_log_in(brokers: BlockingCluster, server: TokenServer) -> None:
    scope = unique_name("jaas")
    properties = {
        key: value
        for key, value in by_secret(brokers, server).items()
        if "client.credentials" not in key and not key.endswith("scope")
    }
    login = f'clientId="{CLIENT_ID}" clientSecret="{CLIENT_SECRET}" scope="{scope}"'
    await works({**properties, "sasl.jaas.config": f"{PACKAGE}.OAuthBearerLoginModule required {login};"})
    assert server.forms[-1]["scope"] == scope


async def test_the_options_of_strimzi_log_in(brokers: BlockingCluster, server: TokenServer) -> None:
    audience = unique_name("audience")
    options = {
        "oauth.token.endpoint.uri": server.url,
        "oauth.client.id": CLIENT_ID,
        "oauth.client.secret": CLIENT_SECRET,
        "oauth.audience": audience,
    }
    login = " ".join(f'{name}="{value}"' for name, value in options.items())
    await works(
        {
            "bootstrap.servers": brokers.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f"{PACKAGE}.OAuthBearerLoginModule required {login};",
            "sasl.login.callback.handler.class": (
                "io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler"
            ),
        }
    )
    assert server.forms[-1]["audience"] == audience


@pytest.mark.parametrize("retriever", ["JwtBearerJwtRetriever", "ClientCredentialsJwtRetriever"])
async def test_a_signed_assertion_takes_the_place_of_the_secret(
    brokers: BlockingCluster, server: TokenServer, tmp_path: Path, retriever: str
) -> None:
    key = tmp_path / "client.pem"
    encryption = BestAvailableEncryption(b"key-secret")
    pem = server.client_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
    await asyncio.to_thread(key.write_bytes, pem)
    properties = by_secret(brokers, server)
    del properties["sasl.oauthbearer.client.credentials.client.secret"]
    assertion = {
        "private.key.file": str(key),
        "private.key.passphrase": "key-secret",
        "claim.iss": CLIENT_ID,
        "claim.sub": CLIENT_ID,
        "claim.aud": server.url,
        "claim.jti.include": "true",
    }
    await works(
        {
            **properties,
            "sasl.oauthbearer.jwt.retriever.class": f"{PACKAGE}.{retriever}",
            **{f"sasl.oauthbearer.assertion.{name}": value for name, value in assertion.items()},
        }
    )
    form = server.forms[-1]
    shown = "assertion" if retriever == "JwtBearerJwtRetriever" else "client_assertion"
    assert form[shown].count(".") == 2


async def test_open_connections_outlive_their_sessions(brokers: BlockingCluster, server: TokenServer) -> None:
    """Tokens and sessions are renewed while every client continues; no broker closes a connection."""
    server.lifetime_seconds = 2 * SHORT_SECONDS
    enough = len(server.given) + 3
    async with every_way(by_secret(brokers, server)) as (cluster, writer, reader, partition):
        offset = 0
        while len(server.given) < enough:
            assert await writer.append(partition, key=b"k", value=b"%d" % offset) == offset
            fetched = await reader.fetch(partition, offset, max_wait_seconds=1)
            assert [record.value for record in fetched.records] == [b"%d" % offset]
            assert partition.topic in await cluster.list_topics()
            offset += 1


async def test_a_token_that_brokers_refuse_is_an_authentication_failure(
    brokers: BlockingCluster, server: TokenServer, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    await asyncio.to_thread(file.write_text, server.token(aud=f"not-{AUDIENCE}"))
    properties = by_secret(brokers, server, **{"sasl.oauthbearer.token.endpoint.url": file.as_uri()})
    for name, error in (await refusals(properties)).items():
        assert error.reason == "AUTHENTICATION_FAILED", (name, error)


async def refusals(properties: Mapping[str, str]) -> dict[str, KafkaError]:
    async with (
        open_cluster("oauth", properties, timeout_seconds=TIMEOUT_SECONDS) as cluster,
        cluster.writer() as writer,
        cluster.reader() as reader,
    ):
        errors: dict[str, KafkaError] = {}
        partition = TopicPartition("any", 0)
        for name, entered in (
            ("cluster", lambda: cluster.describe_acls()),
            ("reader", lambda: reader.fetch(partition, 0, max_wait_seconds=0)),
            ("writer", lambda: writer.append(partition, key=b"k", value=b"v")),
        ):
            with pytest.raises(KafkaError) as raised:
                await entered()
            errors[name] = raised.value
        return errors
