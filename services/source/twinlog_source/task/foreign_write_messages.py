"""A foreign write as it goes over the wire."""

from twinlog.api.source.v1 import source_service_pb2 as pb
from twinlog_source.partitions.reports import ForeignWrite


def foreign_write_message(write: ForeignWrite) -> pb.ForeignWrite:
    told = pb.ForeignWrite(
        from_offset=write.from_offset,
        to_offset=write.to_offset,
        records=write.records,
        producer_id=write.producer_id,
        producer_epoch=write.producer_epoch,
    )
    told.written_at.FromMilliseconds(write.written_at_ms)
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
