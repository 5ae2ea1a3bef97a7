"""Converts flows, partitions, times and clusters into messages that the APIs of all services share."""

from typing import overload

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from twinlog.api.common.v1 import types_pb2
from twinlog.model import Flow, TopicPartition
from twinlog.service.clusters import ClusterStatus


def flow_message(flow: Flow) -> types_pb2.Flow:
    return types_pb2.Flow(source=flow.source, target=flow.target)


def partition_message(partition: TopicPartition) -> types_pb2.TopicPartition:
    return types_pb2.TopicPartition(topic=partition.topic, partition=partition.partition)


@overload
def timestamp(wall_ms: int) -> Timestamp: ...
@overload
def timestamp(wall_ms: int | None) -> Timestamp | None: ...
def timestamp(wall_ms: int | None) -> Timestamp | None:
    """None, an unset field, for an unknown time."""
    if wall_ms is None:
        return None
    message = Timestamp()
    message.FromMilliseconds(wall_ms)
    return message


def duration(seconds: float | None) -> Duration | None:
    """To the millisecond; None, an unset field, when unknown."""
    if seconds is None:
        return None
    message = Duration()
    message.FromMilliseconds(round(seconds * 1000))
    return message


def cluster_message(status: ClusterStatus) -> types_pb2.ClusterStatus:
    return types_pb2.ClusterStatus(
        alias=status.alias,
        reachable=status.reachable,
        reason=status.reason,
        message=status.message,
        as_of=timestamp(status.as_of_ms) if status.as_of_ms else None,
        since=timestamp(status.since_ms) if status.since_ms else None,
        silent_brokers=sorted(status.outage.brokers),
        partitions_without_leader=status.outage.without_leader,
        partitions_under_replicated=status.outage.under_replicated,
    )
