"""The contract on the fake cluster."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from contract.cluster.acl_admin_contract import AclAdminContract, NoAuthorizerContract
from contract.cluster.cluster_rig import ClusterRig, Ending
from contract.cluster.config_admin_contract import ConfigAdminContract
from contract.cluster.group_admin_contract import GroupAdminContract, OtherGroupsContract
from contract.cluster.log_admin_contract import LogAdminContract
from contract.cluster.log_reader_contract import LogReaderContract
from contract.cluster.log_writer_contract import LogWriterContract
from contract.cluster.quota_admin_contract import QuotaAdminContract
from contract.cluster.topic_admin_contract import TopicAdminContract
from twinlog.batches import EndMarker
from twinlog.kafka.ports import KafkaCluster
from twinlog.model import Record, TopicPartition
from twinlog.testing.broker.calls import KAFKA_4_3
from twinlog.testing.fakes.cluster import FakeCluster


class FakeRig:
    def __init__(self, cluster: FakeCluster) -> None:
        self.fake = cluster
        self.cluster: KafkaCluster = cluster
        self.release = KAFKA_4_3

    async def transaction(self, partition: TopicPartition, values: Sequence[bytes], ending: Ending) -> None:
        self.fake.append_transaction(partition, _records(values), EndMarker[ending.name])

    @asynccontextmanager
    async def _open(self, partition: TopicPartition, values: Sequence[bytes]) -> AsyncIterator[None]:
        number = self.fake.append_transaction(partition, _records(values), None)
        yield
        self.fake.finish_transaction(partition, number, EndMarker.ABORT)

    def open_transaction(
        self, partition: TopicPartition, values: Sequence[bytes]
    ) -> AbstractAsyncContextManager[None]:
        return self._open(partition, values)

    @asynccontextmanager
    async def _active(self, group_id: str, group_type: str) -> AsyncIterator[None]:
        self.fake.set_group(group_id, state="STABLE", group_type=group_type, member_count=1)
        yield
        self.fake.set_group(group_id, group_type=group_type)

    def active_group(
        self, group_id: str, topic: str, *, group_type: str
    ) -> AbstractAsyncContextManager[None]:
        return self._active(group_id, group_type)


def _records(values: Sequence[bytes]) -> list[Record]:
    return [Record(offset=-1, timestamp_ms=1, key=b"key", value=value) for value in values]


@pytest.fixture
def rig() -> ClusterRig:
    return FakeRig(FakeCluster())


class TestTopicAdmin(TopicAdminContract):
    pass


class TestConfigAdmin(ConfigAdminContract):
    pass


class TestAclAdmin(AclAdminContract):
    pass


class TestNoAuthorizer(NoAuthorizerContract):
    @pytest.fixture
    def rig(self) -> ClusterRig:
        return FakeRig(FakeCluster(authorizer=False))


class TestQuotaAdmin(QuotaAdminContract):
    pass


class TestGroupAdmin(GroupAdminContract, OtherGroupsContract):
    pass


class TestLogAdmin(LogAdminContract):
    pass


class TestLogReader(LogReaderContract):
    pass


class TestLogWriter(LogWriterContract):
    pass
