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
    prepare      prepare, take_raw
    recode_lane  pack, merge, RecordTooLarge
    outgoing     OutgoingBatch, OffsetRun, Seal, sealed_header, sealed
    records      open_records, write_records, decode_batch
    bodies       DecodedRecord, encode_body, decode_record
    build        NewRecord, build_batch: records of our own (positions) as a batch
    counting     VisibleCounter
    codec        Codec, compress, decompress, DEFAULT_LEVELS
"""

from twinlog.batches.bodies import DecodedRecord as DecodedRecord
from twinlog.batches.bodies import OpenRecord as OpenRecord
from twinlog.batches.bodies import RawHeaders as RawHeaders
from twinlog.batches.bodies import decode_record as decode_record
from twinlog.batches.bodies import encode_body as encode_body
from twinlog.batches.codec import DEFAULT_LEVELS as DEFAULT_LEVELS
from twinlog.batches.codec import Codec as Codec
from twinlog.batches.codec import compress as compress
from twinlog.batches.codec import decompress as decompress
from twinlog.batches.header import HEADER_BYTES as HEADER_BYTES
from twinlog.batches.header import Batch as Batch
from twinlog.batches.header import BatchHeader as BatchHeader
from twinlog.batches.header import crc_is_valid as crc_is_valid
from twinlog.batches.header import iter_batches as iter_batches
from twinlog.batches.header import read_batches as read_batches
from twinlog.batches.joining import merge as merge
from twinlog.batches.outgoing import BATCH_LIMITS as BATCH_LIMITS
from twinlog.batches.outgoing import Lane as Lane
from twinlog.batches.outgoing import LaneReason as LaneReason
from twinlog.batches.outgoing import OffsetRun as OffsetRun
from twinlog.batches.outgoing import OutgoingBatch as OutgoingBatch
from twinlog.batches.outgoing import Seal as Seal
from twinlog.batches.outgoing import TargetTopicLimits as TargetTopicLimits
from twinlog.batches.outgoing import choose_lane as choose_lane
from twinlog.batches.outgoing import largest_batch_bytes as largest_batch_bytes
from twinlog.batches.outgoing import sealed as sealed
from twinlog.batches.outgoing import sealed_header as sealed_header
from twinlog.batches.prepare import prepare as prepare
from twinlog.batches.prepare import take_raw as take_raw
from twinlog.batches.prepared import CopyFault as CopyFault
from twinlog.batches.prepared import CopyPolicy as CopyPolicy
from twinlog.batches.prepared import LeaderEpoch as LeaderEpoch
from twinlog.batches.prepared import Prepared as Prepared
from twinlog.batches.recode_lane import NewRecord as NewRecord
from twinlog.batches.recode_lane import Packed as Packed
from twinlog.batches.recode_lane import RecordTooLarge as RecordTooLarge
from twinlog.batches.recode_lane import build_batch as build_batch
from twinlog.batches.recode_lane import pack as pack
from twinlog.batches.records import decode_batch as decode_batch
from twinlog.batches.records import open_records as open_records
from twinlog.batches.records import write_records as write_records
from twinlog.batches.visibility import AbortedTransaction as AbortedTransaction
from twinlog.batches.visibility import EndMarker as EndMarker
from twinlog.batches.visibility import Visibility as Visibility
from twinlog.batches.visibility import VisibleBatch as VisibleBatch
from twinlog.batches.visibility import VisibleCounter as VisibleCounter
from twinlog.batches.visibility import classify as classify
from twinlog.batches.visibility import end_marker as end_marker
