"""heartbeat as a process of its own against two real clusters, asked over gRPC."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from twinlog.api.common.v1.types_pb2 import Flow
from twinlog.api.heartbeat.v1 import heartbeat_service_pb2 as pb2
from twinlog.api.heartbeat.v1.heartbeat_service_pb2_grpc import HeartbeatServiceStub
from twinlog.batches import Codec, NewRecord
from twinlog.clock import SystemClock
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import AclBinding, ConfigSource, KafkaCluster, NewTopic, OffsetSpec
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.spec import ClusterSpec, SaslMechanism, Security
from twinlog.local.twinlog_run import TwinlogRun
from twinlog.model import TopicPartition
from twinlog.service.peers import open_channel
from twinlog.testing.brokers import KafkaPair, eventually, make_topics, retry_admin, unique_name
from twinlog.testing.records import write_batches
from twinlog.testing.service_process import CALL_SECONDS, ServiceProcess, run_service
from twinlog.wire import Heartbeat, decode_heartbeat

HEARTBEATS = TopicPartition("heartbeats", 0)


def properties(a: str, b: str, source: str, target: str, *more: str) -> str:
    return "\n".join(
        [
            f"clusters = {a}, {b}",
            f"{a}.bootstrap.servers = {source}",
            f"{b}.bootstrap.servers = {target}",
            f"{a}->{b}.enabled = true",
            "heartbeats.topic.replication.factor = 1",
            "emit.heartbeats.interval.seconds = 0.2",
            *more,
        ]
    )


@asynccontextmanager
async def connected(cluster: BlockingCluster) -> AsyncIterator[KafkaCluster]:
    async with open_cluster("test", cluster.client_properties()) as opened:
        yield opened


async def beats(cluster: KafkaCluster, topic: str = "heartbeats") -> list[Heartbeat]:
    """Every heartbeat of a topic, from its beginning."""
    partition = TopicPartition(topic, 0)
    end = (await cluster.list_offsets(OffsetSpec.LATEST, [partition]))[partition]
    start = (await cluster.list_offsets(OffsetSpec.EARLIEST, [partition]))[partition]
    found: list[Heartbeat] = []
    if not isinstance(end, int) or not isinstance(start, int):
        return found
    async with cluster.reader() as reader:
        while start < end:
            fetched = await reader.fetch(partition, start, max_wait_seconds=1)
            found += (decode_heartbeat(record.key, record.value) for record in fetched.records)
            start = fetched.next_offset
    return found


@asynccontextmanager
async def copied(source: KafkaCluster, target: KafkaCluster, topic: str) -> AsyncIterator[asyncio.Event]:
    """Stand in for the source service: copy `heartbeats` to `topic` until the event (cut) is set."""
    await retry_admin(
        lambda: target.create_topics([NewTopic(name=topic, partition_count=1, replication_factor=1)])
    )
    cut, stop = asyncio.Event(), asyncio.Event()

    async def copy() -> None:
        async with source.reader() as reader, target.writer() as writer:
            position = await end_of(source)
            while not stop.is_set():
                fetched = await reader.fetch(HEARTBEATS, position, max_wait_seconds=0.2)
                for record in fetched.records:
                    if not cut.is_set():
                        await writer.append(
                            TopicPartition(topic, 0),
                            key=record.key,
                            value=record.value,
                            timestamp_ms=record.timestamp_ms,
                        )
                position = fetched.next_offset

    async with asyncio.TaskGroup() as group:
        group.create_task(copy(), name="copy heartbeats")
        try:
            yield cut
        finally:
            stop.set()


async def end_of(cluster: KafkaCluster) -> int:
    async def end() -> int | None:
        answer = (await cluster.list_offsets(OffsetSpec.LATEST, [HEARTBEATS]))[HEARTBEATS]
        return answer + 1 if isinstance(answer, int) else None

    return await eventually(end) - 1


async def delay(service: ServiceProcess, source: str, target: str) -> pb2.FlowDelay:
    stub = HeartbeatServiceStub(service.channel)
    request = pb2.ListDelaysRequest(flow=Flow(source=source, target=target))
    response = await stub.ListDelays(request, timeout=CALL_SECONDS)
    return response.delays[0]


async def test_beats_on_both_clusters_prove_the_path_and_its_delay(
    kafka_pair: KafkaPair, tmp_path: Path
) -> None:
    a, b = unique_name("a"), unique_name("b")
    config = properties(a, b, kafka_pair.a.bootstrap_servers, kafka_pair.b.bootstrap_servers)
    async with (
        connected(kafka_pair.a) as source,
        connected(kafka_pair.b) as target,
        run_service("heartbeat", tmp_path, config) as service,
        copied(source, target, f"{a}.heartbeats") as cut,
    ):

        async def alive() -> pb2.FlowDelay | None:
            found = await delay(service, a, b)
            return found if found.state == pb2.PATH_STATE_ALIVE and found.observed > 3 else None

        seen = await eventually(alive)
        assert 0 <= seen.last_delay.ToMilliseconds() < 5_000
        assert seen.max_delay.ToMilliseconds() >= seen.last_delay.ToMilliseconds()
        assert seen.emitted >= seen.observed

        on_source = {(beat.source, beat.target) for beat in await beats(source)}
        on_target = {(beat.source, beat.target) for beat in await beats(target)}
        assert {(a, b), (b, a)} <= on_source
        assert (a, b) in on_target

        topology = await HeartbeatServiceStub(service.channel).GetTopology(
            pb2.GetTopologyRequest(), timeout=CALL_SECONDS
        )
        paths = {(path.observed_on, path.topic): list(path.upstream_clusters) for path in topology.paths}
        assert paths[b, f"{a}.heartbeats"] == [a]
        assert {status.alias: status.reachable for status in topology.clusters} == {a: True, b: True}

        cut.set()

        async def silent() -> bool:
            found = await delay(service, a, b)
            return found.state == pb2.PATH_STATE_SILENT and found.reason == "HEARTBEAT_MISSING"

        await eventually(silent)


async def test_the_heartbeats_topic_is_compacted_and_left_alone_when_it_is_there(
    kafka_pair: KafkaPair, tmp_path: Path
) -> None:
    a, b = unique_name("a"), unique_name("b")
    config = properties(a, b, kafka_pair.a.bootstrap_servers, kafka_pair.b.bootstrap_servers)
    async with connected(kafka_pair.b) as target, run_service("heartbeat", tmp_path, config):

        async def made() -> bool:
            return "heartbeats" in await target.list_topics()

        await eventually(made)
        entries = (await target.describe_topic_configs(["heartbeats"]))["heartbeats"]
        assert not isinstance(entries, Exception)
        (policy,) = [entry for entry in entries if entry.name == "cleanup.policy"]
        assert (policy.value, policy.source) == ("compact", ConfigSource.TOPIC)


async def test_it_serves_with_a_cluster_away_and_says_so(kafka_pair: KafkaPair, tmp_path: Path) -> None:
    a, b = unique_name("a"), unique_name("b")
    config = properties(a, b, "127.0.0.1:1", kafka_pair.b.bootstrap_servers)
    async with run_service("heartbeat", tmp_path, config) as service:
        stub = HeartbeatServiceStub(service.channel)

        async def told() -> bool:
            topology = await stub.GetTopology(pb2.GetTopologyRequest(), timeout=CALL_SECONDS)
            states = {status.alias: status for status in topology.clusters}
            found = await delay(service, a, b)
            return (
                states[b].reachable
                and not states[a].reachable
                and bool(states[a].reason)
                and found.state == pb2.PATH_STATE_UNKNOWN
                and found.reason not in ("", "STARTING")
            )

        await eventually(told)


def may_read(user: str) -> list[AclBinding]:
    """All that a source grants to whom it lets read only."""
    return [
        AclBinding(
            resource_type=kind,
            resource_name="*",
            pattern_type="LITERAL",
            principal=f"User:{user}",
            host="*",
            operation=operation,
            permission="ALLOW",
        )
        for kind, operations in (
            ("TOPIC", ("DESCRIBE", "READ", "DESCRIBE_CONFIGS")),
            ("GROUP", ("DESCRIBE",)),
        )
        for operation in operations
    ]


async def test_a_source_that_may_only_be_read_has_its_delay_from_the_ends_of_its_logs_and_says_so(
    start_cluster: Callable[[ClusterSpec], BlockingCluster], kafka_pair: KafkaPair, tmp_path: Path
) -> None:
    """With the services beside it: the source service is asked."""
    a, b, topic, user = unique_name("a"), unique_name("b"), unique_name("read"), "reader"
    security = Security(mechanisms=(SaslMechanism.PLAIN,), users={user: "reader-password"}, authorizer=True)
    guarded = await asyncio.to_thread(start_cluster, ClusterSpec(name="guarded", security=security))
    async with connected(guarded) as source:
        await make_topics(source, NewTopic(name=topic, partition_count=1, replication_factor=1))
        await retry_admin(lambda: source.create_acls(may_read(user)))
    login = guarded.client_properties(user)
    config = properties(
        a,
        b,
        login.pop("bootstrap.servers"),
        kafka_pair.b.bootstrap_servers,
        *(f"{a}.{key} = {value}" for key, value in login.items()),
        f"topics = {topic}",
        "offset-syncs.topic.location = target",
        "sync.topic.acls.enabled = false",
        "replication.factor = 1",
        "checkpoints.topic.replication.factor = 1",
        "offset-syncs.topic.replication.factor = 1",
        "offset.storage.replication.factor = 1",
        "refresh.topics.interval.seconds = 1",
        "twinlog.drain.seconds = 0",
    )
    async with (
        TwinlogRun(config, tmp_path) as run,
        open_channel(run.endpoints["heartbeat"]) as channel,
    ):
        stub = HeartbeatServiceStub(channel)

        async def measured() -> pb2.FlowDelay | None:
            records = [NewRecord(b"k", b"v", SystemClock().now_ms())]
            await write_batches(guarded, topic, [(0, Codec.NONE, records)])
            request = pb2.ListDelaysRequest(flow=Flow(source=a, target=b))
            (found,) = (await stub.ListDelays(request, timeout=CALL_SECONDS)).delays
            told = f"{found.reason} {found.message}"
            assert (found.basis, found.HasField("last_delay")) == (pb2.DELAY_BASIS_LOG_ENDS, True), told
            assert found.state == pb2.PATH_STATE_ALIVE, told
            return found

        seen = await eventually(measured)
        assert seen.reason in ("TOPIC_UNAUTHORIZED", "CLUSTER_UNAUTHORIZED"), seen.reason
        assert seen.emitted == 0
        assert "computed from the ends" in seen.message


async def test_an_unknown_flow_is_named(kafka_pair: KafkaPair, tmp_path: Path) -> None:
    a, b = unique_name("a"), unique_name("b")
    config = properties(a, b, kafka_pair.a.bootstrap_servers, kafka_pair.b.bootstrap_servers)
    async with run_service("heartbeat", tmp_path, config) as service:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await delay(service, "nowhere", b)
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND
        assert f"{a}->{b}" in (refused.value.details() or "")


async def test_one_cluster_under_two_names_is_refused(kafka_pair: KafkaPair, tmp_path: Path) -> None:
    a, b = unique_name("a"), unique_name("b")
    config = properties(a, b, kafka_pair.a.bootstrap_servers, kafka_pair.a.bootstrap_servers)
    async with run_service("heartbeat", tmp_path, config) as service:

        async def refused() -> bool:
            return (await delay(service, a, b)).reason == "SAME_CLUSTER"

        await eventually(refused)
