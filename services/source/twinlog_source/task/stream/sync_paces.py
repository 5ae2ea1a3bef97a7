"""Converts `SyncPace` from a task's last message to the next task's orders."""

from twinlog.api.source.v1 import worker_service_pb2 as pb
from twinlog.offsets import SyncPace


def pace_message(pace: SyncPace) -> pb.SyncPace:
    return pb.SyncPace(
        upstream_offset=pace.upstream_offset,
        downstream_offset=pace.downstream_offset,
        records=pace.records,
        credit=pace.credit,
        synced=pace.synced,
    )


def pace_of(message: pb.SyncPace) -> SyncPace:
    return SyncPace(
        upstream_offset=message.upstream_offset,
        downstream_offset=message.downstream_offset,
        records=message.records,
        credit=message.credit,
        synced=message.synced,
    )
