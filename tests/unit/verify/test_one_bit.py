"""One flipped bit, one swapped, lost, doubled or foreign record among many is found through every codec,
where batches are compared unopened and where they are cut into records."""

from collections.abc import Callable, Sequence
from contextlib import suppress

import pytest

from twinlog.batches import HEADER_BYTES, Codec, DecodedRecord, iter_batches
from twinlog.batches.header import CRC_COVERS_FROM
from twinlog.comparison.model import DifferenceKind
from twinlog.errors import WireFormatError
from twinlog.testing.mirror_logs import MemoryLog, prove

NOW_MS = 1_700_000_000_000
COUNT, IN_BATCH, AT = 1_000, 50, 603
Content = tuple[int, bytes | None, bytes | None, tuple[tuple[bytes, bytes | None], ...]]
Found = tuple[DifferenceKind, int | None, int | None, int, tuple[str, ...]]
Damage = Callable[[list[Content]], Sequence[Content]]

RECORDS: list[Content] = [
    (
        NOW_MS + number,
        b"key-%d" % (number % 97),
        b"value-%d" % number * 3,
        ((b"trace", b"%016x" % number), (b"none", None)),
    )
    for number in range(COUNT)
]


def flipped(field: bytes | None) -> bytes:
    assert field
    return field[:-1] + bytes((field[-1] ^ 1,))


def changed(change: Callable[[Content], Content]) -> Damage:
    return lambda records: [*records[:AT], change(records[AT]), *records[AT + 1 :]]


def flip_header(record: Content) -> Content:
    at, key, value, ((name, field), last) = record
    return at, key, value, ((name, flipped(field)), last)


def flip_header_name(record: Content) -> Content:
    at, key, value, ((name, field), last) = record
    return at, key, value, ((flipped(name), field), last)


STRANGER: Content = (NOW_MS, b"who", b"was this", ())
DAMAGES: dict[str, tuple[Damage, Found]] = {
    "header": (changed(flip_header), (DifferenceKind.CHANGED, AT, AT, 1, ("headers",))),
    "header name": (changed(flip_header_name), (DifferenceKind.CHANGED, AT, AT, 1, ("headers",))),
    "header null": (
        changed(lambda each: (*each[:3], (each[3][0], (b"none", b"")))),
        (DifferenceKind.CHANGED, AT, AT, 1, ("headers",)),
    ),
    "key": (
        changed(lambda each: (each[0], flipped(each[1]), *each[2:])),
        (DifferenceKind.CHANGED, AT, AT, 1, ("key",)),
    ),
    "key null": (
        changed(lambda each: (each[0], None, *each[2:])),
        (DifferenceKind.CHANGED, AT, AT, 1, ("key",)),
    ),
    "value": (
        changed(lambda each: (*each[:2], flipped(each[2]), each[3])),
        (DifferenceKind.CHANGED, AT, AT, 1, ("value",)),
    ),
    "value null": (
        changed(lambda each: (*each[:2], None, each[3])),
        (DifferenceKind.CHANGED, AT, AT, 1, ("value",)),
    ),
    "timestamp": (
        changed(lambda each: (each[0] + 1, *each[1:])),
        (DifferenceKind.CHANGED, AT, AT, 1, ("timestamp",)),
    ),
    "lost": (lambda all_: [*all_[:AT], *all_[AT + 1 :]], (DifferenceKind.MISSING, AT, AT, 1, ())),
    "neighbours": (
        lambda all_: [*all_[:AT], all_[AT + 1], all_[AT], *all_[AT + 2 :]],
        (DifferenceKind.ORDER, AT, AT + 1, 1, ()),
    ),
    "batch twice": (
        lambda all_: [*all_[:650], *all_[600:650], *all_[650:]],
        (DifferenceKind.DUPLICATE, 600, 650, 50, ()),
    ),
    "first once more at the end": (
        lambda all_: [*all_, all_[0]],
        (DifferenceKind.DUPLICATE, 0, COUNT, 1, ()),
    ),
    "foreign first": (lambda all_: [STRANGER, *all_], (DifferenceKind.FOREIGN, 0, 0, 1, ())),
    "foreign last": (lambda all_: [*all_, STRANGER], (DifferenceKind.FOREIGN, None, COUNT, 1, ())),
}


def log_of(contents: Sequence[Content], codec: Codec, in_batch: int = IN_BATCH) -> MemoryLog:
    records = [DecodedRecord(offset, *content) for offset, content in enumerate(contents)]
    return MemoryLog.of(records, sizes=[in_batch], codec=codec)


@pytest.mark.parametrize("opened", [False, True], ids=["unopened", "opened"])
@pytest.mark.parametrize("codec", list(Codec))
def test_one_wrong_record_among_many_is_named_and_no_other(codec: Codec, opened: bool) -> None:
    source = log_of(RECORDS, codec)
    for name, (damage, expected) in DAMAGES.items():
        target = log_of(damage([*RECORDS]), codec, 37 if opened else IN_BATCH)
        proof = prove(source, target)
        found = [
            (each.kind, each.source_offset, each.target_offset, each.count, each.changed)
            for each in proof.differences
        ]
        assert found == [expected], name
        assert proof.not_compared == []
        if opened:
            assert proof.unopened_records < COUNT // 10
    unopened = prove(source, log_of(RECORDS, codec)).unopened_records
    assert unopened == COUNT
    # Only the batch that holds the record is opened.
    one_bit = prove(source, log_of(DAMAGES["header"][0]([*RECORDS]), codec))
    assert one_bit.unopened_records == COUNT - IN_BATCH


def test_one_flipped_bit_does_not_cost_a_second_reading_of_the_whole_source() -> None:
    many = [RECORDS[number % COUNT] for number in range(40 * COUNT)]
    many = [(NOW_MS + number, *record[1:]) for number, record in enumerate(many)]
    source, target = log_of(many, Codec.LZ4, 2_000), log_of(changed(flip_header)(many), Codec.LZ4, 2_000)
    proof = prove(source, target)
    assert [(each.kind, each.source_offset) for each in proof.differences] == [(DifferenceKind.CHANGED, AT)]
    assert source.reads < 1.5 * target.reads


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_batch_that_consumers_of_the_copy_cannot_read_is_not_equal(codec: Codec) -> None:
    """One bit of its header or checksum is wrong, on the target's disk: its records are as they were."""
    source, target = log_of(RECORDS[:200], codec), log_of(RECORDS[:200], codec)
    whole = target.batches[2]
    for place in range(CRC_COVERS_FROM - 4, HEADER_BYTES):
        damaged = bytearray(whole.data)
        damaged[place] ^= 1
        try:
            (target.batches[2],) = iter_batches(bytes(damaged))
        except WireFormatError:
            continue  # the reader itself refuses it
        with suppress(WireFormatError):
            assert prove(source, target).differences, f"byte {place}"
