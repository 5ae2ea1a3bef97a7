"""Converts foreign writes from and to messages."""

from twinlog.api.source.v1 import source_service_pb2 as pb
from twinlog_source.partitions.reports import ForeignWrite

LATEST_MS = 253_402_300_799_999
"""The end of the year 9999, the last one of a Timestamp; a record may claim a later one."""


def foreign_write_message(write: ForeignWrite) -> pb.ForeignWrite:
    told = pb.ForeignWrite(
        from_offset=write.from_offset,
        to_offset=write.to_offset,
        records=write.records,
        producer_id=write.producer_id,
        producer_epoch=write.producer_epoch,
    )
    told.written_at.FromMilliseconds(min(max(write.written_at_ms, 0), LATEST_MS))
    return told


def foreign_write_of(told: pb.ForeignWrite) -> ForeignWrite:
    return ForeignWrite(
        from_offset=told.from_offset,
        to_offset=told.to_offset,
        records=told.records,
        producer_id=told.producer_id,
        producer_epoch=told.producer_epoch,
        written_at_ms=told.written_at.ToMilliseconds(),
    )
