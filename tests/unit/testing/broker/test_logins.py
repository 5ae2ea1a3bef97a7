"""Clients log in to the fake broker: by SASL, as themselves."""

import asyncio

import pytest
from kio.schema.errors import ErrorCode

from contract.cluster.wire_client import WireClient
from twinlog.errors import KafkaError
from twinlog.kafka.ports import OffsetSpec
from twinlog.kafka.raw import list_offsets
from twinlog.model import TopicPartition
from twinlog.properties_text import plain_login, scram_login
from twinlog.testing.broker import FakeKafka
from twinlog.testing.broker.acls import MECHANISMS, Acl, Authorizer, Operation, Pattern, Permission, Resource
from twinlog.testing.raw_copying import open_session

ORDERS = TopicPartition("orders", 0)


def _properties(kafka: FakeKafka, mechanism: str, user: str, password: str) -> dict[str, str]:
    login = {"username": user, "password": password}
    return {
        "bootstrap.servers": kafka.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": plain_login(login) if mechanism == "PLAIN" else scram_login(login),
    }


async def _end(kafka: FakeKafka, mechanism: str, user: str, password: str) -> object:
    async with open_session("A", _properties(kafka, mechanism, user, password)) as session:
        return (await list_offsets(session, OffsetSpec.LATEST, [ORDERS]))[ORDERS]


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_users_have_their_own_rights(mechanism: str) -> None:
    async with FakeKafka(node_count=2) as kafka:
        kafka.cluster.create_topic("orders")
        kafka.cluster.passwords = {"alice": "it's, [a] = \\secret", "bob": "b"}
        kafka.cluster.authorizer = Authorizer()
        kafka.cluster.authorizer.add(
            [
                Acl(
                    Resource.TOPIC,
                    "orders",
                    Pattern.LITERAL,
                    "User:alice",
                    "*",
                    Operation.READ,
                    Permission.ALLOW,
                )
            ]
        )
        assert await _end(kafka, mechanism, "alice", "it's, [a] = \\secret") == 0
        assert isinstance(await _end(kafka, mechanism, "bob", "b"), KafkaError)
        with pytest.raises(KafkaError, match="refused the credentials"):
            await _end(kafka, mechanism, "alice", "b")


async def test_nobody_is_served_before_the_login() -> None:
    async with FakeKafka() as kafka:
        kafka.cluster.passwords = {"alice": "a"}
        node = kafka.cluster.nodes[1]
        reader, writer = await asyncio.open_connection(node.host, node.port)
        client = WireClient(reader, writer)
        assert (await client.ask("api_versions", 0)).error_code is ErrorCode.none
        refused = await client.ask("sasl_handshake", 1, mechanism="GSSAPI")
        assert refused.error_code is ErrorCode.unsupported_sasl_mechanism
        with pytest.raises(asyncio.IncompleteReadError):
            await client.ask("metadata", 1, topics=[])
        writer.close()
