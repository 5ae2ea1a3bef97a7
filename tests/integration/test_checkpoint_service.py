"""checkpoint as a process of its own against two real clusters, asked over gRPC."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.api.checkpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from twinlog.api.common.v1.types_pb2 import Flow
from twinlog.clock import SystemClock
from twinlog.errors import KafkaError
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import CommittedOffset, KafkaCluster, NewTopic, OffsetSpec
from twinlog.model import TopicPartition
from twinlog.testing.brokers import KafkaPair, eventually, unique_name
from twinlog.testing.service_process import ServiceProcess, run_service
from twinlog.wire import Checkpoint, OffsetSync, decode_checkpoint, encode_offset_sync

CALL_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror:
    """A hand-made mirror of one topic: records on both sides, offset syncs as MM2 writes them."""

    a: str
    b: str
    topic: str
    group: str
    source: KafkaCluster
    target: KafkaCluster
    properties: str

    @property
    def syncs_topic(self) -> str:
        return f"mm2-offset-syncs.{self.b}.internal"

    @property
    def checkpoints_topic(self) -> str:
        return f"{self.a}.checkpoints.internal"

    @property
    def origin(self) -> TopicPartition:
        return TopicPartition(self.topic, 0)

    @property
    def copy(self) -> TopicPartition:
        return TopicPartition(f"{self.a}.{self.topic}", 0)

    async def fill(self, records: range, *, ahead: int = 0) -> None:
        """Write records to both sides; `ahead` others on the target first, so that offsets differ."""
        now_ms = SystemClock().now_ms()
        async with self.source.writer() as source, self.target.writer() as target:
            for number in range(ahead):
                await target.append(self.copy, key=None, value=b"before %d" % number)
            for number in records:
                stamp = now_ms + number
                value = b"record %d" % number
                await source.append(self.origin, key=None, value=value, timestamp_ms=stamp)
                await target.append(self.copy, key=None, value=value, timestamp_ms=stamp)

    async def sync(self, upstream: int, downstream: int) -> None:
        key, value = encode_offset_sync(
            OffsetSync(partition=self.origin, upstream_offset=upstream, downstream_offset=downstream)
        )
        async with self.source.writer() as writer:
            await writer.append(TopicPartition(self.syncs_topic, 0), key=key, value=value)

    async def commit(self, next_offset: int) -> None:
        """The group has read up to here on the source."""
        offsets = {self.origin: CommittedOffset(next_offset=next_offset)}

        async def done() -> bool:
            return await self.source.alter_group_offsets(self.group, offsets) == {self.origin: None}

        await eventually(done)

    async def committed_on_target(self) -> int | None:
        held = (await self.target.group_offsets([self.group]))[self.group]
        if isinstance(held, KafkaError) or self.copy not in held:
            return None
        return held[self.copy].next_offset

    async def checkpoints(self) -> list[Checkpoint]:
        return [
            decode_checkpoint(key, value) for key, value in await records(self.target, self.checkpoints_topic)
        ]

    async def rows(self, service: ServiceProcess) -> Sequence[pb2.GroupPartition]:
        stub = CheckpointServiceStub(service.channel)
        request = pb2.ListGroupsRequest(flow=Flow(source=self.a, target=self.b), group=self.group)
        return (await stub.ListGroups(request, timeout=CALL_SECONDS)).groups


async def records(cluster: KafkaCluster, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    partition = TopicPartition(topic, 0)
    end = (await cluster.list_offsets(OffsetSpec.LATEST, [partition]))[partition]
    found: list[tuple[bytes | None, bytes | None]] = []
    if isinstance(end, KafkaError):
        return found
    position = 0
    async with cluster.reader() as reader:
        while position < end:
            fetched = await reader.fetch(partition, position, max_wait_seconds=1)
            found += ((record.key, record.value) for record in fetched.records)
            position = fetched.next_offset
    return found


@asynccontextmanager
async def mirror(pair: KafkaPair, *more: str) -> AsyncIterator[Mirror]:
    """Topics on both clusters, and the properties of a flow with short intervals."""
    a, b = unique_name("a"), unique_name("b")
    topic, group = unique_name("orders"), unique_name("group")
    config = "\n".join(
        [
            f"clusters = {a}, {b}",
            f"{a}.bootstrap.servers = {pair.a.bootstrap_servers}",
            f"{b}.bootstrap.servers = {pair.b.bootstrap_servers}",
            f"{a}->{b}.enabled = true",
            f"topics = {topic}",
            f"groups = {group}.*",
            "checkpoints.topic.replication.factor = 1",
            "emit.checkpoints.interval.seconds = 0.2",
            "refresh.groups.interval.seconds = 0.2",
            "sync.group.offsets.interval.seconds = 0.2",
            *more,
        ]
    )
    async with (
        open_cluster("a", pair.a.client_properties()) as source,
        open_cluster("b", pair.b.client_properties()) as target,
    ):
        made = Mirror(a=a, b=b, topic=topic, group=group, source=source, target=target, properties=config)
        await source.create_topics(
            [
                NewTopic(name=topic, partition_count=1, replication_factor=1),
                NewTopic(
                    name=made.syncs_topic,
                    partition_count=1,
                    replication_factor=1,
                    configs={"cleanup.policy": "compact"},
                ),
            ]
        )
        await target.create_topics([NewTopic(name=made.copy.topic, partition_count=1, replication_factor=1)])
        yield made


async def test_checkpoints_appear_and_idle_groups_get_their_offsets(
    kafka_pair: KafkaPair, tmp_path: Path
) -> None:
    async with mirror(kafka_pair, "sync.group.offsets.enabled = true") as flow:
        await flow.fill(range(50), ahead=7)
        await flow.sync(0, 7)
        await flow.sync(40, 47)
        await flow.commit(40)
        async with run_service("checkpoint", tmp_path, flow.properties) as service:
            emitted = await eventually(flow.checkpoints)
            assert emitted == [
                Checkpoint(group=flow.group, partition=flow.copy, upstream_offset=40, downstream_offset=47)
            ]

            async def committed() -> bool:
                return await flow.committed_on_target() == 47

            await eventually(committed)

            async def shown() -> bool:
                (row,) = await flow.rows(service)
                return row.committed_on_target and row.downstream_offset == 47

            await eventually(shown)


async def test_a_restart_emits_nothing_twice_and_goes_on(kafka_pair: KafkaPair, tmp_path: Path) -> None:
    async with mirror(kafka_pair) as flow:
        await flow.fill(range(50))
        await flow.sync(0, 0)
        await flow.sync(40, 40)
        await flow.commit(40)
        async with run_service("checkpoint", tmp_path / "first", flow.properties) as service:
            await eventually(flow.checkpoints)
            await service.kill()
        before = await flow.checkpoints()
        async with run_service("checkpoint", tmp_path / "second", flow.properties) as service:

            async def seen() -> bool:
                return bool(await flow.rows(service))

            await eventually(seen)
            assert await flow.checkpoints() == before
            await flow.sync(49, 49)
            await flow.commit(49)

            async def went_on() -> bool:
                return len(await flow.checkpoints()) == len(before) + 1

            await eventually(went_on)
        assert (await flow.checkpoints())[-1].downstream_offset == 49


async def test_it_serves_with_the_source_away_and_says_so(kafka_pair: KafkaPair, tmp_path: Path) -> None:
    async with mirror(kafka_pair) as flow:
        config = flow.properties.replace(kafka_pair.a.bootstrap_servers, "127.0.0.1:1")
        async with run_service("checkpoint", tmp_path, config) as service:
            stub = CheckpointServiceStub(service.channel)

            async def told() -> bool:
                answer = await stub.ListGroups(pb2.ListGroupsRequest(), timeout=CALL_SECONDS)
                states = {status.alias: status for status in answer.clusters}
                return states[flow.b].reachable and bool(states[flow.a].reason) and not answer.ready_flows

            await eventually(told, 40)


async def test_an_unknown_flow_is_named(kafka_pair: KafkaPair, tmp_path: Path) -> None:
    async with mirror(kafka_pair) as flow, run_service("checkpoint", tmp_path, flow.properties) as service:
        stub = CheckpointServiceStub(service.channel)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.ListGroups(
                pb2.ListGroupsRequest(flow=Flow(source="x", target=flow.b)), timeout=CALL_SECONDS
            )
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND
        assert f"{flow.a}->{flow.b}" in (refused.value.details() or "")
