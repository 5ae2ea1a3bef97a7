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
_OF_THE_RECORD = (checkpoint_pb.VERDICT_PRESERVED, checkpoint_pb.VERDICT_EXACT)


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

    async def group_is_settled(
        self, group: str, on_source: Mapping[TopicPartition, int], *, copied_at_ms: int
    ) -> bool:
        """Whether the group's offsets on the target are those of exactly these offsets on the source.
        `copied_at_ms`: since when everything is on the target."""
        answer = await self._checkpoint.ListGroups(
            checkpoint_pb.ListGroupsRequest(group=group), timeout=CALL_TIMEOUT_SECONDS
        )
        settled = {
            TopicPartition(row.source.topic, row.source.partition): row.upstream_offset
            for row in answer.groups
            if is_settled(row, copied_at_ms=copied_at_ms)
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


def is_settled(row: checkpoint_pb.GroupPartition, *, copied_at_ms: int) -> bool:
    """Whether the offset on the target is final. A group that is ahead of the copy is at the end of the copy
    so far (UP_TO_DATE): where it continues is known once its record is copied. Pure."""
    if not row.committed_on_target or row.as_of.ToMilliseconds() <= copied_at_ms:
        return False
    at_the_end = row.verdict == checkpoint_pb.VERDICT_UP_TO_DATE and row.HasField("source_lag")
    return row.verdict in _OF_THE_RECORD or (at_the_end and not row.source_lag)


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
