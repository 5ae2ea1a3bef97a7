"""A hand-made mirror of one topic between two real clusters, for the checkpoint service and its commands."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from integration import in_process
from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.api.checkpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from twinlog.api.common.v1.types_pb2 import Flow
from twinlog.clock import SystemClock
from twinlog.errors import KafkaError
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import CommittedOffset, KafkaCluster, NewTopic, OffsetSpec
from twinlog.model import TopicPartition
from twinlog.testing.brokers import KafkaPair, eventually, retry_admin, unique_name
from twinlog.testing.service_process import CALL_SECONDS, ServiceProcess
from twinlog.wire import Checkpoint, OffsetSync, decode_checkpoint, encode_offset_sync

BEGINNING_MS = SystemClock().now_ms()
"""Timestamp of record 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorRig:
    """A hand-made mirror of one topic: records on both sides, offset syncs as MM2 writes them."""

    a: str
    b: str
    topic: str
    group: str
    source: KafkaCluster
    target: KafkaCluster
    properties: str
    source_servers: str

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

    @property
    def flow(self) -> str:
        return f"{self.a}->{self.b}"

    async def fill(self, records: range, *, ahead: int = 0) -> None:
        """Write records to both sides; `ahead` others on the target first, so that offsets differ."""
        async with self.target.writer() as target:
            for number in range(ahead):
                await target.append(self.copy, key=None, value=b"before %d" % number)
        await write(self.source, self.origin, records)
        await write(self.target, self.copy, records)

    async def sync(self, upstream: int, downstream: int) -> None:
        key, value = encode_offset_sync(
            OffsetSync(partition=self.origin, upstream_offset=upstream, downstream_offset=downstream)
        )
        async with self.source.writer() as writer:
            await writer.append(TopicPartition(self.syncs_topic, 0), key=key, value=value)

    async def commit(self, next_offset: int, *, group: str = "") -> None:
        """The group has read up to here on the source."""
        offsets = {self.origin: CommittedOffset(next_offset=next_offset)}

        async def done() -> bool:
            return await self.source.alter_group_offsets(group or self.group, offsets) == {self.origin: None}

        await eventually(done)

    async def committed_on_target(self, group: str = "") -> int | None:
        held = (await self.target.group_offsets([group or self.group]))[group or self.group]
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


async def write(cluster: KafkaCluster, partition: TopicPartition, numbers: range) -> None:
    """Records that are the same wherever they are written."""
    async with cluster.writer() as writer:
        for number in numbers:
            stamp, value = BEGINNING_MS + number, b"record %d" % number
            await writer.append(partition, key=None, value=value, timestamp_ms=stamp)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """Client properties of both clusters."""

    a: Mapping[str, str]
    b: Mapping[str, str]

    @classmethod
    def of(cls, pair: KafkaPair) -> "Ends":
        return cls(a=pair.a.client_properties(), b=pair.b.client_properties())


@asynccontextmanager
async def mirror(admin: Ends, *more: str, service: Ends | None = None) -> AsyncIterator[MirrorRig]:
    """Topics on both clusters, and the properties of a flow with short intervals.

    `service` is what the service comes in with, when that is not what the test does.
    """
    a, b = unique_name("a"), unique_name("b")
    topic, group = unique_name("orders"), unique_name("group")
    clients = service or admin
    config = "\n".join(
        [
            f"clusters = {a}, {b}",
            *(f"{a}.{key} = {value}" for key, value in clients.a.items()),
            *(f"{b}.{key} = {value}" for key, value in clients.b.items()),
            f"{a}->{b}.enabled = true",
            f"topics = {topic}",
            f"groups = {group}.*",
            "checkpoints.topic.replication.factor = 1",
            "emit.checkpoints.interval.seconds = 0.2",
            "refresh.groups.interval.seconds = 0.2",
            "sync.group.offsets.interval.seconds = 0.2",
            "twinlog.drain.seconds = 0",
            *more,
        ]
    )
    async with open_cluster("a", admin.a) as source, open_cluster("b", admin.b) as target:
        made = MirrorRig(
            a=a,
            b=b,
            topic=topic,
            group=group,
            source=source,
            target=target,
            properties=config,
            source_servers=admin.a["bootstrap.servers"],
        )
        syncs = NewTopic(
            name=made.syncs_topic,
            partition_count=1,
            replication_factor=1,
            configs={"cleanup.policy": "compact"},
        )
        origin = NewTopic(name=topic, partition_count=1, replication_factor=1)
        copy = NewTopic(name=made.copy.topic, partition_count=1, replication_factor=1)
        await retry_admin(lambda: source.create_topics([origin, syncs]))
        await retry_admin(lambda: target.create_topics([copy]))
        yield made


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a command has said."""

    code: int
    documents: Sequence[Any]
    errors: str


async def twinlog(*arguments: str) -> Told:
    """Run `twinlog … -o json` as an operator does."""
    answer = await in_process.twinlog(*arguments, "-o", "json")
    text = answer.stdout.rstrip()
    documents: list[Any] = []
    decoder, position = json.JSONDecoder(), 0
    while position < len(text):
        document, position = decoder.raw_decode(text, position)
        documents += document if isinstance(document, list) else [document]
        position += len(text[position:]) - len(text[position:].lstrip())
    return Told(code=answer.returncode, documents=documents, errors=answer.stderr)
