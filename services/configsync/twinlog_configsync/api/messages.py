"""Converts domain values into protobuf messages of the API."""

from collections.abc import Iterable
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from twinlog.api.common.v1 import types_pb2
from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.model import Flow
from twinlog.service.api_values import cluster_message
from twinlog.service.clusters import ClusterStatus
from twinlog_configsync.model.entry import TopicEntry, TopicState
from twinlog_configsync.model.schedule import Scope
from twinlog_configsync.planning.flow_status import FlowState, FlowStatus, ScopeStatus

_TOPIC_STATES: Final = {
    TopicState.READY: pb2.TOPIC_STATE_READY,
    TopicState.WAITING: pb2.TOPIC_STATE_WAITING,
    TopicState.DELETED_AT_SOURCE: pb2.TOPIC_STATE_DELETED_AT_SOURCE,
}

_FLOW_STATES: Final = {
    FlowState.STARTING: pb2.FLOW_STATE_STARTING,
    FlowState.SETTLED: pb2.FLOW_STATE_SETTLED,
    FlowState.DEGRADED: pb2.FLOW_STATE_DEGRADED,
    FlowState.REFUSED: pb2.FLOW_STATE_REFUSED,
}


def flow_message(flow: Flow) -> types_pb2.Flow:
    return types_pb2.Flow(source=flow.source, target=flow.target)


def flow_of(message: types_pb2.Flow) -> Flow:
    return Flow(message.source, message.target)


def topic_message(flow: Flow, entry: TopicEntry) -> pb2.ReplicatedTopic:
    return pb2.ReplicatedTopic(
        flow=flow_message(flow),
        source_topic=entry.source_topic,
        target_topic=entry.target_topic,
        partition_count=entry.partition_count,
        target_partition_count=entry.target_partition_count,
        source_topic_id=entry.source_topic_id,
        target_topic_id=entry.target_topic_id,
        generation=entry.generation,
        created_after_start=entry.created_after_start,
        state=_TOPIC_STATES[entry.state],
        reason=entry.reason,
        message=entry.message,
        target_max_message_bytes=entry.limits.max_message_bytes,
        target_compression_type=entry.limits.compression_type,
        target_timestamp_type=entry.limits.timestamp_type,
        source_cleanup_policy=entry.source_cleanup_policy,
    )


def flow_status_message(
    flow: Flow, status: FlowStatus, entries: Iterable[TopicEntry], clusters: Iterable[ClusterStatus]
) -> pb2.FlowStatus:
    counts: dict[str, int] = {}
    for entry in entries:
        counts[entry.state.value] = counts.get(entry.state.value, 0) + 1
    return pb2.FlowStatus(
        flow=flow_message(flow),
        state=_FLOW_STATES[status.state],
        reason=status.reason,
        message=status.message,
        topics_by_state=counts,
        last_refresh=timestamp_message(status.last_refresh_ms),
        clusters=[cluster_message(cluster) for cluster in clusters],
        scopes=[scope_message(scope, status.scopes[scope]) for scope in sorted(status.scopes)],
    )


def scope_message(scope: Scope, status: ScopeStatus) -> pb2.ScopeStatus:
    return pb2.ScopeStatus(
        scope=scope,
        last_synced=timestamp_message(status.last_synced_ms),
        reason=status.reason,
        message=status.message,
        pending_changes=status.pending_changes,
        drift_reverted=status.drift_reverted,
    )


def timestamp_message(milliseconds: int | None) -> Timestamp | None:
    if milliseconds is None:
        return None
    timestamp = Timestamp()
    timestamp.FromMilliseconds(milliseconds)
    return timestamp
