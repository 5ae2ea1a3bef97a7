"""The data of the live view: partitions from source, delay from heartbeat, both over gRPC like the CLI."""

from collections.abc import Mapping

import grpc

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as checkpoint_pb
from twinlog.api.checkpoint.v1 import checkpoint_service_pb2_grpc as checkpoint_grpc
from twinlog.api.heartbeat.v1 import heartbeat_service_pb2 as heartbeat_pb
from twinlog.api.heartbeat.v1 import heartbeat_service_pb2_grpc as heartbeat_grpc
from twinlog.api.source.v1 import source_service_pb2 as source_pb
from twinlog.api.source.v1 import source_service_pb2_grpc as source_grpc
from twinlog.demo.screen import TopicRow
from twinlog.model import TopicPartition

CALL_TIMEOUT_SECONDS = 5.0
SETTLED = (
    checkpoint_pb.VERDICT_PRESERVED,
    checkpoint_pb.VERDICT_EXACT,
    checkpoint_pb.VERDICT_UP_TO_DATE,
)


class Watching:
    """Asks the services of a running Twinlog. Raises grpc.aio.AioRpcError when one does not answer."""

    def __init__(
        self, source: grpc.aio.Channel, heartbeat: grpc.aio.Channel, checkpoint: grpc.aio.Channel
    ) -> None:
        self._source = source_grpc.SourceServiceStub(source)
        self._checkpoint = checkpoint_grpc.CheckpointServiceStub(checkpoint)
        self._heartbeat = heartbeat_grpc.HeartbeatServiceStub(heartbeat)

    async def partitions(self) -> list[source_pb.PartitionStatus]:
        answer = await self._source.ListPartitions(
            source_pb.ListPartitionsRequest(page_size=10_000), timeout=CALL_TIMEOUT_SECONDS
        )
        return list(answer.partitions)

    async def topics(self) -> list[TopicRow]:
        """One row per replicated topic, without heartbeats."""
        by_topic: dict[str, list[source_pb.PartitionStatus]] = {}
        for partition in await self.partitions():
            if not partition.source.topic.endswith("heartbeats"):
                by_topic.setdefault(partition.source.topic, []).append(partition)
        return [_row(topic, partitions) for topic, partitions in sorted(by_topic.items())]

    async def group_is_settled(self, group: str, on_source: Mapping[TopicPartition, int]) -> bool:
        """Whether the group's offsets on the target are those of exactly these offsets on the source."""
        answer = await self._checkpoint.ListGroups(
            checkpoint_pb.ListGroupsRequest(group=group), timeout=CALL_TIMEOUT_SECONDS
        )
        settled = {
            TopicPartition(row.source.topic, row.source.partition): row.upstream_offset
            for row in answer.groups
            if row.committed_on_target and row.verdict in SETTLED
        }
        return settled == dict(on_source)

    async def delay_seconds(self) -> float | None:
        """End to end, of the last heartbeat; None before the first one arrived."""
        answer = await self._heartbeat.ListDelays(
            heartbeat_pb.ListDelaysRequest(), timeout=CALL_TIMEOUT_SECONDS
        )
        for delay in answer.delays:
            if (delay.flow.source, delay.flow.target) == ("A", "B") and delay.HasField("last_delay"):
                return delay.last_delay.ToTimedelta().total_seconds()
        return None


def _row(topic: str, partitions: list[source_pb.PartitionStatus]) -> TopicRow:
    states = {source_pb.PartitionState.Name(p.state).removeprefix("PARTITION_STATE_") for p in partitions}
    return TopicRow(
        source_topic=topic,
        target_topic=partitions[0].target_topic,
        partitions=len(partitions),
        records=sum(max(p.position, 0) for p in partitions),
        records_per_second=sum(p.records_per_second for p in partitions),
        megabytes_per_second=sum(p.bytes_per_second for p in partitions) / 1e6,
        lag_records=sum(p.lag_records for p in partitions)
        if all(p.HasField("lag_records") for p in partitions)
        else None,
        state=states.pop() if len(states) == 1 else "MIXED",
    )
