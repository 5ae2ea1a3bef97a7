"""Converts flows, partitions, times and clusters into messages that the APIs of all services share."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar, cast, overload

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from twinlog.api.common.v1 import types_pb2
from twinlog.errors import NotFoundError
from twinlog.model import Flow, TopicPartition
from twinlog.service.clusters import ClusterStatus

M = TypeVar("M", bound=Message)
T = TypeVar("T")


def message_of(kind: type[M], row: object, /, **given: Any) -> M:
    """The message of a row: each field has what is `given`, else the row's attribute of the same name, for
    times `<name>_ms` and for durations `<name>_seconds`. None is an unset field; enums go by their value.

    Raises AttributeError for a field that the row does not have: a new fact of a row is a field of its
    message, and an attribute.
    """
    values, of_kind = dict(given), cast("Any", kind)
    for name, read in _readers(of_kind):
        if name not in given:
            values[name] = read(row)
    return kind(**values)


@cache
def _readers(kind: type[Message]) -> Sequence[tuple[str, Callable[[Any], Any]]]:
    """By field: how it is read from a row. Kept, because thousands of rows are sent at once."""
    return [(field.name, _reader(field)) for field in kind.DESCRIPTOR.fields]


def _reader(field: Any) -> Callable[[Any], Any]:
    name = field.name
    message = "" if field.message_type is None else field.message_type.name
    if message == "Timestamp":
        return lambda row: timestamp(getattr(row, f"{name}_ms"))
    if message == "Duration":
        return lambda row: duration(getattr(row, f"{name}_seconds"))
    if message in _OF_MODEL:
        convert = _OF_MODEL[message]
        return lambda row: None if (value := getattr(row, name)) is None else convert(value)
    if field.enum_type is not None:
        # All our enums begin with …_UNSPECIFIED; the other names have the same prefix.
        prefix = field.enum_type.values_by_number[0].name.removesuffix("UNSPECIFIED")
        numbers = {
            each.name.removeprefix(prefix): number
            for number, each in field.enum_type.values_by_number.items()
        }
        return lambda row: numbers[getattr(row, name).value]
    return attrgetter(name)


def flow_message(flow: Flow) -> types_pb2.Flow:
    return types_pb2.Flow(source=flow.source, target=flow.target)


def flow_of(message: types_pb2.Flow) -> Flow:
    return Flow(message.source, message.target)


def named(flows: Mapping[Flow, T], message: types_pb2.Flow) -> T:
    """What this process has of the flow that a request names. Raises NotFoundError, which lists its flows."""
    flow = flow_of(message)
    if flow not in flows:
        known = ", ".join(map(str, sorted(flows))) or "none"
        raise NotFoundError(
            f"there is no flow {flow} here; flows: {known}",
            reason="FLOW_UNKNOWN",
            metadata={"flow": str(flow)},
        )
    return flows[flow]


def partition_message(partition: TopicPartition) -> types_pb2.TopicPartition:
    return types_pb2.TopicPartition(topic=partition.topic, partition=partition.partition)


_OF_MODEL: Mapping[str, Callable[[Any], Message]] = {
    "Flow": flow_message,
    "TopicPartition": partition_message,
}


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
        silent_brokers=sorted(status.outage.brokers) if status.reachable else (),
        broker_addresses=status.outage.brokers,
        partitions_without_leader=status.outage.without_leader,
        partitions_under_replicated=status.outage.under_replicated,
    )
