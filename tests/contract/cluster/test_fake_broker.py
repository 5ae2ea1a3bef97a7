"""The contract on a fake broker over sockets, with the clients of a real one."""

from collections.abc import AsyncIterator

import pytest

from contract.cluster.cluster_rig import ClusterRig
from contract.cluster.election_contract import ElectionContract
from contract.cluster.group_admin_contract import GroupAdminContract
from contract.cluster.kafka_rig import KafkaRig
from twinlog.kafka.cluster import open_cluster
from twinlog.testing.broker import FakeKafka

TIMEOUT_SECONDS = 60.0


@pytest.fixture
async def kafka() -> AsyncIterator[FakeKafka]:
    async with FakeKafka() as kafka:
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
