"""Converts the costs of filling holes from and to messages: a task reports them, and the next task gets
them."""

from collections.abc import Iterable

from google.protobuf.duration_pb2 import Duration

from twinlog.api.source.v1 import worker_service_pb2 as pb
from twinlog_source.partitions.reports import HoleCostAgo
from twinlog_source.preserved.hole_cost import HoleCost


def hole_cost_messages(cost: HoleCost, now: float) -> list[pb.HoleCost]:
    return [
        pb.HoleCost(ago=_duration(now - each.began), holes=each.holes, spent=_duration(each.spent_seconds))
        for each in cost.buckets
    ]


def hole_costs_of(messages: Iterable[pb.HoleCost]) -> tuple[HoleCostAgo, ...]:
    return tuple(
        HoleCostAgo(
            ago_seconds=each.ago.ToTimedelta().total_seconds(),
            holes=each.holes,
            spent_seconds=each.spent.ToTimedelta().total_seconds(),
        )
        for each in messages
    )


def _duration(seconds: float) -> Duration:
    duration = Duration()
    duration.FromMilliseconds(int(max(0.0, seconds) * 1000))
    return duration
