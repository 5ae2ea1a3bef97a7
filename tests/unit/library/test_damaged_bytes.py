"""Damaged bytes in every decoder: it reads them, or raises what it declares, and nothing else.

A class of its own for each place where bytes come from others: logs of the source, internal topics of the
target, brokers, key stores.
"""

import contextlib
import json
import struct
from collections.abc import Callable
from functools import partial

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.batches import Codec, CopyPolicy, DecodedRecord, TargetTopicLimits, iter_batches, prepare
from twinlog.batches.bodies import decode_record
from twinlog.batches.counting import RecordLocator, VisibleCounter
from twinlog.batches.header import CRC_COVERS_FROM, HEADER_BYTES, LOG_OVERHEAD_BYTES, Batch
from twinlog.batches.outgoing import Seal, sealed
from twinlog.batches.records import open_records
from twinlog.batches.visibility import AbortedTransaction
from twinlog.errors import WireFormatError
from twinlog.kafka.groups import requests as group_requests
from twinlog.kafka.protocol import broker_features, metadata
from twinlog.kafka.raw.fetch import wire as fetch_wire
from twinlog.kafka.raw.leader_epochs import _read as read_epoch_ends
from twinlog.kafka.raw.produce import wire as produce_wire
from twinlog.kafka.raw.producer_states import _read as read_producers
from twinlog.kafka.raw.transactions import wire as transaction_wire
from twinlog.kafka.security.jks import JksFormatError, JksPasswordError, read_jks, unprotect
from twinlog.model import Flow, TopicPartition
from twinlog.testing.jks_files import jks_keystore
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
from twinlog_checkpoint.journal.record import (
    MoveKind,
    MoveRecord,
    MoveState,
    decode_group,
    encode_group,
    encode_record,
)
from twinlog_checkpoint.journal.record import decode_record as decode_move
from twinlog_configsync.model.records import (
    Kind,
    RecordKey,
    RulesRecord,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from twinlog_source.log.fact_records import fact_record, parse_control
from twinlog_source.log.facts import EpochStart, LeaderEpochsFact, OwnerFact
from twinlog_source.log.gaps import Gap, gap_record, parse_gap

A_TO_B = Flow("A", "B")
PARTITION = TopicPartition("orders", 3)
EXTREMES = [0, 1, 0x7F, 0x80, 0xFF]
WORDS = [-1, 0, 1, 1 << 15, (1 << 31) - 1, -(1 << 31)]


@st.composite
def damaged(draw: st.DrawFn, originals: list[bytes]) -> bytes:
    """One of the originals with some bytes flipped, set, cut out or put in; sometimes any bytes at all."""
    data = bytearray(draw(st.sampled_from(originals)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        match draw(st.sampled_from(["set", "flip", "word", "cut", "tail", "insert", "any"])):
            case "set" if data:
                data[at] = draw(st.sampled_from(EXTREMES))
            case "flip" if data:
                data[at] ^= 1 << draw(st.integers(0, 7))
            case "word":
                data[at : at + 4] = struct.pack(">i", draw(st.sampled_from(WORDS)))
            case "cut":
                del data[at : at + draw(st.integers(1, 8))]
            case "tail":
                del data[at:]
            case "insert":
                data[at:at] = draw(st.binary(max_size=8)) * draw(st.sampled_from([1, 1, 100]))
            case "any":
                data = bytearray(draw(st.binary(max_size=200)))
    return bytes(data)


# --------------------------------------------------------------------------------------- logs of the source


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
        lambda: RecordLocator(next_offset=0, records_before=4).feed(whole()),
    ):
        with contextlib.suppress(WireFormatError):
            work()


# ------------------------------------------------------------------------------------------- internal topics

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
            encode_key(RecordKey(Kind.RULES)),
            encode_value(RulesRecord(revision=1, updated_at_ms=2, values={"topics": "a"})),
        ),
    ),
    (
        lambda key, value: (decode_move(value), decode_group(A_TO_B, key, value)),
        encode_record(
            A_TO_B,
            MoveRecord(
                run_id="r", kind=MoveKind.FAILOVER, state=MoveState.DONE, groups=("g",), by="me", started_ms=1
            ),
        ),
    ),
    (
        lambda key, value: (decode_move(value), decode_group(A_TO_B, key, value)),
        encode_group(A_TO_B, "c", "g", {PARTITION: 4}),
    ),
]
DEEP = b"[" * 100_000
NUMBER = b"1" * 10_000


@pytest.mark.parametrize("case", range(len(PAIRS)))
@given(data=st.data())
def test_a_damaged_record_of_an_internal_topic_is_read_or_refused(case: int, data: st.DataObject) -> None:
    decode, (key, value) = PAIRS[case]
    decode(key, value) if case < len(PAIRS) - 1 else None
    strange = st.sampled_from(
        [DEEP, NUMBER, b"", b"null", b"{}", b"[]", b"\xff\xfe", json.dumps({"version": 1}).encode()]
    )
    damaged_key = data.draw(st.one_of(st.just(key), damaged([key]), strange))
    damaged_value = data.draw(st.one_of(damaged([value]), strange))
    with contextlib.suppress(WireFormatError):
        decode(damaged_key, damaged_value)


# --------------------------------------------------------------------------------------------------- brokers


def compact(text: bytes) -> bytes:
    return bytes((len(text) + 1,)) + text


def plain(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text


def metadata_reader(version: int) -> Callable[[bytes], object]:
    return lambda data: metadata._read(data, 0, version)


def metadata_response(version: int) -> bytes:
    """A broker, and a topic of one partition with one replica."""
    text, one, tags = (compact, b"\x02", b"\0") if version >= 9 else (plain, struct.pack(">i", 1), b"")
    nodes = one + struct.pack(">i", 1)
    pieces = [
        struct.pack(">i", 0),
        one,
        struct.pack(">i", 1),
        text(b"h"),
        struct.pack(">i", 9092),
        text(b"r"),
    ]
    pieces += [tags, text(b"c"), struct.pack(">i", 1), one, struct.pack(">h", 0), text(b"t")]
    pieces += [bytes(17 if version >= 10 else 1), one, struct.pack(">hii", 0, 0, 1)]
    pieces += [
        struct.pack(">i", 3) if version >= 7 else b"",
        nodes,
        nodes,
        nodes if version >= 5 else b"",
        tags,
    ]
    return b"".join([*pieces, struct.pack(">i", 0) if version >= 8 else b"", tags])


def fetch_reader(version: int) -> Callable[[bytes], object]:
    return lambda data: fetch_wire._read(data, 0, version)


def fetch_response(version: int) -> bytes:
    """One partition with an aborted transaction and some records."""
    pieces = [struct.pack(">i", 0), struct.pack(">hi", 0, 0) if version >= 7 else b""]
    pieces += [struct.pack(">i", 1), plain(b"t"), struct.pack(">i", 1)]
    if version >= 5:
        pieces.append(struct.pack(">ihqqqi", 0, 0, 9, 9, 0, 1))
    else:
        pieces.append(struct.pack(">ihqqi", 0, 0, 9, 9, 1))
    pieces += [struct.pack(">qq", 7, 3), struct.pack(">i", -1) if version >= 11 else b""]
    return b"".join([*pieces, struct.pack(">i", 4), b"data"])


RESPONSES: list[tuple[Callable[[bytes], object], bytes]] = [
    (fetch_reader(version), fetch_response(version)) for version in (4, 5, 7, 11)
]
RESPONSES += [
    (
        partial(lambda topics, data: fetch_wire._read_flexible(data, 0, topics), topics),
        bytes(10)
        + (b"\x02" + name + b"\x02")
        + (struct.pack(">ihqqq", 0, 0, 9, 9, 0) + b"\x02" + struct.pack(">qq", 7, 3) + b"\0")
        + (b"\xff" * 4 + b"\x05data" + b"\0" + b"\0"),
    )
    for topics, name in ((None, compact(b"t")), ({bytes(16): "t"}, bytes(16)))
]
RESPONSES += [(metadata_reader(version), metadata_response(version)) for version in (4, 7, 12)]
RESPONSES += [
    (
        lambda data: produce_wire._read_produce_response(data, 0, 7),
        struct.pack(">i", 1) + plain(b"t") + struct.pack(">iihqqq", 1, 0, 0, 5, -1, 0) + struct.pack(">i", 0),
    ),
    (
        lambda data: produce_wire._read_flexible_produce_response(data, 0),
        b"\x02"
        + compact(b"t")
        + b"\x02"
        + struct.pack(">ihqqq", 0, 0, 5, -1, 0)
        + b"\x01\0\0\0"
        + b"\0\0\0\0\0",
    ),
    (
        lambda data: transaction_wire._read_added(data, 0, 0),
        struct.pack(">ii", 0, 1) + plain(b"t") + struct.pack(">iih", 1, 0, 0),
    ),
    (lambda data: transaction_wire._read_end(data, 0, 5), struct.pack(">ihqh", 0, 0, 7, 1) + b"\0"),
    (
        lambda data: read_producers(data, 0, 0),
        struct.pack(">i", 0)
        + b"\x02"
        + compact(b"t")
        + b"\x02"
        + struct.pack(">ih", 0, 0)
        + b"\0"
        + b"\x01\0\0\0",
    ),
    (
        lambda data: read_epoch_ends(data, 0, 2),
        struct.pack(">ii", 0, 1) + plain(b"t") + struct.pack(">ihiiq", 1, 0, 0, 3, 9),
    ),
    (
        lambda data: broker_features._read(data, 0, 3),
        struct.pack(">h", 0) + b"\x02" + struct.pack(">hhh", 0, 0, 9) + b"\0" + struct.pack(">i", 0) + b"\0",
    ),
    (
        lambda data: group_requests._read_offsets(data, 0, 8),
        struct.pack(">i", 0) + b"\x02" + compact(b"g") + b"\x01" + struct.pack(">h", 0) + b"\0\0",
    ),
    (
        lambda data: group_requests._read_coordinators(data, 0, 4),
        struct.pack(">i", 0)
        + b"\x02"
        + compact(b"g")
        + struct.pack(">i", 1)
        + compact(b"h")
        + struct.pack(">ih", 9092, 0)
        + b"\x01\0\0",
    ),
]


@pytest.mark.parametrize("case", range(len(RESPONSES)))
@given(data=st.data())
def test_a_damaged_response_is_read_or_ends_the_connection(case: int, data: st.DataObject) -> None:
    """What `data_connection` takes for a response that cannot be read."""
    read, response = RESPONSES[case]
    read(response)
    with contextlib.suppress(struct.error, ValueError, IndexError):
        read(data.draw(damaged([response])))


# ------------------------------------------------------------------------------------------------- key stores

KEY_STORE = jks_keystore(b"\x30\x03\x02\x01\x00", [b"\x30\x00"], "store-password", "key-password")


@given(damaged([KEY_STORE]), st.sampled_from([None, "store-password"]))
def test_a_damaged_key_store_is_read_or_refused(data: bytes, password: str | None) -> None:
    with contextlib.suppress(JksFormatError, JksPasswordError):
        for key in read_jks(data, password).keys:
            unprotect(key, "key-password")
