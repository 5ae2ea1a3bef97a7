"""What brokers are asked: as the settings of a file say, and no more often than need be.

`tests/unit/config/every_key.txt` names the test of each key.
"""

from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from integration.kafka.request_log import RequestLog
from integration.source.source_rig import Rig, open_rig
from twinlog.errors import KafkaError
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import NewTopic
from twinlog.kafka.raw.fetch.reader import BatchReader
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.spec import ClusterSpec
from twinlog.model import TopicPartition
from twinlog.testing.brokers import eventually, make_topics, start_clusters, stop_clusters, unique_name
from twinlog.testing.raw_copying import open_session

TOPIC = "asked"
LONGEST_WAIT_MS = 4500
"""As asked of brokers: not what they are asked unless it is set."""


@pytest.fixture(scope="module")
def told() -> Iterator[tuple[BlockingCluster, BlockingCluster]]:
    """Two clusters whose brokers write down every request once they are told to."""
    clusters = start_clusters(ClusterSpec(name="told-a"), ClusterSpec(name="told-b"))
    yield clusters[0], clusters[1]
    stop_clusters(clusters)


@pytest.fixture
async def rig(told: tuple[BlockingCluster, BlockingCluster], tmp_path: Path) -> AsyncIterator[Rig]:
    async with open_rig(*told, tmp_path) as opened:
        yield opened


async def test_brokers_are_asked_as_the_file_says(
    told: tuple[BlockingCluster, BlockingCluster], rig: Rig
) -> None:
    a, b = (RequestLog(cluster=cluster) for cluster in told)
    for log in (a, b):
        await log.begin()
    names = {role: unique_name(role) for role in ("reads-a", "asks-a", "reads-b", "asks-b", "writes-b")}
    rig.extra |= {
        "topics": TOPIC,
        f"{rig.a}.consumer.client.id": names["reads-a"],
        f"{rig.a}.consumer.client.rack": "rack-7",
        f"{rig.a}.consumer.fetch.max.bytes": "200000",
        f"{rig.a}.consumer.max.partition.fetch.bytes": "150000",
        f"{rig.a}.consumer.fetch.min.bytes": "3",
        f"{rig.a}.consumer.fetch.max.wait.ms": "6000",
        # A broker that waits for data answers within half of it, whatever the line before says.
        f"{rig.a}.consumer.request.timeout.ms": str(2 * LONGEST_WAIT_MS),
        f"{rig.a}.consumer.isolation.level": "read_uncommitted",
        f"{rig.a}.admin.client.id": names["asks-a"],
        f"{rig.b}.admin.client.id": names["asks-b"],
        f"{rig.b}.consumer.client.id": names["reads-b"],
        f"{rig.b}.producer.client.id": names["writes-b"],
        f"{rig.b}.producer.request.timeout.ms": "14000",
        f"{rig.b}.producer.transaction.timeout.ms": "23000",
        f"{rig.b}.producer.max.request.size": "70000",
        "twinlog.coalesce.below.bytes": "0",
        f"{rig.b}.producer.compression.type": "none",
    }
    await rig.create(TOPIC)
    await rig.produce(TOPIC, [b"%d" % number * 20_000 for number in range(1, 10)], batch_bytes=30_000)
    async with rig.configsync() as configsync, rig.running(configsync):
        await rig.same(TOPIC)

        async def waits_for_more() -> bool:
            return any(fetch["maxWaitMs"] == LONGEST_WAIT_MS for fetch in fetches_of(a, names["reads-a"]))

        # A broker tells of a request once it has answered it.
        await eventually(waits_for_more)

    fetches = fetches_of(a, names["reads-a"])
    assert fetches
    for fetch in fetches:
        assert fetch["maxBytes"] <= 200_000
        assert fetch["minBytes"] == 3
        assert fetch["maxWaitMs"] <= LONGEST_WAIT_MS
        assert fetch["isolationLevel"] == 0
        assert fetch["rackId"] == "rack-7"
        for topic in fetch["topics"]:
            assert {each["partitionMaxBytes"] for each in topic["partitions"]} <= {150_000}
    assert max(fetch["maxBytes"] for fetch in fetches) == 200_000

    begun = b.of("INIT_PRODUCER_ID", names["writes-b"])
    # Producers without transactions say the longest time there is.
    timeouts = {each.body["transactionTimeoutMs"] for each in begun if each.body["transactionalId"]}
    assert timeouts == {23_000}
    writes = b.of("PRODUCE", names["writes-b"])
    assert {write.body["timeoutMs"] for write in writes} == {14_000}
    sizes = [sum(_sizes(write.body)) for write in writes]
    # A fetch brings twice as much.
    assert max(sizes) <= 70_000, sizes

    assert a.of("METADATA", names["asks-a"])
    assert b.of("CREATE_TOPICS", names["asks-b"])
    assert b.of("FETCH", names["reads-b"])


def fetches_of(log: RequestLog, client_id: str) -> list[Mapping[str, Any]]:
    """The requests with which tasks fetched records."""
    return [
        fetch.body
        for fetch in log.of("FETCH", client_id)
        if fetch.client_id.endswith("replication-consumer")
        and any(topic["partitions"] for topic in fetch.body["topics"])
    ]


def _sizes(produce: object) -> Iterator[int]:
    """Sizes of all record sets of a request, wherever this version has them."""
    if isinstance(produce, dict):
        for key, value in produce.items():
            if key == "recordsSizeInBytes" and isinstance(value, int):
                yield value
            else:
                yield from _sizes(value)
    elif isinstance(produce, list):
        for value in produce:
            yield from _sizes(value)


async def test_metadata_max_age_ms_is_how_often_every_client_asks_what_there_is(
    told: tuple[BlockingCluster, BlockingCluster],
) -> None:
    name = unique_name("often")
    log = RequestLog(cluster=told[0])
    await log.begin()
    properties = {
        **told[0].client_properties(),
        "client.id": name,
        "metadata.max.age.ms": "300",
        "bootstrap.servers": told[0].bootstrap_servers,
    }
    async with open_cluster("often", properties) as cluster, cluster.reader() as reader:
        await cluster.describe_broker_configs()
        await cluster.list_topics()
        with pytest.raises(KafkaError):
            await reader.fetch(TopicPartition("not there", 0), 0, max_wait_seconds=0)
        asked = {each.client_id for each in log.of("METADATA", name)}
        before = {client: len(log.of("METADATA", client)) for client in asked}
        assert before

        async def each_asks_again() -> bool:
            # Five minutes unless it is set.
            return all(len(log.of("METADATA", client)) > before[client] + 1 for client in before)

        await eventually(each_asks_again)


async def test_the_leaders_of_many_topics_are_found_at_once(
    told: tuple[BlockingCluster, BlockingCluster],
) -> None:
    name = unique_name("many")
    topics = [f"{name}-{number}" for number in range(20)]
    log = RequestLog(cluster=told[0])
    await log.begin()
    async with open_cluster("A", told[0].client_properties()) as cluster:
        await make_topics(
            cluster, *(NewTopic(name=topic, partition_count=1, replication_factor=1) for topic in topics)
        )
    partitions = [TopicPartition(topic, 0) for topic in topics]
    async with open_session("A", {**told[0].client_properties(), "client.id": name}) as session:
        reader = BatchReader(session, read_committed=True)
        await reader.expect(partitions[:1])
        before = len(log.of("METADATA", name))
        await reader.expect(partitions)
        for partition in partitions:
            assert not (await reader.fetch(partition, 0, max_bytes=1)).batches
        # A topic that is new may have no leader yet.
        assert len(log.of("METADATA", name)) <= before + 5


async def test_connections_that_are_idle_are_closed(told: tuple[BlockingCluster, BlockingCluster]) -> None:
    properties = {**told[0].client_properties(), "connections.max.idle.ms": "5000"}
    port = int(told[0].bootstrap_servers.rpartition(":")[2])

    def connections() -> set[int]:
        """Their local ports."""
        return {
            each.laddr.port
            for each in psutil.Process().net_connections("tcp")
            if bool(each.raddr) and each.raddr.port == port and each.status == psutil.CONN_ESTABLISHED
        }

    # Of tests before this one; they may close any time.
    others = connections()
    async with open_cluster("idle", properties) as cluster:
        await cluster.list_topics()
        await cluster.describe_broker_configs()
        opened = connections() - others
        assert opened
        # Nine minutes unless it is set.
        await eventually(lambda: not opened & connections())
        await cluster.list_topics()
        await cluster.describe_broker_configs()
