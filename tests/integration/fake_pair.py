"""Fake clusters in place of brokers, for what asks for no more than those have."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import cast

import pytest

from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.testing.broker import FakeKafka
from twinlog.testing.broker.calls import KAFKA_3_9
from twinlog.testing.brokers import KafkaPair


@dataclass(frozen=True, slots=True)
class _FakeCluster:
    """As tests ask a real one."""

    bootstrap_servers: str

    def client_properties(self) -> dict[str, str]:
        return {"bootstrap.servers": self.bootstrap_servers}


def as_real(kafka: FakeKafka) -> BlockingCluster:
    return cast("BlockingCluster", _FakeCluster(kafka.bootstrap))


@pytest.fixture
async def kafka_pair() -> AsyncIterator[KafkaPair]:
    """Clusters A and B of the test's own, in its process: a module that imports this asks no broker."""
    async with FakeKafka(seed=1) as a, FakeKafka(seed=2) as b:
        yield KafkaPair(a=as_real(a), b=as_real(b))


@pytest.fixture
async def older_cluster() -> AsyncIterator[BlockingCluster]:
    async with FakeKafka(seed=3, release=KAFKA_3_9) as older:
        yield as_real(older)


@pytest.fixture
async def three_brokers() -> AsyncIterator[BlockingCluster]:
    async with FakeKafka(seed=4, node_count=3) as three:
        yield as_real(three)
