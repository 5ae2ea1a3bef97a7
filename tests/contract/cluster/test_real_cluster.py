"""The contract on real brokers: that what the fake does is what Kafka does."""

from collections.abc import AsyncIterator

import pytest

from contract.cluster.acl_admin_contract import AclAdminContract, NoAuthorizerContract
from contract.cluster.cluster_rig import ClusterRig, append_values, failure, new_topic, success
from contract.cluster.config_admin_contract import ConfigAdminContract
from contract.cluster.group_admin_contract import GroupAdminContract, OtherGroupsContract
from contract.cluster.kafka_rig import KafkaRig
from contract.cluster.log_admin_contract import LogAdminContract, RetentionContract
from contract.cluster.log_reader_contract import LogReaderContract
from contract.cluster.log_writer_contract import LogWriterContract
from contract.cluster.membership_contract import MembershipContract
from contract.cluster.quota_admin_contract import QuotaAdminContract
from contract.cluster.topic_admin_contract import TopicAdminContract
from contract.cluster.wire_client import wire_client
from contract.cluster.wire_contract import TransactionWireContract, WireContract
from twinlog.kafka.admin.topics import TOPICS_A_REQUEST, ClusterInspector
from twinlog.kafka.cluster import open_cluster
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.model import TopicPartition
from twinlog.testing.broker.calls import RELEASES
from twinlog.testing.broker.codec import schema_versions
from twinlog.testing.broker.configs import topic_defaults
from twinlog.testing.broker.handlers import HANDLERS
from twinlog.testing.brokers import TESTED_KAFKA, KafkaPair, eventually, unique_name

TIMEOUT_SECONDS = 60.0
RELEASE = next(each for each in RELEASES if TESTED_KAFKA.startswith(each.name))


@pytest.fixture
async def rig(kafka_pair: KafkaPair) -> AsyncIterator[ClusterRig]:
    properties = kafka_pair.a.client_properties()
    async with open_cluster("A", properties, timeout_seconds=TIMEOUT_SECONDS) as cluster:
        yield KafkaRig(cluster, properties, RELEASE)


class TestTopicAdmin(TopicAdminContract):
    async def test_more_topics_are_described_than_one_request_asks_for(self, rig: ClusterRig) -> None:
        name = await new_topic(rig.cluster, "among-many")
        missing = {f"no-such-{number:04}" for number in range(TOPICS_A_REQUEST)}
        described = await rig.cluster.describe_topics([name, *missing])
        assert success(described[name]).partition_count == 1
        assert {failure(described[other]).reason for other in missing} == {"TOPIC_UNKNOWN"}
        assert described.keys() == {name, *missing}


class TestConfigAdmin(ConfigAdminContract):
    pass


class TestNoAuthorizer(NoAuthorizerContract):
    pass


class TestQuotaAdmin(QuotaAdminContract):
    pass


class TestGroupAdmin(GroupAdminContract, OtherGroupsContract):
    pass


class TestElection(MembershipContract):
    pass


class TestLogAdmin(LogAdminContract):
    pass


class TestLogReader(LogReaderContract):
    pass


class TestLogWriter(LogWriterContract):
    pass


class TestWire(WireContract):
    pass


class TestTransactionWire(TransactionWireContract):
    pass


async def test_the_fake_offers_exactly_what_a_broker_of_its_release_does(rig: ClusterRig) -> None:
    """Of the APIs that it has, up to the newest version for which there is a schema."""
    async with wire_client(rig) as client:
        told = await client.ask("api_versions", 3, client_software_name="wire", client_software_version="1")
    real = {
        each.api_key: (each.min_version, min(each.max_version, schema_versions(each.api_key)[1]))
        for each in told.api_keys
        if each.api_key in HANDLERS
    }
    fake = {key: offer for key in HANDLERS if (offer := RELEASE.offered(key))}
    assert fake == real
    assert RELEASE.features == {each.name: each.max_version_level for each in told.finalized_features}


async def test_a_topic_of_the_fake_has_the_configs_of_its_release(rig: ClusterRig) -> None:
    name = await new_topic(rig.cluster, "configs")
    described = success((await rig.cluster.describe_topic_configs([name]))[name])
    assert {entry.name: entry.value for entry in described} == topic_defaults(RELEASE)


class TestRightsOnGroups:
    @pytest.mark.parametrize("group_type", ["classic", "consumer"])
    async def test_they_are_told_of_groups_with_members_whatever_their_protocol(
        self, kafka_pair: KafkaPair, rig: ClusterRig, group_type: str
    ) -> None:
        """As preflight asks beside a deployment that runs: its leases are groups of a protocol of ours."""
        topic = await new_topic(rig.cluster, "rights")
        await append_values(rig.cluster, TopicPartition(topic, 0), [b"one"])
        group_id = unique_name("rights")
        properties = kafka_pair.a.client_properties()
        lease = unique_name("lease")
        leader = rig.cluster.member(
            lease, assign=lambda said, _: said, session_seconds=20, rebalance_seconds=20
        )
        async with ClusterInspector("A", properties, timeout_seconds=TIMEOUT_SECONDS) as inspector:
            try:
                await eventually(lambda: leader.join(lambda _: b"leader"))
                async with rig.active_group(group_id, topic, group_type=group_type):
                    told = await inspector.group_operations([lease, group_id, "nobody"])
            finally:
                await leader.withdraw()
        for name in (lease, group_id, "nobody"):
            assert {"READ", "DESCRIBE", "DELETE"} <= success(told[name])


class TestGuarded(AclAdminContract, RetentionContract):
    """On a cluster with an authorizer, as its super user; it looks for old segments every second."""

    @pytest.fixture
    async def rig(self, sasl_cluster: BlockingCluster) -> AsyncIterator[ClusterRig]:
        properties = sasl_cluster.client_properties()
        async with open_cluster("guarded", properties, timeout_seconds=TIMEOUT_SECONDS) as cluster:
            yield KafkaRig(cluster, properties, RELEASE)
