"""The contract on a fake broker over sockets, with the clients of a real one."""

from collections.abc import AsyncIterator

import pytest

from contract.cluster.cluster_rig import ClusterRig
from contract.cluster.election_contract import ElectionContract
from contract.cluster.group_admin_contract import GroupAdminContract
from contract.cluster.kafka_rig import KafkaRig
from contract.cluster.log_admin_contract import LogAdminContract
from contract.cluster.log_reader_contract import LogReaderContract
from contract.cluster.log_writer_contract import LogWriterContract
from contract.cluster.topic_admin_contract import TopicAdminContract
from twinlog.kafka.cluster import open_cluster
from twinlog.testing.broker import FakeKafka
from twinlog.testing.broker.releases import KAFKA_3_9, KAFKA_4_3

TIMEOUT_SECONDS = 60.0
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
        yield KafkaRig(cluster, properties)


class TestGroupAdmin(GroupAdminContract):
    pass


class TestElection(ElectionContract):
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
