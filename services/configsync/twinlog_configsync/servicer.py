"""The gRPC surface of configsync: request, domain call, response. No decisions, no Kafka."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import aclosing

import structlog

from twinlog.api.common.v1 import types_pb2
from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.api.configsync.v1.configsync_service_pb2_grpc import ConfigSyncServiceServicer
from twinlog.clock import Clock
from twinlog.errors import ConfigError, NotFoundError
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
from twinlog_configsync.messages_plan import (
    acl_entry_message,
    explanation_message,
    outcome_message,
    plan_message,
)
from twinlog_configsync.schedule import Scope

_log = structlog.stdlib.get_logger(__name__)


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

    async def PlanSync(self, request: pb2.PlanSyncRequest, context: Context) -> pb2.PlanSyncResponse:  # noqa: N802
        plan, world = await self._sync(request.flow).preview(_scopes(request.scopes))
        return pb2.PlanSyncResponse(plan=plan_message(plan, world))

    async def ApplySync(self, request: pb2.ApplySyncRequest, context: Context) -> pb2.ApplySyncResponse:  # noqa: N802
        sync = self._sync(request.flow)
        outcome = await sync.apply(request.plan_id, self._stop)
        _log.info(
            "plan_applied",
            flow=str(sync.flow),
            plan_id=request.plan_id,
            applied=len(outcome.applied),
            refused=len(outcome.refused),
            peer=context.peer(),
        )
        return outcome_message(outcome)

    async def ExplainTopic(  # noqa: N802
        self, request: pb2.ExplainTopicRequest, context: Context
    ) -> pb2.ExplainTopicResponse:
        asked = self._asked(request)
        flows = sorted(self._flows) if asked is None else [asked]
        return pb2.ExplainTopicResponse(
            explanations=[
                explanation_message(flow, explanation)
                for flow in flows
                for explanation in await self._flows[flow].explain(request.topic)
            ]
        )

    async def ListAcls(self, request: pb2.ListAclsRequest, context: Context) -> pb2.ListAclsResponse:  # noqa: N802
        entries = await self._sync(request.flow).acls()
        return pb2.ListAclsResponse(entries=[acl_entry_message(entry) for entry in entries])

    def _asked(
        self, request: pb2.ListTopicsRequest | pb2.WatchTopicsRequest | pb2.ExplainTopicRequest
    ) -> Flow | None:
        """The flow a request names, None for all. Raises NotFoundError when this process does not have it."""
        return self._sync(request.flow).flow if request.HasField("flow") else None

    def _sync(self, message: types_pb2.Flow) -> FlowSync:
        """Raises NotFoundError when this process does not have the flow."""
        flow = flow_of(message)
        if flow not in self._flows:
            known = ", ".join(str(each) for each in sorted(self._flows)) or "none"
            raise NotFoundError(
                f"no flow {flow} here; this configsync has: {known}",
                reason="FLOW_UNKNOWN",
                metadata={"flow": str(flow)},
            )
        return self._flows[flow]

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


def _scopes(names: Iterable[str]) -> list[Scope]:
    """Raises ConfigError for a name that is no scope."""
    try:
        return [Scope(name) for name in names]
    except ValueError as error:
        raise ConfigError(
            f"scopes: {error}; there are {', '.join(Scope)}", metadata={"field": "scopes"}
        ) from error
