"""The contract on a fake broker over sockets, with the clients of a real one."""

from collections.abc import AsyncIterator

import pytest

from contract.cluster.acl_admin_contract import AclAdminContract, NoAuthorizerContract
from contract.cluster.cluster_rig import ClusterRig, success
from contract.cluster.config_admin_contract import ConfigAdminContract
from contract.cluster.group_admin_contract import GroupAdminContract
from contract.cluster.kafka_rig import KafkaRig
from contract.cluster.log_admin_contract import LogAdminContract, RetentionContract
from contract.cluster.log_reader_contract import LogReaderContract
from contract.cluster.log_writer_contract import LogWriterContract
from contract.cluster.membership_contract import MembershipContract
from contract.cluster.quota_admin_contract import QuotaAdminContract
from contract.cluster.topic_admin_contract import TopicAdminContract
from contract.cluster.wire_contract import TransactionWireContract, WireContract
from twinlog.kafka.admin.topics import ClusterInspector
from twinlog.kafka.cluster import open_cluster
from twinlog.properties_text import plain_login
from twinlog.testing.broker import FakeKafka
from twinlog.testing.broker.acls import Authorizer
from twinlog.testing.broker.calls import KAFKA_3_9, KAFKA_4_3, RELEASES

TIMEOUT_SECONDS = 60.0
EACH_RELEASE = pytest.mark.parametrize("kafka", RELEASES, ids=lambda each: each.name, indirect=True)
BOTH_RELEASES = pytest.mark.parametrize(
    "kafka", [KAFKA_3_9, KAFKA_4_3], ids=lambda each: each.name, indirect=True
)


@pytest.fixture
async def kafka(request: pytest.FixtureRequest) -> AsyncIterator[FakeKafka]:
    async with FakeKafka(release=getattr(request, "param", KAFKA_4_3)) as kafka:
        yield kafka


@pytest.fixture
async def rig(kafka: FakeKafka) -> AsyncIterator[ClusterRig]:
    properties = {"bootstrap.servers": kafka.bootstrap}
    async with open_cluster("A", properties, timeout_seconds=TIMEOUT_SECONDS) as cluster:
        yield KafkaRig(cluster, properties, kafka.release)


class TestGroupAdmin(GroupAdminContract):
    pass


class TestElection(MembershipContract):
    pass


@BOTH_RELEASES
class TestTopicAdmin(TopicAdminContract):
    pass


@BOTH_RELEASES
class TestLogAdmin(LogAdminContract):
    pass


@BOTH_RELEASES
class TestLogReader(LogReaderContract):
    pass


@BOTH_RELEASES
class TestLogWriter(LogWriterContract):
    pass


@BOTH_RELEASES
class TestConfigAdmin(ConfigAdminContract):
    pass


class TestQuotaAdmin(QuotaAdminContract):
    pass


class TestNoAuthorizer(NoAuthorizerContract):
    pass


class TestAclAdmin(AclAdminContract):
    """On a cluster with an authorizer, as its super user."""

    @pytest.fixture
    async def rig(self) -> AsyncIterator[ClusterRig]:
        async with FakeKafka() as kafka:
            kafka.cluster.passwords = {"super": "secret"}
            kafka.cluster.authorizer = Authorizer(super_users=["User:super"])
            properties = {
                "bootstrap.servers": kafka.bootstrap,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": plain_login({"username": "super", "password": "secret"}),
            }
            async with open_cluster("A", properties, timeout_seconds=TIMEOUT_SECONDS) as cluster:
                yield KafkaRig(cluster, properties, kafka.release)


class TestRetention(RetentionContract):
    @pytest.fixture
    async def kafka(self) -> AsyncIterator[FakeKafka]:
        async with FakeKafka() as kafka:
            kafka.cluster.broker_configs["log.retention.check.interval.ms"] = "1000"
            yield kafka


@BOTH_RELEASES
async def test_preflight_is_told_release_and_rights(kafka: FakeKafka) -> None:
    kafka.cluster.create_topic("orders")
    properties = {"bootstrap.servers": kafka.bootstrap}
    async with ClusterInspector("A", properties, timeout_seconds=TIMEOUT_SECONDS) as inspector:
        assert (await inspector.release() == "4.0") == (kafka.release is KAFKA_4_3)
        assert "CREATE" in await inspector.cluster_operations()
        assert {"READ", "DELETE"} <= success((await inspector.group_operations(["nobody"]))["nobody"])
        assert "ALTER_CONFIGS" in success((await inspector.topic_operations(["orders"]))["orders"])
        assert await inspector.may_write_transactions("copier")


@EACH_RELEASE
class TestWire(WireContract):
    pass


@EACH_RELEASE
class TestTransactionWire(TransactionWireContract):
    pass
