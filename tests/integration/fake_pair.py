"""Fake clusters in place of brokers, for what asks for no more than those have."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import cast

import pytest

from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.testing.broker import FakeKafka
from twinlog.testing.brokers import KafkaPair


@dataclass(frozen=True, slots=True)
class _FakeCluster:
    """As tests ask a real one."""

    bootstrap_servers: str

    def client_properties(self) -> dict[str, str]:
        return {"bootstrap.servers": self.bootstrap_servers}


def _as_real(kafka: FakeKafka) -> BlockingCluster:
    return cast("BlockingCluster", _FakeCluster(kafka.bootstrap))


@pytest.fixture
async def kafka_pair() -> AsyncIterator[KafkaPair]:
    """Clusters A and B of the test's own, in its process: a module that imports this asks no broker."""
    async with FakeKafka(seed=1) as a, FakeKafka(seed=2) as b:
        yield KafkaPair(a=_as_real(a), b=_as_real(b))
