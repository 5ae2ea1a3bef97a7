"""Damaged bytes in every decoder: it reads them, or raises what it declares, and nothing else.

A class of its own for each place where bytes come from others: logs of the source, internal topics of the
target, brokers, key stores.
"""

import contextlib
import json
import struct
from collections.abc import Callable

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.batches import Codec, CopyPolicy, DecodedRecord, TargetTopicLimits, iter_batches, prepare
from twinlog.batches.bodies import decode_record
from twinlog.batches.header import CRC_COVERS_FROM, HEADER_BYTES, LOG_OVERHEAD_BYTES, Batch
from twinlog.batches.outgoing import Seal, sealed
from twinlog.batches.records import open_records
from twinlog.batches.visibility import AbortedTransaction, VisibleCounter
from twinlog.errors import WireFormatError
from twinlog.kafka.security.keystores import JksFormatError, JksPasswordError, read_jks, unprotect
from twinlog.model import Flow
from twinlog.moves.record import Home, MoveKind, MoveState, Run
from twinlog.moves.stored import HOME, RUN, Key, MovesCodec, Row
from twinlog.service.feeds.rules_record import RulesRecord
from twinlog.testing.keystores import jks_keystore
from twinlog.testing.source_batches import source_batch, transaction_marker
from twinlog.wire.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from twinlog.wire.heartbeat import Heartbeat, decode_heartbeat, encode_heartbeat
from twinlog.wire.offset_sync import OffsetSync, decode_offset_sync, encode_offset_sync
from twinlog.wire.source_offset import (
    decode_connect_key,
    decode_document,
    decode_source_offset,
    decode_source_offset_key,
    encode_source_offset,
    source_offset_key,
)
from twinlog_configsync.model.records import (
    RecordKey,
    StoredKind,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from twinlog_source.log.fact_records import fact_record, parse_control
from twinlog_source.log.facts import EpochStart, LeaderEpochsFact, OwnerFact
from twinlog_source.log.gaps import Gap, gap_record, parse_gap
from unit.wire.damage import PARTITION, damaged

A_TO_B = Flow("A", "B")


def records(first: int, count: int) -> list[DecodedRecord]:
    return [
        DecodedRecord(first + number, 1_700_000_000_000 + number, b"key", b"value" * 9, ((b"h", None),))
        for number in range(count)
    ]


LOGS = [
    b"".join(
        source_batch(records(10 * number, 3), codec=codec, last_offset=10 * number + hole)
        for number in range(3)
    )
    for codec in Codec
    for hole in (2, 5)
] + [
    source_batch(records(0, 2), producer_id=7, transactional=True)
    + transaction_marker(2, producer_id=7, commit=False),
    source_batch(records(0, 2), appended_at_ms=5),
]


def with_true_checksums(data: bytes) -> bytes:
    """As a hostile producer or a broken broker would send it: the checksum fits what is damaged."""
    repaired, position = bytearray(data), 0
    while position + HEADER_BYTES <= len(repaired):
        length = int.from_bytes(repaired[position + 8 : position + 12], signed=True)
        after = position + LOG_OVERHEAD_BYTES + length
        if length < HEADER_BYTES - LOG_OVERHEAD_BYTES or after > len(repaired):
            break
        crc = google_crc32c.value(bytes(repaired[position + CRC_COVERS_FROM : after]))
        repaired[position + 17 : position + 21] = struct.pack(">I", crc)
        position = after
    return bytes(repaired)


@given(
    damaged(LOGS),
    st.booleans(),
    st.booleans(),
    st.sampled_from([None, Codec.NONE, Codec.ZSTD]),
    st.sampled_from([0, 4]),
)
def test_a_damaged_fetch_is_prepared_up_to_a_fault(
    data: bytes, repaired: bool, backlog: bool, codec: Codec | None, wanted: int
) -> None:
    data = with_true_checksums(data) if repaired else data
    policy = CopyPolicy(target=TargetTopicLimits(codec=codec), max_open_bytes=1 << 20)
    prepared = prepare(
        data,
        wanted_offset=wanted,
        policy=policy,
        aborted=[AbortedTransaction(7, 0)],
        backlog=backlog,
        log_end_offset=40,
    )
    assert wanted <= prepared.next_offset <= 40 + (1 << 32)
    assert prepared.fault is None or prepared.fault.reason in ("CORRUPT_BATCH", "BATCH_TOO_LARGE")
    position = wanted
    for batch in prepared.batches:
        assert position <= batch.next_source_offset <= prepared.next_offset
        position = batch.next_source_offset
        assert all(run.first_source_offset >= 0 and run.record_count > 0 for run in batch.runs)
        assert list(iter_batches(sealed(batch, Seal(1, 0, 0, transactional=True))))


@given(damaged(LOGS))
def test_damaged_batches_are_opened_and_counted_or_refused(data: bytes) -> None:
    data = with_true_checksums(data)

    def whole() -> list[Batch]:
        return list(iter_batches(data))

    for work in (
        lambda: [
            decode_record(record) for batch in whole() for record in open_records(batch, max_bytes=1 << 20)
        ],
        lambda: VisibleCounter(next_offset=0, stop_offset=15).feed(whole()),
    ):
        with contextlib.suppress(WireFormatError):
            work()


def _moves(key: Key, row: Row) -> tuple[Callable[[bytes, bytes], object], tuple[bytes, bytes]]:
    codec = MovesCodec(A_TO_B)
    raw, value = codec.encode(key, row)

    def decode(key: bytes, value: bytes) -> object:
        found = codec.decode_key(key)
        return found and codec.decode_value(found, value)

    return decode, (raw, value or b"")


PAIRS: list[tuple[Callable[[bytes, bytes], object], tuple[bytes, bytes]]] = [
    (
        decode_checkpoint,
        encode_checkpoint(
            Checkpoint(group="g", partition=PARTITION, upstream_offset=1, downstream_offset=2, metadata="m")
        ),
    ),
    (decode_heartbeat, encode_heartbeat(Heartbeat(source="A", target="B", timestamp_ms=1))),
    (
        decode_offset_sync,
        encode_offset_sync(OffsetSync(partition=PARTITION, upstream_offset=1, downstream_offset=2)),
    ),
    (
        lambda key, value: parse_control("A", key, value),
        fact_record("A", OwnerFact(instance="i", slots=3, renewed_at_ms=1)),
    ),
    (
        lambda key, value: parse_control("A", key, value),
        fact_record("A", LeaderEpochsFact(partition=PARTITION, epochs=(EpochStart(1, 2),))),
    ),
    (
        lambda key, value: parse_gap("A", key, value),
        gap_record(
            A_TO_B,
            Gap(partition=PARTITION, from_offset=1, to_offset=2, reason="RETENTION", found_at_ms=1),
        ),
    ),
    (
        lambda key, value: (decode_source_offset_key(key), decode_source_offset(value)),
        (source_offset_key("A", PARTITION), encode_source_offset(5) or b""),
    ),
    (
        lambda key, value: (decode_connect_key(key), decode_document(value)),
        (b'["c",{"a":1}]', b'{"a":[1,null]}'),
    ),
    (
        lambda key, value: (found := decode_key(key)) and decode_value(found, value),
        (
            encode_key(RecordKey(StoredKind.RULES)),
            encode_value(RulesRecord(revision=1, updated_at_ms=2, values={"topics": "a"})),
        ),
    ),
    _moves((RUN,), Run(run_id="r", kind=MoveKind.FAILOVER, state=MoveState.DONE)),
    _moves((HOME, "g"), Home(where="B", run="r", stood_at={PARTITION: 4}, left_at={PARTITION: 5})),
]
DEEP = b"[" * 100_000
NUMBER = b"1" * 10_000


@pytest.mark.parametrize("case", range(len(PAIRS)))
@given(data=st.data())
def test_a_damaged_record_of_an_internal_topic_is_read_or_refused(case: int, data: st.DataObject) -> None:
    decode, (key, value) = PAIRS[case]
    decode(key, value)
    strange = st.sampled_from(
        [DEEP, NUMBER, b"", b"null", b"{}", b"[]", b"\xff\xfe", json.dumps({"version": 1}).encode()]
    )
    damaged_key = data.draw(st.one_of(st.just(key), damaged([key]), strange))
    damaged_value = data.draw(st.one_of(damaged([value]), strange))
    with contextlib.suppress(WireFormatError):
        decode(damaged_key, damaged_value)


KEY_STORE = jks_keystore(b"\x30\x03\x02\x01\x00", [b"\x30\x00"], "store-password", "key-password")


@given(damaged([KEY_STORE]), st.sampled_from([None, "store-password"]))
def test_a_damaged_key_store_is_read_or_refused(data: bytes, password: str | None) -> None:
    with contextlib.suppress(JksFormatError, JksPasswordError):
        for key in read_jks(data, password).keys:
            unprotect(key, "key-password")
