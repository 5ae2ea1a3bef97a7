"""Converts `LatencyHistogram` from and to messages of a task's report."""

from twinlog.api.source.v1 import worker_service_pb2 as pb
from twinlog_source.partitions.latency import LatencyHistogram


def latency_message(histogram: LatencyHistogram | None) -> pb.LatencyHistogram | None:
    if histogram is None:
        return None
    return pb.LatencyHistogram(
        buckets=[
            pb.LatencyBucket(index=index, records=records, sum_seconds=seconds)
            for index, (records, seconds) in histogram.buckets.items()
        ],
        min_seconds=histogram.min_seconds,
        max_seconds=histogram.max_seconds,
    )


def latency_of(message: pb.LatencyHistogram) -> LatencyHistogram:
    return LatencyHistogram(
        {bucket.index: (bucket.records, bucket.sum_seconds) for bucket in message.buckets},
        message.min_seconds,
        message.max_seconds,
    )
