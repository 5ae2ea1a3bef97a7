"""Record batches: read, chosen a lane for, copied raw or recoded, counted. Pure: no I/O, no clock.

The whole copy decision for one partition's fetched bytes is one call, `prepare`:

    prepared = prepare(
        fetched.records, wanted_offset=position, policy=policy, aborted=fetched.aborted, backlog=True
    )
    for batch in prepared.batches:                     # send in this order
        base = await producer.send(partition, batch)   # seals producer id, epoch, sequence
        batch.target_offset(source_offset, base)       # the exact source→target map: batch.runs
    position = prepared.next_offset                    # once all of it is committed
    prepared.fault                                     # None, or what stands in the way at next_offset

The parts, for those who need less:
    header       BatchHeader, Batch, read_batches, iter_batches, crc_is_valid
    visibility   AbortedTransaction, EndMarker, Visibility, classify, end_marker
    lanes        Lane, LaneReason, TargetTopicLimits, choose_lane
    raw_lane     take_raw
    recode_lane  pack, merge, transcode, RecordTooLarge
    outgoing     OutgoingBatch, OffsetRun, Seal, sealed_header, sealed
    records      open_records, write_records, decode_batch
    bodies       DecodedRecord, encode_body, decode_record
    build        NewRecord, build_batch: records of our own (positions) as a batch
    counting     VisibleCounter
    codec        Codec, compress, decompress, DEFAULT_LEVELS
"""

from twinlog.batches.bodies import DecodedRecord, OpenRecord, RawHeaders, decode_record, encode_body
from twinlog.batches.build import NewRecord, build_batch
from twinlog.batches.codec import DEFAULT_LEVELS, Codec, compress, decompress
from twinlog.batches.header import HEADER_BYTES, Batch, BatchHeader, crc_is_valid, iter_batches, read_batches
from twinlog.batches.joining import merge
from twinlog.batches.lanes import (
    BATCH_LIMITS,
    Lane,
    LaneReason,
    TargetTopicLimits,
    choose_lane,
    largest_batch_bytes,
)
from twinlog.batches.outgoing import OffsetRun, OutgoingBatch, Seal, sealed, sealed_header
from twinlog.batches.prepare import prepare, take_raw
from twinlog.batches.prepared import CopyFault, CopyPolicy, LeaderEpoch, Prepared
from twinlog.batches.recode_lane import Packed, RecordTooLarge, pack, transcode
from twinlog.batches.records import decode_batch, open_records, write_records
from twinlog.batches.visibility import (
    AbortedTransaction,
    EndMarker,
    Visibility,
    VisibleBatch,
    VisibleCounter,
    classify,
    end_marker,
)

__all__ = [
    "CopyFault",
    "CopyPolicy",
    "LeaderEpoch",
    "Prepared",
    "prepare",
    "HEADER_BYTES",
    "Batch",
    "BatchHeader",
    "crc_is_valid",
    "iter_batches",
    "merge",
    "read_batches",
    "AbortedTransaction",
    "EndMarker",
    "Visibility",
    "VisibleBatch",
    "classify",
    "end_marker",
    "BATCH_LIMITS",
    "Lane",
    "LaneReason",
    "TargetTopicLimits",
    "choose_lane",
    "largest_batch_bytes",
    "take_raw",
    "Packed",
    "RecordTooLarge",
    "pack",
    "transcode",
    "OffsetRun",
    "OutgoingBatch",
    "Seal",
    "sealed",
    "sealed_header",
    "NewRecord",
    "build_batch",
    "DecodedRecord",
    "OpenRecord",
    "RawHeaders",
    "decode_batch",
    "decode_record",
    "encode_body",
    "open_records",
    "write_records",
    "VisibleCounter",
    "DEFAULT_LEVELS",
    "Codec",
    "compress",
    "decompress",
]
