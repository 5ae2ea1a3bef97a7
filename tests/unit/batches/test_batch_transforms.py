"""What `prepare` makes of a fetch whose records are transformed."""

from collections.abc import Iterator, Sequence

import pytest

from twinlog.batches import (
    Codec,
    CopyPolicy,
    DecodedRecord,
    LaneReason,
    OffsetRun,
    OutgoingBatch,
    TargetTopicLimits,
    decode_batch,
    prepare,
    read_batches,
)
from twinlog.batches.bodies import OpenRecord, decode_record
from twinlog.batches.outgoing import Seal, sealed
from twinlog.testing.source_batches import source_batch, transaction_marker
from twinlog.transforms import chain_from_config

_DROPS_TOMBSTONES = chain_from_config(
    {
        "transforms": "drop,mark",
        "transforms.drop.type": "Filter",
        "transforms.drop.predicate": "deleted",
        "predicates": "deleted",
        "predicates.deleted.type": "RecordIsTombstone",
        "transforms.mark.type": "InsertHeader",
        "transforms.mark.header": "from",
        "transforms.mark.value.literal": "A",
    }
).bind("A.orders")
_POLICY = CopyPolicy(transform=_DROPS_TOMBSTONES.apply)
_MARKED = ((b"from", b"A"),)


def _record(offset: int, value: bytes | None) -> DecodedRecord:
    return DecodedRecord(offset, 1_700_000_000_000 + offset, b"k", value, ())


def _decoded(batches: tuple[OutgoingBatch, ...]) -> list[DecodedRecord]:
    seal = Seal(1, 0, 0, transactional=False)
    return [record for each in batches for record in decode_batch(read_batches(sealed(each, seal))[0])]


def _batch_of_five(codec: Codec = Codec.NONE) -> bytes:
    return source_batch([_record(i, None if i % 2 else b"v%d" % i) for i in range(5)], codec=codec)


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("backlog", [False, True])
def test_what_passes_is_changed_and_keeps_its_source_offset(codec: Codec, backlog: bool) -> None:
    prepared = prepare(_batch_of_five(codec) * 1, wanted_offset=1, policy=_POLICY, backlog=backlog)
    assert (prepared.next_offset, prepared.fault, prepared.dropped_records) == (5, None, 2)
    assert [run for each in prepared.batches for run in each.runs] == [OffsetRun(2, 1), OffsetRun(4, 1)]
    assert [(each.value, each.headers) for each in _decoded(prepared.batches)] == [
        (b"v2", _MARKED), (b"v4", _MARKED),
    ]  # fmt: skip
    assert {each.codec for each in prepared.batches} == {codec}


@pytest.mark.parametrize("backlog", [False, True])
@pytest.mark.parametrize("keeps_offsets", [False, True])
def test_the_position_passes_records_that_are_all_dropped(backlog: bool, keeps_offsets: bool) -> None:
    policy = CopyPolicy(transform=_DROPS_TOMBSTONES.apply, keeps_offsets=keeps_offsets)
    data = b"".join(source_batch([_record(i, None)]) for i in range(3)) + transaction_marker(
        3, 9, commit=True
    )
    prepared = prepare(data, wanted_offset=0, policy=policy, backlog=backlog)
    assert (prepared.batches, prepared.next_offset, prepared.fault) == ((), 4, None)
    assert prepared.dropped_records == 3


@pytest.mark.parametrize("backlog", [False, True])
def test_what_lies_behind_a_fault_does_not_count_as_dropped(backlog: bool) -> None:
    """It is fetched again."""
    policy = CopyPolicy(transform=_DROPS_TOMBSTONES.apply, target=TargetTopicLimits(max_message_bytes=140))
    values = (None, b"v"), (bytes(200), None), (None, b"v")
    data = b"".join(
        source_batch([_record(2 * n + i, value) for i, value in enumerate(each)])
        for n, each in enumerate(values)
    )
    prepared = prepare(data, wanted_offset=0, policy=policy, backlog=backlog)
    assert (prepared.next_offset, prepared.dropped_records) == (2, 1)


def test_a_record_that_grows_above_the_limit_stops_the_partition_at_its_offset() -> None:
    policy = CopyPolicy(transform=_DROPS_TOMBSTONES.apply, target=TargetTopicLimits(max_message_bytes=140))
    data = source_batch([_record(0, b"small"), _record(1, bytes(72))])
    prepared = prepare(data, wanted_offset=0, policy=policy)
    assert prepared.next_offset == 1
    assert prepared.fault is not None
    assert (prepared.fault.reason, prepared.fault.offset) == ("RECORD_TOO_LARGE", 1)


def test_the_lane_says_that_records_were_transformed() -> None:
    prepared = prepare(_batch_of_five(), wanted_offset=0, policy=_POLICY)
    assert {each.reason for each in prepared.batches} == {LaneReason.TRANSFORMED}


def _by_value(records: Sequence[OpenRecord]) -> Iterator[tuple[str, OpenRecord]]:
    """The route is the first letter of the value; `-` for the copy."""
    for record in records:
        value = decode_record(record).value
        assert value is not None
        yield value[:1].decode().strip("-"), record


@pytest.mark.parametrize(
    ("large", "passed", "routed"), [(2, [b"-0"], [b"a1"]), (4, [b"-0"], [b"a1", b"b2", b"a3"])]
)
def test_nothing_behind_a_record_that_is_too_large_is_sent_by_any_route(
    large: int, passed: list[bytes], routed: list[bytes]
) -> None:
    values = [b"-0", b"a1", b"b2", b"a3", b"-4", b"a5"]
    values[large] += bytes(1000)
    policy = CopyPolicy(routes=_by_value, target=TargetTopicLimits(max_message_bytes=500))
    prepared = prepare(
        source_batch([_record(i, value) for i, value in enumerate(values)]), wanted_offset=0, policy=policy
    )
    assert prepared.fault is not None
    assert (prepared.next_offset, prepared.fault.offset) == (large, large)
    assert [each.value for each in _decoded(prepared.batches)] == passed
    assert sorted(each.value or b"" for _, batch in prepared.routed for each in _decoded((batch,))) == sorted(
        routed
    )
