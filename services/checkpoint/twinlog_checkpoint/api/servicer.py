"""CheckpointService over gRPC: converts requests, asks the flows, converts the answers."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.api.checkpoint.v1 import checkpoint_service_pb2_grpc as pb2_grpc
from twinlog.clock import Clock
from twinlog.errors import ConfigError, TransientKafkaError
from twinlog.kafka.deadline import short_patience
from twinlog.model import Flow
from twinlog.service.api_values import cluster_message, flow_message, named
from twinlog.service.clusters import ClusterStatus
from twinlog.service.feeds.pages import Key, checked_page_size, key_of, page_behind
from twinlog.service.grpc_server import Context
from twinlog_checkpoint.api import messages
from twinlog_checkpoint.api.group_explainer import explain_group
from twinlog_checkpoint.api.moves_servicer import MovesServicer, ServedFlow, elsewhere
from twinlog_checkpoint.api.offset_queries import answer_queries
from twinlog_checkpoint.groups.progress import GroupProgress


class CheckpointServicer(MovesServicer, pb2_grpc.CheckpointServiceServicer):
    """The RPCs about moves are `MovesServicer`'s."""

    def __init__(
        self,
        flows: Mapping[Flow, ServedFlow],
        *,
        statuses: Callable[[], Sequence[ClusterStatus]],
        clock: Clock,
        stop: asyncio.Event,
    ) -> None:
        """Streams end at `stop`."""
        super().__init__(flows, clock=clock, stop=stop)
        self._statuses = statuses

    async def ListGroups(  # noqa: N802
        self, request: pb2.ListGroupsRequest, context: Context
    ) -> pb2.ListGroupsResponse:
        if request.from_owner:
            request.from_owner_of.CopyFrom(request.flow)
        flows = self._selected(request)
        size = checked_page_size(request.page_size)
        after = key_of(request.page_token, (str, str, str, str, int))
        response = pb2.ListGroupsResponse(
            clusters=[cluster_message(status) for status in self._statuses()],
            ready_flows=[flow_message(served.parts.flow) for served in flows if served.parts.syncs_are_read],
            flows=[messages.flow_progress(served.parts) for served in flows],
            owned_elsewhere=elsewhere(flows),
        )
        if after is None:
            response.unsupported_groups.extend(
                messages.unsupported_group(served.parts.flow, group, kind)
                for served in flows
                for group, kind in served.parts.checkpointer.groups.unsupported.items()
                if request.group in ("", group)
            )
            response.summaries.extend(
                messages.group_summary(
                    served.parts.flow, served.parts.checkpointer.table.summary(request.group)
                )
                for served in flows
            )
        if request.summary_only:
            return response
        page, response.next_page_token = page_behind(
            _rows_after(flows, request.group, after),
            after,
            key=lambda row: (row.flow.source, row.flow.target, row.group, *row.source),
            message=messages.group_partition,
            size=size,
            beside_bytes=response.ByteSize(),
        )
        response.groups.extend(page)
        return response

    async def ExplainGroup(  # noqa: N802
        self, request: pb2.ExplainGroupRequest, context: Context
    ) -> pb2.ExplainGroupResponse:
        if not request.group:
            raise ConfigError("group: expected a group id", reason="INVALID_GROUP")
        if request.from_owner:
            request.from_owner_of.CopyFrom(request.flow)
        flows = self._selected(request)
        statuses = self._statuses()
        with short_patience(any(status.outage for status in statuses)):
            explained = [await explain_group(served.parts, request.group, statuses) for served in flows]
        return pb2.ExplainGroupResponse(
            explanations=[messages.group_explanation(entry) for entry in explained],
            owned_elsewhere=elsewhere(flows),
        )

    async def TranslateOffsets(  # noqa: N802
        self, request: pb2.TranslateOffsetsRequest, context: Context
    ) -> pb2.TranslateOffsetsResponse:
        parts = named(self._flows, request.flow).parts
        self._both_ends_answer(parts.flow)
        answers = await answer_queries(
            parts,
            messages.direction_of(request.direction),
            messages.offset_queries(request.queries),
        )
        return pb2.TranslateOffsetsResponse(
            translations=[messages.offset_translation(answer) for answer in answers]
        )

    def _both_ends_answer(self, flow: Flow) -> None:
        """Raises TransientKafkaError with the cluster that does not answer, before the client's call would
        time out."""
        for status in self._statuses():
            if status.alias in (flow.source, flow.target) and status.outage.reason:
                so = f", so its logs cannot be read: {status.message}"
                raise TransientKafkaError(
                    status.outage.judged(status.alias, so=so).words, metadata={"cluster": status.alias}
                )


def _rows_after(flows: Sequence[ServedFlow], group: str, after: Key | None) -> Iterator[GroupProgress]:
    """Sorted by flow, group, topic and partition, from the group of `after` on."""
    for served in flows:
        flow = served.parts.flow.source, served.parts.flow.target
        if after is None or flow >= after[:2]:
            begin = str(after[2]) if after is not None and flow == after[:2] else ""
            yield from served.parts.checkpointer.table.rows(group, begin=begin)
