"""The gRPC surface of configsync: request, domain call, response. No decisions, no Kafka."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing

from twinlog.api.common.v1 import types_pb2
from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.api.configsync.v1.configsync_service_pb2_grpc import ConfigSyncServiceServicer
from twinlog.clock import Clock
from twinlog.errors import NotFoundError
from twinlog.model import Flow
from twinlog.service.clusters import Clusters
from twinlog.service.grpc_server import Context
from twinlog.service.watch import Changed, Event, Marked, Progress, Removed, SnapshotEnd, SnapshotItem
from twinlog_configsync.board import TopicBoard, TopicKey
from twinlog_configsync.entry import TopicEntry
from twinlog_configsync.flow_sync import FlowSync
from twinlog_configsync.messages import (
    flow_message,
    flow_of,
    flow_status_message,
    timestamp_message,
    topic_message,
)


class ConfigSyncServicer(ConfigSyncServiceServicer):
    def __init__(
        self,
        flows: Mapping[Flow, FlowSync],
        *,
        board: TopicBoard,
        clusters: Clusters,
        clock: Clock,
        stop: asyncio.Event,
    ) -> None:
        self._flows = flows
        self._board = board
        self._clusters = clusters
        self._clock = clock
        self._stop = stop

    async def ListFlows(self, request: pb2.ListFlowsRequest, context: Context) -> pb2.ListFlowsResponse:  # noqa: N802
        return pb2.ListFlowsResponse(
            flows=[
                flow_status_message(
                    flow,
                    sync.status,
                    (entry for _, entry in self._board.topics(flow)),
                    self._clusters.statuses([flow.source, flow.target]),
                )
                for flow, sync in sorted(self._flows.items())
            ]
        )

    async def ListTopics(self, request: pb2.ListTopicsRequest, context: Context) -> pb2.ListTopicsResponse:  # noqa: N802
        flow = self._asked(request)
        return pb2.ListTopicsResponse(
            topics=[topic_message(each, entry) for each, entry in self._board.topics(flow)],
            resume_token=self._board.token,
            settled_flows=[flow_message(each) for each in self._board.settled(flow)],
        )

    async def WatchTopics(  # noqa: N802
        self, request: pb2.WatchTopicsRequest, context: Context
    ) -> AsyncIterator[pb2.WatchTopicsResponse]:
        flow = self._asked(request)
        events = self._board.watch(request.resume_token, stop=self._stop, flow=flow)
        async with aclosing(events):
            async for event in events:
                yield self._watch_message(event)

    def _asked(self, request: pb2.ListTopicsRequest | pb2.WatchTopicsRequest) -> Flow | None:
        """The flow a request names. Raises NotFoundError when this process does not have it."""
        if not request.HasField("flow"):
            return None
        flow = flow_of(request.flow)
        if flow not in self._flows:
            known = ", ".join(str(each) for each in sorted(self._flows)) or "none"
            raise NotFoundError(
                f"no flow {flow} here; this configsync has: {known}",
                reason="FLOW_UNKNOWN",
                metadata={"flow": str(flow)},
            )
        return flow

    def _watch_message(self, event: Event[TopicKey, TopicEntry]) -> pb2.WatchTopicsResponse:
        match event:
            case SnapshotItem(key=(flow, _), item=entry, token=token):
                return pb2.WatchTopicsResponse(resume_token=token, snapshot_item=topic_message(flow, entry))
            case SnapshotEnd(marks=marks, token=token):
                settled = [flow_message(flow) for flow, _ in marks]
                return pb2.WatchTopicsResponse(
                    resume_token=token, snapshot_end=pb2.SnapshotEnd(settled_flows=settled)
                )
            case Changed(key=(flow, _), item=entry, token=token):
                return pb2.WatchTopicsResponse(resume_token=token, changed=topic_message(flow, entry))
            case Removed(key=(flow, _), item=entry, token=token):
                return pb2.WatchTopicsResponse(resume_token=token, removed=topic_message(flow, entry))
            case Marked(mark=(flow, _), token=token):
                return pb2.WatchTopicsResponse(resume_token=token, flow_settled=flow_message(flow))
            case Progress(token=token):
                as_of = timestamp_message(self._clock.now_ms())
                return pb2.WatchTopicsResponse(resume_token=token, progress=types_pb2.Progress(as_of=as_of))
