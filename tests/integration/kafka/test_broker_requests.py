"""What brokers are asked: as the settings of a file say, and no more often than need be.

`tests/unit/config/test_every_key.py` names the test of each key.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from integration.kafka.request_log import RequestLog
from integration.source.source_rig import Rig, open_rig
from twinlog.batches import NewRecord, build_batch
from twinlog.config import load
from twinlog.errors import KafkaError
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import NewTopic
from twinlog.kafka.raw import RawProducer
from twinlog.kafka.raw.fetch.reader import BatchReader
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.spec import ClusterSpec
from twinlog.model import TopicPartition
from twinlog.testing.brokers import eventually, make_topics, start_clusters, stop_clusters, unique_name
from twinlog.testing.raw_copying import open_session
from twinlog_source.task.writing.producer_settings import producer_settings

TOPIC = "asked"
LONGEST_WAIT_MS = 4500
"""As asked of brokers: not what they are asked unless it is set."""
PATIENT_SECONDS = 60.0
"""The bound of calls that a setting is to end sooner."""


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
        await cluster.describe_broker_configs(1)
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
        await cluster.describe_broker_configs(1)
        opened = connections() - others
        assert opened
        # Nine minutes unless it is set.
        await eventually(lambda: not opened & connections())
        await cluster.list_topics()
        await cluster.describe_broker_configs(1)


@dataclass(slots=True, kw_only=True)
class Listener:
    """Accepts connections, and counts them."""

    accepted: int = 0
    hangs_up: bool
    _hold: list[asyncio.StreamWriter] = field(default_factory=list)

    async def on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        if self.hangs_up:
            writer.close()
        else:
            self._hold.append(writer)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self.on_connection, "127.0.0.1", 0)
        try:
            host, port = server.sockets[0].getsockname()[:2]
            yield f"{host}:{port}"
        finally:
            for writer in self._hold:
                writer.close()
            server.close()


async def test_a_call_to_brokers_that_do_not_answer_ends_with_default_api_timeout_ms() -> None:
    async with Listener(hangs_up=False).listening() as server:
        properties = {"bootstrap.servers": server, "default.api.timeout.ms": "400"}
        async with open_cluster("silent", properties) as cluster:
            for ask in (cluster.list_topics, lambda: cluster.describe_broker_configs(1)):
                with pytest.raises(KafkaError):
                    async with asyncio.timeout(PATIENT_SECONDS):
                        await ask()


async def test_brokers_that_hang_up_are_tried_again_as_often_as_reconnect_backoff_says() -> None:
    """Three clients at the same time: one is slow, unless reconnect.backoff.max.ms bounds it."""
    settings = {
        "quick": {"reconnect.backoff.ms": "20"},
        "slow": {"reconnect.backoff.ms": "60000"},
        "bounded": {"reconnect.backoff.ms": "60000", "reconnect.backoff.max.ms": "20"},
    }
    listeners = {name: Listener(hangs_up=True) for name in settings}
    async with AsyncExitStack() as opened:
        clusters = []
        for name, listener in listeners.items():
            server = await opened.enter_async_context(listener.listening())
            properties = {"bootstrap.servers": server, "default.api.timeout.ms": "600000", **settings[name]}
            clusters.append(await opened.enter_async_context(open_cluster(name, properties)))
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(cluster.describe_topic_configs(["any"]), name="asks")
                for cluster in clusters
            ]
            await eventually(lambda: listeners["bounded"].accepted >= 40)
            assert listeners["slow"].accepted < 10
            for task in tasks:
                task.cancel()


async def test_administrative_calls_of_a_flow_end_with_admin_timeout_ms(tmp_path: Path) -> None:
    async with Listener(hangs_up=False).listening() as server:
        file = tmp_path / "mm2.properties"
        lines = ["clusters = A, B, C", "A->B.enabled = true", "A->C.enabled = true"]
        lines += [f"{alias}.bootstrap.servers = {server}" for alias in "ABC"]
        file.write_text("\n".join([*lines, "A->B.admin.timeout.ms = 400", "A->C.admin.timeout.ms = 600000"]))
        hasty, patient = load(file, environ={}).enabled_flows
        assert (str(hasty.flow), str(patient.flow)) == ("A->B", "A->C")
        async with AsyncExitStack() as opened:
            calls: dict[str, list[asyncio.Task[None]]] = {"hasty": [], "patient": []}
            group = await opened.enter_async_context(asyncio.TaskGroup())
            for name, flow in (("hasty", hasty), ("patient", patient)):
                for client in (flow.clients.source_admin, flow.clients.target_admin):
                    cluster = await opened.enter_async_context(open_cluster(client.alias, client.properties))
                    for ask in (cluster.list_topics, partial(cluster.describe_broker_configs, 1)):
                        calls[name].append(group.create_task(_refused(ask), name=name))
            async with asyncio.timeout(PATIENT_SECONDS):
                await asyncio.wait(calls["hasty"])
            assert not [call for call in calls["patient"] if call.done()]
            for call in calls["patient"]:
                call.cancel()


async def _refused(call: Callable[[], Awaitable[object]]) -> None:
    with pytest.raises(KafkaError):
        await call()


@dataclass(slots=True, kw_only=True)
class Hello:
    """What a client offers at the beginning of a TLS connection."""

    suites: frozenset[int]
    versions: frozenset[int]


def read_hello(data: bytes) -> Hello:
    """A record of type 22 with a ClientHello (RFC 8446, 4.1.2)."""
    assert (data[0], data[5]) == (22, 1)
    position = 5 + 4 + 2 + 32
    position += 1 + data[position]
    size = int.from_bytes(data[position : position + 2])
    position += 2
    suites = frozenset(int.from_bytes(data[at : at + 2]) for at in range(position, position + size, 2))
    position += size
    position += 1 + data[position]
    end = position + 2 + int.from_bytes(data[position : position + 2])
    position += 2
    versions = frozenset({TLS_1_2})
    while position < end:
        kind, size = (
            int.from_bytes(data[position : position + 2]),
            int.from_bytes(data[position + 2 : position + 4]),
        )
        if kind == SUPPORTED_VERSIONS:
            listed = data[position + 5 : position + 4 + size]
            versions = frozenset(int.from_bytes(listed[at : at + 2]) for at in range(0, len(listed), 2))
        position += 4 + size
    return Hello(suites=suites, versions=versions)


SUPPORTED_VERSIONS = 43
TLS_1_2, TLS_1_3 = 0x0303, 0x0304
SUITES_OF_1_3 = frozenset({0x1301, 0x1302, 0x1303})
ECDHE_RSA_AES256_GCM = 0xC030
NO_SUITE = frozenset({0x00FF, 0x5600})
"""Signals of TLS that stand among the suites (RFC 5746, RFC 7507)."""


async def hellos(settings: Mapping[str, str]) -> list[Hello]:
    """What the client that copies says first, and what the one that administers says."""
    seen: asyncio.Queue[bytes] = asyncio.Queue()

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        header = await reader.readexactly(5)
        seen.put_nowait(header + await reader.readexactly(int.from_bytes(header[3:5])))
        writer.close()

    server = await asyncio.start_server(on_connection, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    properties = {"bootstrap.servers": f"{host}:{port}", "security.protocol": "SSL", **settings}
    found = []
    async with server, open_cluster("tls", properties) as cluster:
        for call in (cluster.list_topics, partial(cluster.describe_broker_configs, 1)):
            async with asyncio.TaskGroup() as group, asyncio.timeout(PATIENT_SECONDS):
                asking = group.create_task(_refused(call), name="asks")
                found.append(read_hello(await seen.get()))
                asking.cancel()
            while not seen.empty():
                seen.get_nowait()
    return found


async def test_clients_offer_what_ssl_enabled_protocols_and_ssl_cipher_suites_leave() -> None:
    for hello in await hellos({}):
        assert hello.versions >= {TLS_1_2, TLS_1_3}
        assert len(hello.suites - SUITES_OF_1_3 - NO_SUITE) > 1
    limits = {
        "ssl.enabled.protocols": "TLSv1.2",
        "ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    }
    copies, administers = await hellos(limits)
    assert copies.versions == {TLS_1_2}
    # Of the administrative client TLS 1.3 cannot be taken; it is the newer one.
    for hello in (copies, administers):
        assert hello.suites - SUITES_OF_1_3 - NO_SUITE == {ECDHE_RSA_AES256_GCM}
        assert hello.versions <= {TLS_1_2, TLS_1_3}


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinTopic:
    """Its leader takes no batch: a replica too few is in sync."""

    cluster: BlockingCluster
    name: str
    leader: int


@pytest.fixture
async def thin_topic(start_cluster: Callable[[ClusterSpec], BlockingCluster]) -> ThinTopic:
    cluster = start_cluster(ClusterSpec(name="thin", broker_count=3))
    name = unique_name("thin")
    async with open_cluster("thin", cluster.client_properties()) as admin:
        await make_topics(
            admin,
            NewTopic(
                name=name, partition_count=1, replication_factor=2, configs={"min.insync.replicas": "2"}
            ),
        )
    async with open_session("thin", cluster.client_properties()) as session:
        client = await session.client("look")

        async def replicas(count: int) -> list[int]:
            """The leader, and then the others that are in sync, when there are so many."""
            await session.leader(TopicPartition(name, 0), "look")
            await client.force_metadata_update()
            found = client.cluster._partitions[name][0]
            assert len(found.isr) == count, found
            return [found.leader, *(node for node in found.isr if node != found.leader)]

        leader, follower = await eventually(lambda: replicas(2))
        cluster.kill_broker(follower)
        assert await eventually(lambda: replicas(1)) == [leader]
    return ThinTopic(cluster=cluster, name=name, leader=leader)


@asynccontextmanager
async def refused_batches(
    topic: ThinTopic, directory: Path, **settings: Mapping[str, str]
) -> AsyncIterator[Mapping[str, "asyncio.Future[int]"]]:
    """A batch for each target, sent as the `settings` of its producer say. The broker never takes it."""
    file = directory / "mm2.properties"
    servers = topic.cluster.bootstrap_servers
    lines = [f"clusters = A, {', '.join(settings)}", f"A.bootstrap.servers = {servers}"]
    for alias, keys in settings.items():
        lines += [f"A->{alias}.enabled = true", f"{alias}.bootstrap.servers = {servers}"]
        lines += [f"{alias}.producer.{key} = {value}" for key, value in keys.items()]
    file.write_text("\n".join(lines))
    async with AsyncExitStack() as opened:
        sent = {}
        for flow in load(file, environ={}).enabled_flows:
            alias, properties = flow.flow.target, flow.clients.data_producer.properties
            session = await opened.enter_async_context(open_session(alias, dict(properties)))
            producer = RawProducer(session, producer_settings(properties, alias=alias))
            await opened.enter_async_context(producer)
            batch = build_batch([NewRecord(None, b"refused", 1)])
            sent[alias] = producer.send(TopicPartition(topic.name, 0), batch)
        yield sent


async def test_a_refused_record_is_sent_again_as_often_as_retry_backoff_ms_says(
    thin_topic: ThinTopic, tmp_path: Path
) -> None:
    log = RequestLog(cluster=thin_topic.cluster, broker_id=thin_topic.leader)
    await log.begin()
    names = {alias: unique_name(alias) for alias in ("quick", "slow")}
    settings = {
        alias: {
            "client.id": names[alias],
            "delivery.timeout.ms": "6000000",
            "retry.backoff.ms": "10" if alias == "quick" else "3000000",
        }
        for alias in names
    }
    async with refused_batches(thin_topic, tmp_path, **settings) as sent:
        await eventually(lambda: len(log.of("PRODUCE", names["quick"])) >= 10)
        # Ten of the other took less than its pause.
        assert len(log.of("PRODUCE", names["slow"])) <= 1
        assert not [each for each in sent.values() if each.done()]


async def test_a_batch_that_is_refused_again_and_again_fails_after_delivery_timeout_ms(
    thin_topic: ThinTopic, tmp_path: Path
) -> None:
    settings = {
        "hasty": {"delivery.timeout.ms": "1500", "request.timeout.ms": "1000"},
        "patient": {"delivery.timeout.ms": "6000000"},
    }
    async with refused_batches(thin_topic, tmp_path, **settings) as sent:
        with pytest.raises(KafkaError):
            async with asyncio.timeout(PATIENT_SECONDS):
                await sent["hasty"]
        assert not sent["patient"].done()
