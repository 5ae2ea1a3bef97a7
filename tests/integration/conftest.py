"""Clusters that only this tier needs, started at their first use and shared by the whole run."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from integration.standalone_spark import StandaloneSpark, standalone_spark
from twinlog.kafka.cluster import open_cluster
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.spec import ClusterSpec, KafkaVersion, SaslMechanism, Security
from twinlog.testing.brokers import retry_admin, start_clusters, stop_clusters

READER, WRITER, MIRROR = "twinlog-reader", "twinlog-writer", "mirror"
PASSWORD = "not-to-be-seen"


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedPair:
    """Two clusters with an authorizer. Users besides the super user: a reader on A, a writer on B, and on
    both `mirror`; none has rights at first.
    """

    a: BlockingCluster
    """SASL/PLAIN."""
    b: BlockingCluster
    """SCRAM-SHA-512."""


@pytest.fixture(scope="session")
def older_cluster() -> Iterator[BlockingCluster]:
    """Kafka 3.9: transactions of version 0."""
    clusters = start_clusters(ClusterSpec(name="older", version=KafkaVersion.V3_9))
    yield clusters[0]
    stop_clusters(clusters)


@pytest.fixture(scope="session")
def three_brokers() -> Iterator[BlockingCluster]:
    """One cluster of three, whose brokers may be killed by tests that restart them."""
    clusters = start_clusters(ClusterSpec(name="three", broker_count=3))
    yield clusters[0]
    stop_clusters(clusters)


@pytest.fixture(scope="session")
def guarded_brokers() -> Iterator[GuardedPair]:
    def spec(name: str, mechanism: SaslMechanism, user: str) -> ClusterSpec:
        users = {user: PASSWORD, MIRROR: PASSWORD}
        return ClusterSpec(
            name=name, security=Security(mechanisms=(mechanism,), users=users, authorizer=True)
        )

    clusters = start_clusters(
        spec("guarded-A", SaslMechanism.PLAIN, READER), spec("guarded-B", SaslMechanism.SCRAM_SHA_512, WRITER)
    )
    yield GuardedPair(a=clusters[0], b=clusters[1])
    stop_clusters(clusters)


@pytest.fixture
def guarded(guarded_brokers: GuardedPair) -> GuardedPair:
    """Nobody has a right there but the super users, whatever the tests before have granted."""
    asyncio.run(_revoke_everything(guarded_brokers))
    return guarded_brokers


async def _revoke_everything(pair: GuardedPair) -> None:
    for cluster in (pair.a, pair.b):
        async with open_cluster("guarded", cluster.client_properties()) as admin:
            granted = await admin.describe_acls() or ()
            await retry_admin(partial(admin.delete_acls, granted))


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[StandaloneSpark]:
    """A Spark cluster."""
    with standalone_spark(tmp_path) as cluster:
        yield cluster
