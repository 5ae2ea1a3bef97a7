"""README: rules change while flows run, on all services; what they do not touch is copied as if nothing was.

Judged by counts: after every change the copy of an untouched partition under steady load continues, and at
the end it holds every record once, without a single aborted batch.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from e2e.conftest import MirrorRig
from twinlog.api.checkpoint.v1.checkpoint_service_pb2 import ListGroupsRequest
from twinlog.api.checkpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from twinlog.api.common.v1.types_pb2 import Flow
from twinlog.api.configsync.v1 import configsync_service_pb2 as configsync
from twinlog.api.configsync.v1.configsync_service_pb2_grpc import ConfigSyncServiceStub
from twinlog.api.heartbeat.v1.heartbeat_service_pb2 import ListDelaysRequest
from twinlog.api.heartbeat.v1.heartbeat_service_pb2_grpc import HeartbeatServiceStub
from twinlog.api.source.v1.source_service_pb2 import ListPartitionsRequest
from twinlog.api.source.v1.source_service_pb2_grpc import SourceServiceStub
from twinlog.demo.comparison import compare
from twinlog.kafka.ports import CommittedOffset, KafkaCluster, NewTopic, OffsetSpec
from twinlog.model import Record, TopicPartition
from twinlog.service.peers import open_channel
from twinlog.service.waiting import wait_or_stop
from twinlog.testing.brokers import eventually, retry_admin, unique_name
from twinlog.testing.service_process import CALL_SECONDS

ADD, REMOVE = configsync.RULE_OPERATION_ADD, configsync.RULE_OPERATION_REMOVE
SET, RESET = configsync.RULE_OPERATION_SET, configsync.RULE_OPERATION_RESET


@dataclass(slots=True)
class SteadyLoad:
    """One record after the other into one partition, each acknowledged before the next."""

    cluster: KafkaCluster
    partition: TopicPartition
    written: int = 0
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        async with self.cluster.writer() as writer:
            while not await wait_or_stop(self.stop, 0.005):
                await writer.append(self.partition, key=None, value=b"%d" % self.written)
                self.written += 1


@asynccontextmanager
async def under_load(source: KafkaCluster, topic: str) -> AsyncIterator[SteadyLoad]:
    load = SteadyLoad(source, TopicPartition(topic, 0))
    async with asyncio.TaskGroup() as group:
        group.create_task(load.run(), name="steady load")
        try:
            yield load
        finally:
            load.stop.set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What each of the four says of the flow."""

    mirror: MirrorRig

    @property
    def flow(self) -> Flow:
        return Flow(source=self.mirror.source_alias, target=self.mirror.target_alias)

    async def change(self, key: str, operation: configsync.RuleOperation.ValueType, value: str = "") -> None:
        request = configsync.UpdateRulesRequest(
            flow=self.flow, changes=[configsync.RuleChange(key=key, operation=operation, value=value)]
        )
        async with open_channel(self.mirror.run.endpoints["configsync"]) as channel:
            await ConfigSyncServiceStub(channel).UpdateRules(request, timeout=CALL_SECONDS)

    async def topics(self) -> set[str]:
        """The topics that configsync has."""
        async with open_channel(self.mirror.run.endpoints["configsync"]) as channel:
            request = configsync.ListTopicsRequest(flow=self.flow)
            answer = await ConfigSyncServiceStub(channel).ListTopics(request, timeout=CALL_SECONDS)
        return {topic.source_topic for topic in answer.topics}

    async def positions(self, topic: str) -> list[int]:
        """The positions of a topic's partitions, as source tells them; none for a topic that is not
        copied."""
        async with open_channel(self.mirror.run.endpoints["source"]) as channel:
            request = ListPartitionsRequest(flow=self.flow, source_topic=topic)
            answer = await SourceServiceStub(channel).ListPartitions(request, timeout=CALL_SECONDS)
        return [partition.position for partition in answer.partitions]

    async def groups(self) -> set[str]:
        """The groups that checkpoint has."""
        async with open_channel(self.mirror.run.endpoints["checkpoint"]) as channel:
            answer = await CheckpointServiceStub(channel).ListGroups(
                ListGroupsRequest(flow=self.flow), timeout=CALL_SECONDS
            )
        return {group.group for group in answer.groups}

    async def heartbeats_reason(self) -> str:
        """The reason that heartbeat gives for the flow."""
        async with open_channel(self.mirror.run.endpoints["heartbeat"]) as channel:
            answer = await HeartbeatServiceStub(channel).ListDelays(
                ListDelaysRequest(flow=self.flow), timeout=CALL_SECONDS
            )
        (delay,) = answer.delays
        return delay.reason

    def log_lines(self) -> list[str]:
        return self.mirror.run.log.read_text(errors="replace").splitlines()


async def records(cluster: KafkaCluster, partition: TopicPartition) -> list[Record]:
    """Those of aborted transactions too."""
    start = (await cluster.list_offsets(OffsetSpec.EARLIEST, [partition]))[partition]
    end = (await cluster.list_offsets(OffsetSpec.LATEST, [partition]))[partition]
    assert isinstance(start, int)
    assert isinstance(end, int)
    found: list[Record] = []
    async with cluster.reader(read_committed=False) as reader:
        while start < end:
            fetched = await reader.fetch(partition, start, max_wait_seconds=0.5)
            found, start = [*found, *fetched.records], fetched.next_offset
    return found


async def test_changed_rules_reach_every_service_and_disturb_no_other_partition(mirror: MirrorRig) -> None:
    steady, live, group = unique_name("e2e-steady"), unique_name("live"), unique_name("live-app")
    services = Services(mirror=mirror)
    async with mirror.source() as source, mirror.target() as target:
        wanted = [NewTopic(name=name, partition_count=1, replication_factor=1) for name in (steady, live)]
        await retry_admin(lambda: source.create_topics(wanted))
        async with under_load(source, steady) as load:

            async def goes_on() -> None:
                """What is written by now gets copied."""
                written = load.written
                await eventually(lambda: _reached(services, steady, written))

            await goes_on()
            begun_at = len(services.log_lines())
            try:
                await services.change("topics", ADD, live)
                await eventually(lambda: _is_copied(services, live))
                await goes_on()

                await services.change("emit.heartbeats.enabled", SET, "false")
                await eventually(lambda: _heartbeats_are(services, "HEARTBEATS_DISABLED"))
                await goes_on()
                await services.change("emit.heartbeats.enabled", RESET)
                await eventually(lambda: _heartbeats_are(services, ""))

                offset = {load.partition: CommittedOffset(next_offset=1)}
                await retry_admin(lambda: source.alter_group_offsets(group, offset))
                await eventually(lambda: _has_group(services, group, present=True))
                await services.change("groups.exclude", ADD, group)
                await eventually(lambda: _has_group(services, group, present=False))
                await goes_on()

                await services.change("topics", REMOVE, live)
                await eventually(lambda: _is_not_copied(services, live))
                await goes_on()
            finally:
                for key in ("topics", "emit.heartbeats.enabled", "groups.exclude"):
                    await services.change(key, RESET)

        await eventually(lambda: _reached(services, steady, load.written))
        remote = mirror.remote(steady)
        result = await compare(source, steady, target, remote, partition_count=1)
        assert result.identical, result
        assert result.source_records == load.written
        on_target = await records(target, TopicPartition(remote, 0))
        assert len(on_target) == load.written, "an epoch aborted"
        since = services.log_lines()[begun_at:]
        assert not [line for line in since if "slots_fenced" in line or "epoch_failed" in line]


async def _reached(services: Services, topic: str, offset: int) -> bool:
    positions = await services.positions(topic)
    return bool(positions) and positions[0] >= offset


async def _is_copied(services: Services, topic: str) -> bool:
    return topic in await services.topics() and bool(await services.positions(topic))


async def _is_not_copied(services: Services, topic: str) -> bool:
    return topic not in await services.topics() and not await services.positions(topic)


async def _heartbeats_are(services: Services, reason: str) -> bool:
    return await services.heartbeats_reason() == reason


async def _has_group(services: Services, group: str, *, present: bool) -> bool:
    return (group in await services.groups()) is present
