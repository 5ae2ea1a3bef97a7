"""A flow of its own between two clusters: configsync and source as processes, records of every kind,
comparison."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from aiokafka import AIOKafkaProducer

from twinlog.api.common.v1 import types_pb2
from twinlog.api.source.v1 import source_service_pb2 as pb
from twinlog.api.source.v1.source_service_pb2_grpc import SourceServiceStub
from twinlog.clock import SystemClock
from twinlog.errors import KafkaError
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import KafkaCluster, NewTopic, OffsetSpec
from twinlog.kafka.reasons import KafkaReason
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.model import Record, TopicPartition
from twinlog.service.waiting import wait_or_stop
from twinlog.testing.brokers import eventually, make_topics, unique_name
from twinlog.testing.service_process import CALL_SECONDS, ServiceProcess, run_service

Content = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""Timestamp, key, value, headers: what must be identical on both sides."""


@dataclass(slots=True, kw_only=True)
class Rig:
    """One flow. `source` and `target` are plain connections; the services run only inside `running`."""

    a: str
    b: str
    source: KafkaCluster
    target: KafkaCluster
    source_servers: str
    target_servers: str
    directory: Path
    extra: dict[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    """Of source services, on top of the test's own."""

    @property
    def flow(self) -> types_pb2.Flow:
        return types_pb2.Flow(source=self.a, target=self.b)

    @property
    def positions_topic(self) -> str:
        return f"mm2-offsets.{self.a}.internal"

    def remote(self, topic: str) -> str:
        keeps_names = "IdentityReplicationPolicy" in self.extra.get("replication.policy.class", "")
        return topic if keeps_names else f"{self.a}.{topic}"

    def properties(self, **more: str) -> str:
        settings = {
            "clusters": f"{self.a}, {self.b}",
            f"{self.a}.bootstrap.servers": self.source_servers,
            f"{self.b}.bootstrap.servers": self.target_servers,
            f"{self.a}->{self.b}.enabled": "true",
            f"{self.b}->{self.a}.emit.heartbeats.enabled": "false",
            "heartbeats.replication.enabled": "false",
            "replication.factor": "1",
            "offset.storage.replication.factor": "1",
            "offset-syncs.topic.replication.factor": "1",
            "refresh.topics.interval.seconds": "0.5",
            "twinlog.drain.seconds": "0",
            "twinlog.epoch.seconds": "5",
            "twinlog.epoch.max.seconds": "0",
            "twinlog.spark.master": "local[2]",
            **self.extra,
            **more,
        }
        return "".join(f"{key} = {value}\n" for key, value in settings.items())

    @asynccontextmanager
    async def configsync(self) -> AsyncIterator[ServiceProcess]:
        async with run_service("configsync", self.directory / "configsync", self.properties()) as service:
            yield service

    @asynccontextmanager
    async def running(self, configsync: ServiceProcess | None, **more: str) -> AsyncIterator[ServiceProcess]:
        """The source service as a process of its own."""
        endpoint = "127.0.0.1:1" if configsync is None else configsync.endpoint
        properties = self.properties(**{"twinlog.configsync.endpoint": endpoint, **more})
        directory = self.directory / unique_name("source")
        async with run_service("source", directory, properties, environment=self.environment) as service:
            yield service

    async def create(self, topic: str, partitions: int = 1, **configs: str) -> None:
        settings = {name.replace("_", "."): value for name, value in configs.items()}
        new = NewTopic(name=topic, partition_count=partitions, replication_factor=1, configs=settings)
        await make_topics(self.source, new)

    async def produce(
        self,
        topic: str,
        values: Sequence[bytes | None],
        *,
        partition: int = 0,
        codec: str | None = None,
        batch_bytes: int = 16_384,
        transactional: bool = False,
    ) -> None:
        """Records with keys, headers and timestamps of their own (recent ones: retention goes by them)."""
        began_ms = SystemClock().now_ms() - 3_600_000
        transactional_id = unique_name("tx") if transactional else None
        async with (
            producer(self.source_servers, codec, batch_bytes, transactional_id) as sender,
            sender.transaction() if transactional else nullcontext(),
        ):
            sent = [
                await sender.send(
                    topic,
                    value,
                    key=f"key-{index % 7}".encode() if index % 3 or value is None else None,
                    partition=partition,
                    timestamp_ms=began_ms + index,
                    headers=[("trace", str(index).encode()), ("none", None)] if index % 2 else None,
                )
                for index, value in enumerate(values)
            ]
            for each in sent:
                await each

    async def source_content(self, topic: str, partition: int = 0) -> list[Content]:
        return await content(self.source, TopicPartition(topic, partition))

    async def target_content(self, topic: str, partition: int = 0) -> list[Content]:
        return await content(self.target, TopicPartition(self.remote(topic), partition))

    async def same(self, topic: str, partitions: int = 1) -> None:
        """Wait until the committed records of both sides are identical. Fails with the first difference."""

        logs = [
            (
                GrowingLog(self.source, TopicPartition(topic, number)),
                GrowingLog(self.target, TopicPartition(self.remote(topic), number)),
            )
            for number in range(partitions)
        ]

        async def equal() -> bool:
            for number, (source, target) in enumerate(logs):
                here, there = await source.content(), await target.content()
                assert len(there) >= len(here), f"{topic}-{number}: {len(there)} of {len(here)} records"
                compare(here, there, f"{topic}-{number}")
            return True

        await eventually(equal)

    async def partitions(self, service: ServiceProcess, topic: str = "") -> list[pb.PartitionStatus]:
        stub = SourceServiceStub(service.channel)
        request = pb.ListPartitionsRequest(flow=self.flow, source_topic=topic)
        return list((await stub.ListPartitions(request, timeout=CALL_SECONDS)).partitions)

    async def pause(self, service: ServiceProcess, topic: str) -> None:
        """Returns once partition 0 rests."""
        request = pb.PauseReplicationRequest(scope=pb.Scope(flow=self.flow, source_topic=topic), by="test")
        answer = await SourceServiceStub(service.channel).PauseReplication(request, timeout=CALL_SECONDS)
        assert (topic, "test") in {(pause.scope.source_topic, pause.by) for pause in answer.pauses}

        async def paused() -> bool:
            (found,) = await self.partitions(service, topic)
            return (found.state, found.reason) == (pb.PARTITION_STATE_PAUSED, "PAUSED_BY_OPERATOR")

        await eventually(paused)

    async def resume(self, service: ServiceProcess, topic: str) -> None:
        request = pb.ResumeReplicationRequest(scope=pb.Scope(flow=self.flow, source_topic=topic), by="test")
        await SourceServiceStub(service.channel).ResumeReplication(request, timeout=CALL_SECONDS)

    async def flow_status(self, service: ServiceProcess) -> pb.FlowStatus:
        stub = SourceServiceStub(service.channel)
        answer = await stub.ListFlows(pb.ListFlowsRequest(), timeout=CALL_SECONDS)
        return next(flow for flow in answer.flows if flow.flow == self.flow)


@asynccontextmanager
async def producer(
    servers: str, codec: str | None, batch_bytes: int, transactional_id: str | None = None
) -> AsyncIterator[AIOKafkaProducer]:
    sender = AIOKafkaProducer(
        bootstrap_servers=servers,
        compression_type=codec,
        max_batch_size=batch_bytes,
        linger_ms=5,
        max_request_size=4 << 20,
        transactional_id=transactional_id,
        enable_idempotence=True,
    )
    await sender.start()
    try:
        yield sender
    finally:
        await sender.stop()


def compare(here: Sequence[Content], there: Sequence[Content], name: str) -> None:
    """Both sides, record by record. A difference is an error that waiting cannot heal."""
    for index, (sent, copied) in enumerate(zip(here, there, strict=False)):
        if sent != copied:
            raise ValueError(f"{name}: record {index} differs: {sent!r} was copied as {copied!r}")
    if len(there) > len(here):
        raise ValueError(f"{name}: {len(there) - len(here)} records too many")


class GrowingLog:
    """The records of a partition, read on from where the last look ended."""

    def __init__(
        self, cluster: KafkaCluster, partition: TopicPartition, *, read_committed: bool = True
    ) -> None:
        self._cluster, self._partition, self._read_committed = cluster, partition, read_committed
        self._records: list[Record] = []
        self._next_offset = 0

    async def records(self) -> Sequence[Record]:
        """Every record, also aborted ones unless `read_committed`. AssertionError while the partition does
        not exist."""
        last = OffsetSpec.LAST_STABLE if self._read_committed else OffsetSpec.LATEST
        start = (await self._cluster.list_offsets(OffsetSpec.EARLIEST, [self._partition]))[self._partition]
        end = (await self._cluster.list_offsets(last, [self._partition]))[self._partition]
        assert isinstance(start, int), start
        assert isinstance(end, int), end
        if not self._records or end < self._next_offset or self._records[0].offset < start:
            self._records, self._next_offset = [], start
        if self._next_offset < end:
            await self._read_until(end)
        return self._records

    async def content(self) -> list[Content]:
        return [
            (record.timestamp_ms, record.key, record.value, record.headers) for record in await self.records()
        ]

    async def _read_until(self, end: int) -> None:
        async with self._cluster.reader(read_committed=self._read_committed) as reader:
            while self._next_offset < end:
                try:
                    fetched = await reader.fetch(
                        self._partition, self._next_offset, max_wait_seconds=1, max_bytes=8 << 20
                    )
                except KafkaError as error:
                    if error.reason == KafkaReason.OFFSET_OUT_OF_RANGE:
                        # Trimmed since its beginning was asked for: the next look reads what is left.
                        raise AssertionError(str(error)) from error
                    raise
                self._records += fetched.records
                self._next_offset = fetched.next_offset


async def content(
    cluster: KafkaCluster, partition: TopicPartition, *, read_committed: bool = True
) -> list[Content]:
    return await GrowingLog(cluster, partition, read_committed=read_committed).content()


@asynccontextmanager
async def open_rig(
    source: BlockingCluster, target: BlockingCluster, directory: Path, **extra: str
) -> AsyncIterator[Rig]:
    async with AsyncExitStack() as stack:

        async def connect(cluster: BlockingCluster) -> KafkaCluster:
            return await stack.enter_async_context(open_cluster("test", cluster.client_properties()))

        yield Rig(
            a=unique_name("a"),
            b=unique_name("b"),
            source=await connect(source),
            target=await connect(target),
            source_servers=source.bootstrap_servers,
            target_servers=target.bootstrap_servers,
            directory=directory,
            extra=dict(extra),
        )


async def quiet(seconds: float) -> None:
    """Let time pass where only time can show that nothing more happens."""
    await wait_or_stop(asyncio.Event(), seconds)
