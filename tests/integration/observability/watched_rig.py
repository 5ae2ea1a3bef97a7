"""Two clusters with a link that can be cut, the four services between them, and somebody who writes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from integration.source.cut_link import CutLink, cut_link
from twinlog.api.common.v1.types_pb2 import Flow
from twinlog.api.source.v1 import source_service_pb2 as pb
from twinlog.api.source.v1.source_service_pb2_grpc import SourceServiceStub
from twinlog.batches import Codec, NewRecord
from twinlog.clock import SystemClock
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import CommittedOffset, ConfigChange, KafkaCluster, NewTopic, QuotaEntity
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.port_lease import PortLease
from twinlog.local.spec import ADDRESS, ClusterSpec, FarListener
from twinlog.local.twinlog_run import SERVICES, TwinlogRun
from twinlog.model import TopicPartition
from twinlog.service.peers import open_channel
from twinlog.service.waiting import wait_or_stop
from twinlog.testing.brokers import eventually, make_topics, retry_admin, write_batches
from twinlog.testing.service_process import CALL_SECONDS

A, B = "A", "B"
BUSY, VISITED, SMALL, LOST, CHANGED, LARGE = "busy", "visited", "small", "lost", "changed", "large"
"""Topics: one that is written to all the time, and one for each thing that a test does to a topic."""
LATE = "made.later"
"""A topic that is selected, and does not exist at first."""
READERS, DREAMERS = "readers", "dreamers"
"""Groups: one that reads, and one that stands behind the end of its log."""
BEAT_SECONDS = 0.5
RECORDS_AT_ONCE = 20
_WRITE_SECONDS = 0.5
OWNER_TIMEOUT_SECONDS = 6.0
STALLED_SECONDS = 5.0

StartCluster = Callable[[ClusterSpec], BlockingCluster]


@dataclass(slots=True, kw_only=True)
class WatchedRig:
    a: BlockingCluster
    b: BlockingCluster
    source: KafkaCluster
    target: KafkaCluster
    """By a way of its own, which is never cut."""
    link: CutLink
    run: TwinlogRun
    metrics: dict[str, str]
    """Where each service serves them."""
    stub: SourceServiceStub
    records_at_once: int = RECORDS_AT_ONCE
    """Written to the busy topic twice a second."""

    def scope(self, topic: str = "") -> pb.Scope:
        return pb.Scope(flow=Flow(source=A, target=B), source_topic=topic)

    def process(self, service: str) -> psutil.Process:
        return self.run.service(service)

    async def write(self, topic: str, *values: bytes, into: BlockingCluster | None = None) -> None:
        now_ms = SystemClock().now_ms()
        records = [NewRecord(b"k", value, now_ms) for value in values]
        await write_batches(into or self.a, topic, [(0, Codec.NONE, records)])

    async def write_batches(self, topic: str, count: int, size_bytes: int) -> None:
        records = [NewRecord(b"k", bytes(size_bytes), SystemClock().now_ms())]
        await write_batches(self.a, topic, [(0, Codec.NONE, records)] * count)

    async def write_on(self, stop: asyncio.Event) -> None:
        """Write to the busy topic until `stop`."""
        while not stop.is_set():
            await self.write(BUSY, *(b"%d" % number for number in range(self.records_at_once)))
            await wait_or_stop(stop, _WRITE_SECONDS)

    async def commit(self, group: str, offset: int) -> None:
        offsets = {TopicPartition(BUSY, 0): CommittedOffset(next_offset=offset)}
        await retry_admin(lambda: self.source.alter_group_offsets(group, offsets))

    async def pause(self, topic: str = "") -> None:
        request = pb.PauseReplicationRequest(scope=self.scope(topic), by="test")
        await self.stub.PauseReplication(request, timeout=CALL_SECONDS)

    async def resume(self, topic: str = "") -> None:
        request = pb.ResumeReplicationRequest(scope=self.scope(topic))
        await self.stub.ResumeReplication(request, timeout=CALL_SECONDS)

    async def partition(self, topic: str) -> pb.PartitionStatus:
        """Empty while it is not known."""
        request = pb.ListPartitionsRequest(flow=Flow(source=A, target=B), source_topic=topic)
        found = (await self.stub.ListPartitions(request, timeout=CALL_SECONDS)).partitions
        return found[0] if found else pb.PartitionStatus()

    async def copied(self, topic: str, position: int) -> None:
        async def is_there() -> bool:
            return (await self.partition(topic)).position >= position

        await eventually(is_there)

    async def limit(self, topic: str, bytes_per_second: int) -> None:
        """0: no limit."""
        request = pb.SetThrottleRequest(scope=self.scope(topic), bytes_per_second=bytes_per_second, by="test")
        await self.stub.SetThrottle(request, timeout=CALL_SECONDS)

    async def change_copy(self, topic: str, name: str, value: str) -> None:
        """By somebody who is not Twinlog."""
        changes = {f"{A}.{topic}": [ConfigChange(name=name, value=value)]}
        await retry_admin(lambda: self.target.alter_topic_configs(changes))

    @asynccontextmanager
    async def nobody_may_write(self, cluster: KafkaCluster, topic: str) -> AsyncIterator[None]:
        """No record is small enough for it any more. It can be read."""

        async def allow(max_bytes: str | None) -> None:
            changes = {topic: [ConfigChange(name="max.message.bytes", value=max_bytes)]}
            await retry_admin(lambda: cluster.alter_topic_configs(changes))

        await allow("1")
        try:
            yield
        finally:
            await allow(None)

    async def limit_writers(self, bytes_per_second: float | None) -> None:
        """A quota of the target for each client that writes; None takes it away."""
        everybody = QuotaEntity((("client-id", None),))
        quota = {"producer_byte_rate": bytes_per_second}
        await retry_admin(lambda: self.target.alter_client_quotas({everybody: quota}))

    async def config_of_copy(self, topic: str, name: str) -> str | None:
        found = await self.target.describe_topic_configs([f"{A}.{topic}"], keys=[name])
        entries = found[f"{A}.{topic}"]
        assert not isinstance(entries, Exception), entries
        return next(entry.value for entry in entries if entry.name == name)


@asynccontextmanager
async def open_estate(start_cluster: StartCluster, directory: Path) -> AsyncIterator[WatchedRig]:
    async with AsyncExitStack() as opened:
        ports = PortLease(2 + len(SERVICES))
        opened.callback(ports.release)
        near, far, *metrics = ports.ports
        a = await asyncio.to_thread(start_cluster, ClusterSpec(name=A))
        spec = ClusterSpec(name=B, far=FarListener(port=near, advertised_port=far))
        b = await asyncio.to_thread(start_cluster, spec)
        source = await opened.enter_async_context(open_cluster(A, a.client_properties()))
        target = await opened.enter_async_context(open_cluster(B, b.client_properties()))
        await make_topics(
            source,
            *(
                NewTopic(name=name, partition_count=1, replication_factor=1, configs=configs)
                for name, configs in {
                    BUSY: {},
                    VISITED: {},
                    SMALL: {"max.message.bytes": "2000000"},
                    LOST: {},
                    CHANGED: {"retention.ms": "700000000"},
                    LARGE: {},
                }.items()
            ),
        )
        link = await opened.enter_async_context(cut_link(far, near))
        shown = {service: f"{ADDRESS}:{port}" for service, port in zip(SERVICES, metrics, strict=True)}
        run = TwinlogRun(_properties(a, f"{ADDRESS}:{far}", shown), directory)
        await opened.enter_async_context(run)
        channel = await opened.enter_async_context(open_channel(run.endpoints["source"]))
        yield WatchedRig(
            a=a,
            b=b,
            source=source,
            target=target,
            link=link,
            run=run,
            metrics=shown,
            stub=SourceServiceStub(channel),
        )


def _properties(a: BlockingCluster, far: str, metrics: dict[str, str]) -> str:
    settings = {
        "clusters": f"{A}, {B}",
        f"{A}.bootstrap.servers": a.bootstrap_servers,
        f"{B}.bootstrap.servers": far,
        f"{A}->{B}.enabled": "true",
        "topics": f"{BUSY}, {VISITED}, {SMALL}, {LOST}, {CHANGED}, {LARGE}, {LATE}",
        "groups": f"{READERS}, {DREAMERS}",
        "config.properties.exclude": "max.message.bytes",
        "replication.factor": "1",
        "checkpoints.topic.replication.factor": "1",
        "heartbeats.topic.replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "offset.storage.replication.factor": "1",
        "emit.heartbeats.interval.seconds": f"{BEAT_SECONDS}",
        "refresh.topics.interval.seconds": "1",
        "refresh.groups.interval.seconds": "1",
        "emit.checkpoints.interval.seconds": "1",
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": "1",
        "sync.topic.configs.interval.seconds": "1",
        "sync.topic.acls.enabled": "false",
        "twinlog.offsets": "translated",
        "twinlog.verify.interval.seconds": "2",
        "twinlog.epoch.seconds": "1",
        # A limit is kept within an epoch: long enough for a topic to stall under one.
        "twinlog.epoch.max.seconds": "15",
        "twinlog.drain.seconds": "0",
        "twinlog.owner.timeout.seconds": f"{OWNER_TIMEOUT_SECONDS}",
        "twinlog.stalled.seconds": f"{STALLED_SECONDS}",
        **{f"twinlog.{service}.metrics.listen": address for service, address in metrics.items()},
    }
    return "".join(f"{key} = {value}\n" for key, value in settings.items())
