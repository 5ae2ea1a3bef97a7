"""Converts domain values into protobuf messages of the API."""

from collections.abc import Iterable

from twinlog.api.common.v1 import types_pb2
from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.model import Flow
from twinlog.service.api_values import cluster_message, flow_message, message_of
from twinlog.service.clusters import ClusterStatus
from twinlog.service.feeds.replicated_topics import ReplicatedTopic
from twinlog_configsync.model.schedule import Scope
from twinlog_configsync.planning.flow_status import FlowStatus, ScopeStatus


def flow_of(message: types_pb2.Flow) -> Flow:
    return Flow(message.source, message.target)


def topic_message(flow: Flow, entry: ReplicatedTopic) -> pb2.ReplicatedTopic:
    return message_of(
        pb2.ReplicatedTopic,
        entry,
        flow=flow_message(flow),
        target_max_message_bytes=entry.limits.max_message_bytes,
        target_compression_type=entry.limits.compression_type,
        target_timestamp_type=entry.limits.timestamp_type,
    )


def flow_status_message(
    flow: Flow, status: FlowStatus, entries: Iterable[ReplicatedTopic], clusters: Iterable[ClusterStatus]
) -> pb2.FlowStatus:
    counts: dict[str, int] = {}
    for entry in entries:
        counts[entry.state.value] = counts.get(entry.state.value, 0) + 1
    return message_of(
        pb2.FlowStatus,
        status,
        flow=flow_message(flow),
        topics_by_state=counts,
        clusters=[cluster_message(cluster) for cluster in clusters],
        scopes=[scope_message(scope, status.scopes[scope]) for scope in sorted(status.scopes)],
    )


def scope_message(scope: Scope, status: ScopeStatus) -> pb2.ScopeStatus:
    return message_of(pb2.ScopeStatus, status, scope=scope)
