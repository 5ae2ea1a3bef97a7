"""What filling holes took, between a task's reports and the next task's orders."""

from collections.abc import Iterable

from google.protobuf.duration_pb2 import Duration

from twinlog.api.source.v1 import worker_service_pb2 as pb
from twinlog_source.preserved.hole_cost import HoleCost, HoleCostBucket


def hole_cost_messages(cost: HoleCost, now: float) -> list[pb.HoleCost]:
    return [
        pb.HoleCost(ago=_duration(now - each.began), holes=each.holes, spent=_duration(each.spent_seconds))
        for each in cost.buckets
    ]


def hole_cost_of(messages: Iterable[pb.HoleCost], now: float) -> HoleCost:
    return HoleCost.resumed(
        HoleCostBucket(
            now - each.ago.ToTimedelta().total_seconds(),
            each.holes,
            each.spent.ToTimedelta().total_seconds(),
        )
        for each in messages
    )


def _duration(seconds: float) -> Duration:
    duration = Duration()
    duration.FromMilliseconds(int(max(0.0, seconds) * 1000))
    return duration
