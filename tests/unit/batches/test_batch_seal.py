"""The identity a producer puts on a batch, checked by another library."""

from aiokafka.record.default_records import DefaultRecordBatch

from twinlog.batches import (
    Codec,
    DecodedRecord,
    NewRecord,
    build_batch,
    crc_is_valid,
    decode_batch,
    read_batches,
    take_raw,
)
from twinlog.batches.outgoing import Seal, sealed, sealed_header
from twinlog.testing.source_batches import source_batch

_RECORDS = [DecodedRecord(500 + i, 1_700_000_000_000 + i, b"k", b"v", ((b"h", b"x"),)) for i in range(4)]


def test_only_the_header_differs() -> None:
    data = source_batch(_RECORDS, codec=Codec.LZ4, producer_id=7, transactional=True, more_attributes=0x40)
    outgoing = take_raw(read_batches(data)[0])
    copy = sealed(outgoing, Seal(4711, 9, 123, transactional=True))
    assert copy[61:] == data[61:]
    theirs = DefaultRecordBatch(copy)
    assert theirs.validate_crc()
    assert (theirs.base_offset, theirs.next_offset) == (0, 4)
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (4711, 9, 123)
    assert theirs.is_transactional
    (batch,) = read_batches(copy)
    assert batch.header.attributes == Codec.LZ4 | 0x10
    assert batch.header.partition_leader_epoch == -1
    assert crc_is_valid(batch)


def test_an_idempotent_seal_takes_the_transaction_away() -> None:
    data = source_batch(_RECORDS, producer_id=7, transactional=True)
    outgoing = take_raw(read_batches(data)[0])
    (batch,) = read_batches(sealed(outgoing, Seal(1, 0, 0, transactional=False)))
    assert not batch.header.is_transactional
    assert crc_is_valid(batch)


def test_the_largest_sequence_fits() -> None:
    outgoing = take_raw(read_batches(source_batch(_RECORDS))[0])
    header = sealed_header(outgoing, Seal((1 << 63) - 1, (1 << 15) - 1, 0x7FFFFFFF, transactional=True))
    assert len(header) == 61


def test_records_of_our_own_are_read_by_another_library() -> None:
    records = [
        NewRecord(b'["a"]', b'{"offset":1}', 1_700_000_000_000),
        NewRecord(b'["b"]', None, 1_700_000_000_005, ((b"h", None),)),
    ]
    copy = sealed(build_batch(records), Seal(1, 0, 0, transactional=True))
    theirs = DefaultRecordBatch(copy)
    assert theirs.validate_crc()
    assert [(r.key, r.value, r.timestamp, list(r.headers)) for r in DefaultRecordBatch(copy)] == [
        (b'["a"]', b'{"offset":1}', 1_700_000_000_000, []),
        (b'["b"]', None, 1_700_000_000_005, [("h", None)]),
    ]
    assert [record.offset for record in decode_batch(read_batches(copy)[0])] == [0, 1]
