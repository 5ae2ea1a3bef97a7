"""CheckpointService over gRPC: request, question to the flows, response."""

from collections.abc import Callable, Sequence

from google.protobuf.timestamp_pb2 import Timestamp

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.api.checkpoint.v1 import checkpoint_service_pb2_grpc as pb2_grpc
from twinlog.api.common.v1 import types_pb2
from twinlog.errors import NotFoundError
from twinlog.model import Flow, TopicPartition
from twinlog.service.clusters import ClusterStatus
from twinlog.service.grpc_server import Context
from twinlog_checkpoint.checkpointer import Checkpointer
from twinlog_checkpoint.progress import GroupProgress
from twinlog_checkpoint.translation import Verdict

_VERDICTS = {verdict: pb2.Verdict.Value(f"VERDICT_{verdict.value}") for verdict in Verdict}


class CheckpointServicer(pb2_grpc.CheckpointServiceServicer):
    def __init__(
        self, checkpointers: Sequence[Checkpointer], statuses: Callable[[], Sequence[ClusterStatus]]
    ) -> None:
        self._flows = {checkpointer.entry.flow: checkpointer for checkpointer in checkpointers}
        self._statuses = statuses

    async def ListGroups(  # noqa: N802
        self, request: pb2.ListGroupsRequest, context: Context
    ) -> pb2.ListGroupsResponse:
        flows = [self._flow(request.flow)] if request.HasField("flow") else list(self._flows.values())
        rows = [row for checkpointer in flows for row in checkpointer.table.rows(request.group)]
        return pb2.ListGroupsResponse(
            groups=[_group_partition(row) for row in rows],
            clusters=[_cluster(status) for status in self._statuses()],
            ready_flows=[
                _flow(checkpointer.entry.flow)
                for checkpointer in flows
                if checkpointer.tail.store.read_to_end
            ],
        )

    def _flow(self, flow: types_pb2.Flow) -> Checkpointer:
        """Raises NotFoundError naming the flows there are."""
        wanted = Flow(flow.source, flow.target)
        checkpointer = self._flows.get(wanted)
        if checkpointer is None:
            known = ", ".join(str(known) for known in self._flows) or "none"
            raise NotFoundError(
                f"flow {wanted} translates no groups in this process; these do: {known}",
                reason="FLOW_UNKNOWN",
                metadata={"flow": str(wanted)},
            )
        return checkpointer


def _group_partition(row: GroupProgress) -> pb2.GroupPartition:
    return pb2.GroupPartition(
        flow=_flow(row.flow),
        group=row.group,
        source=_topic_partition(row.source),
        target=_topic_partition(row.target),
        upstream_offset=row.upstream_offset,
        downstream_offset=row.translation.downstream_offset,
        verdict=_VERDICTS[row.translation.verdict],
        message=row.translation.message,
        as_of=_timestamp(row.as_of_ms),
        committed_on_target=row.committed_on_target,
    )


def _flow(flow: Flow) -> types_pb2.Flow:
    return types_pb2.Flow(source=flow.source, target=flow.target)


def _topic_partition(partition: TopicPartition) -> types_pb2.TopicPartition:
    return types_pb2.TopicPartition(topic=partition.topic, partition=partition.partition)


def _cluster(status: ClusterStatus) -> types_pb2.ClusterStatus:
    return types_pb2.ClusterStatus(
        alias=status.alias,
        reachable=status.reachable,
        reason=status.reason,
        message=status.message,
        as_of=_timestamp(status.as_of_ms) if status.as_of_ms else None,
    )


def _timestamp(milliseconds: int) -> Timestamp:
    timestamp = Timestamp()
    timestamp.FromMilliseconds(milliseconds)
    return timestamp
