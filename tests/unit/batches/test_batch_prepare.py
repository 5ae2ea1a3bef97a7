"""What `prepare` makes of a fetch: order, positions, grouping and faults."""

import pytest

from twinlog.batches import (
    AbortedTransaction,
    Codec,
    CopyPolicy,
    DecodedRecord,
    Lane,
    LaneReason,
    OffsetRun,
    OutgoingBatch,
    TargetTopicLimits,
    decode_batch,
    prepare,
    read_batches,
)
from twinlog.batches.outgoing import Seal, sealed
from twinlog.batches.small_batches import FEW_RECORDS
from twinlog.testing.source_batches import source_batch, transaction_marker

_SEAL = Seal(1, 0, 0, transactional=False)
_POLICY = CopyPolicy()


def _records(first_offset: int, count: int, value_bytes: int = 10) -> list[DecodedRecord]:
    return [
        DecodedRecord(first_offset + i, 1_700_000_000_000, b"k", bytes(value_bytes), ()) for i in range(count)
    ]


def _small_batches(count: int, codec: Codec = Codec.NONE) -> bytes:
    return b"".join(source_batch(_records(i, 1), codec=codec) for i in range(count))


def _values(outgoing: OutgoingBatch) -> list[bytes | None]:
    return [record.value for record in decode_batch(read_batches(sealed(outgoing, _SEAL))[0])]


def test_nothing_fetched_is_nothing_to_do() -> None:
    prepared = prepare(b"", wanted_offset=5, policy=_POLICY)
    assert (prepared.batches, prepared.next_offset, prepared.fault) == ((), 5, None)


def test_a_backlog_of_small_batches_becomes_one() -> None:
    prepared = prepare(_small_batches(50), wanted_offset=0, policy=_POLICY, backlog=True)
    (outgoing,) = prepared.batches
    assert outgoing.record_count == 50
    assert outgoing.runs == (OffsetRun(0, 50),)
    assert outgoing.reason is LaneReason.SMALL_BATCHES


def test_without_a_backlog_small_batches_go_as_they_are() -> None:
    prepared = prepare(_small_batches(50), wanted_offset=0, policy=_POLICY, backlog=False)
    assert [outgoing.lane for outgoing in prepared.batches] == [Lane.RAW] * 50


def test_one_small_batch_is_not_worth_opening() -> None:
    prepared = prepare(_small_batches(1), wanted_offset=0, policy=_POLICY, backlog=True)
    assert [outgoing.lane for outgoing in prepared.batches] == [Lane.RAW]


def test_small_batches_of_many_records_stay_closed() -> None:
    """To open a record costs about a fiftieth of sending a batch."""
    many, few = FEW_RECORDS, FEW_RECORDS - 1
    for count, lane in ((many, Lane.RAW), (few, Lane.RECODE)):
        data = b"".join(source_batch(_records(i * count, count)) for i in range(3))
        prepared = prepare(data, wanted_offset=0, policy=_POLICY, backlog=True)
        assert {outgoing.lane for outgoing in prepared.batches} == {lane}


def test_zero_switches_coalescing_off() -> None:
    policy = CopyPolicy(coalesce_below_bytes=0)
    prepared = prepare(_small_batches(5), wanted_offset=0, policy=policy, backlog=True)
    assert len(prepared.batches) == 5


def test_groups_end_at_the_size_aimed_at() -> None:
    policy = CopyPolicy(coalesced_bytes=1000)
    data = b"".join(source_batch(_records(i, 1, value_bytes=200)) for i in range(20))
    prepared = prepare(data, wanted_offset=0, policy=policy, backlog=True)
    assert [outgoing.record_count for outgoing in prepared.batches] == [4] * 5


@pytest.mark.parametrize(("records", "value_bytes", "packed"), [(1, 1000, 1), (2, 1000, 1), (40, 100, 2)])
def test_what_a_fetch_brings_of_a_partition_fits_one_batch_or_fills_it(
    records: int, value_bytes: int, packed: int
) -> None:
    data, count = b"", 0
    while len(data) < 1 << 20:
        data += source_batch(_records(count, records, value_bytes=value_bytes))
        count += records
    prepared = prepare(data[: 1 << 20], wanted_offset=0, policy=_POLICY, backlog=True)
    assert len(prepared.batches) == packed
    assert 900_000 < prepared.batches[0].size_bytes <= _POLICY.target.max_message_bytes


def test_a_large_batch_among_small_ones_goes_raw_and_in_its_place() -> None:
    large = source_batch(_records(2, 1, value_bytes=100_000))
    data = _small_batches(2) + large + b"".join(source_batch(_records(3 + i, 1)) for i in range(40))
    prepared = prepare(data, wanted_offset=0, policy=_POLICY, backlog=True)
    assert [outgoing.lane for outgoing in prepared.batches] == [Lane.RECODE, Lane.RAW, Lane.RECODE]
    assert [outgoing.next_source_offset for outgoing in prepared.batches] == [2, 3, 43]


def test_coalesced_batches_keep_the_producers_codec() -> None:
    prepared = prepare(_small_batches(9, Codec.ZSTD), wanted_offset=0, policy=_POLICY, backlog=True)
    assert [outgoing.codec for outgoing in prepared.batches] == [Codec.ZSTD]


def test_a_group_swallows_markers_and_passes_them() -> None:
    data = (
        source_batch(_records(0, 2), producer_id=7, transactional=True)
        + transaction_marker(2, 7, commit=True)
        + source_batch(_records(3, 1))
        + transaction_marker(4, 9, commit=True)
    )
    prepared = prepare(data, wanted_offset=0, policy=_POLICY, backlog=True)
    (outgoing,) = prepared.batches
    assert outgoing.runs == (OffsetRun(0, 2), OffsetRun(3, 1))
    assert not outgoing.is_dense
    assert outgoing.next_source_offset == prepared.next_offset == 5
    assert [outgoing.target_offset(source, 70) for source in range(5)] == [70, 71, None, 72, None]


def test_dropped_batches_move_the_position_alone() -> None:
    data = source_batch(_records(0, 2), producer_id=7, transactional=True) + transaction_marker(
        2, 7, commit=False
    )
    prepared = prepare(data, wanted_offset=0, policy=_POLICY, aborted=[AbortedTransaction(7, 0)])
    assert prepared.batches == ()
    assert prepared.next_offset == 3


def test_read_uncommitted_copies_aborted_records() -> None:
    data = source_batch(_records(0, 2), producer_id=7, transactional=True)
    policy = CopyPolicy(read_committed=False)
    prepared = prepare(data, wanted_offset=0, policy=policy, aborted=[AbortedTransaction(7, 0)])
    assert prepared.record_count == 2


def test_a_batch_whose_last_records_are_gone_passes_them() -> None:
    data = source_batch(_records(10, 3), last_offset=19)
    prepared = prepare(data, wanted_offset=10, policy=_POLICY)
    assert prepared.next_offset == 20
    assert prepared.batches[0].next_source_offset == 20
    assert prepared.batches[0].end == 13


def test_a_batch_with_nothing_left_after_the_position_is_passed() -> None:
    data = source_batch(_records(10, 3), last_offset=19)
    prepared = prepare(data, wanted_offset=15, policy=_POLICY)
    assert (prepared.batches, prepared.next_offset) == ((), 20)


def test_a_batch_above_the_limit_is_split_and_one_record_above_it_is_a_fault() -> None:
    limit = 1000
    data = source_batch(_records(0, 10, value_bytes=300)) + source_batch(_records(10, 1, value_bytes=2000))
    policy = CopyPolicy(target=TargetTopicLimits(max_message_bytes=limit))
    prepared = prepare(data, wanted_offset=0, policy=policy)
    assert sum(outgoing.record_count for outgoing in prepared.batches) == 10
    assert max(outgoing.size_bytes for outgoing in prepared.batches) <= limit
    assert prepared.next_offset == 10
    fault = prepared.fault
    assert fault is not None
    assert (fault.reason, fault.offset, fault.limit_bytes) == ("RECORD_TOO_LARGE", 10, limit)
    assert fault.size_bytes is not None
    assert fault.size_bytes > 2000
    assert "offset 10" in fault.message


def test_a_record_too_large_in_the_middle_of_a_group_keeps_what_is_before_it() -> None:
    sizes = [10, 10, 2000, 10]
    data = b"".join(source_batch(_records(i, 1, value_bytes=size)) for i, size in enumerate(sizes))
    policy = CopyPolicy(target=TargetTopicLimits(max_message_bytes=1000))
    prepared = prepare(data, wanted_offset=0, policy=policy, backlog=True)
    assert [value for outgoing in prepared.batches for value in _values(outgoing)] == [bytes(10)] * 2
    assert prepared.next_offset == 2
    assert prepared.fault is not None
    assert prepared.fault.offset == 2


def test_compression_may_save_a_record_from_the_limit() -> None:
    data = source_batch(_records(0, 1, value_bytes=50_000))
    policy = CopyPolicy(target=TargetTopicLimits(max_message_bytes=1000, codec=Codec.ZSTD))
    prepared = prepare(data, wanted_offset=0, policy=policy)
    assert prepared.fault is None
    assert prepared.batches[0].size_bytes < 1000


@pytest.mark.parametrize("backlog", [False, True])
@pytest.mark.parametrize("codec", Codec)
def test_damage_stops_before_the_damaged_batch(codec: Codec, backlog: bool) -> None:
    data = bytearray(b"".join(source_batch(_records(i * 2, 2), codec=codec) for i in range(3)))
    data[-2] ^= 0x40
    prepared = prepare(data, wanted_offset=0, policy=_POLICY, backlog=backlog)
    assert prepared.record_count == 4
    assert prepared.next_offset == 4
    assert prepared.fault is not None
    assert (prepared.fault.reason, prepared.fault.offset) == ("CORRUPT_BATCH", 4)


@pytest.mark.parametrize("backlog", [False, True])
@pytest.mark.parametrize("bit", [0x20, 0x30], ids=["control", "transactional control"])
def test_a_false_bit_does_not_make_data_vanish_as_a_marker(bit: int, backlog: bool) -> None:
    data = bytearray(source_batch(_records(0, 2)) + source_batch(_records(2, 2)))
    data[22] ^= bit
    prepared = prepare(data, wanted_offset=0, policy=_POLICY, backlog=backlog)
    assert (prepared.next_offset, prepared.batches) == (0, ())
    assert prepared.fault is not None
    assert prepared.fault.reason == "CORRUPT_BATCH"


def test_without_check_crc_the_raw_lane_does_not_look() -> None:
    data = bytearray(source_batch(_records(0, 2)))
    data[-2] ^= 0x40
    prepared = prepare(data, wanted_offset=0, policy=CopyPolicy(check_crc=False))
    assert prepared.fault is None
    assert prepared.record_count == 2


def test_offsets_that_go_back_are_damage() -> None:
    data = source_batch(_records(5, 2)) + source_batch(_records(6, 2))
    prepared = prepare(data, wanted_offset=5, policy=_POLICY)
    assert prepared.next_offset == 7
    assert prepared.fault is not None
    assert "offset 6 after offset 6" in prepared.fault.message


def test_damaged_lengths_keep_what_came_before() -> None:
    data = bytearray(source_batch(_records(0, 2)) * 1 + source_batch(_records(2, 2)))
    data[len(data) // 2 + 8 : len(data) // 2 + 12] = b"\xff" * 4
    prepared = prepare(data, wanted_offset=0, policy=_POLICY)
    assert prepared.next_offset == 2
    assert prepared.fault is not None
    assert prepared.fault.reason == "CORRUPT_BATCH"


def test_a_thousand_headers_survive_both_lanes() -> None:
    headers = tuple((b"h%d \xff\xfe" % i, None if i % 3 else b"") for i in range(1000))
    record = DecodedRecord(0, 1, b"", None, headers)
    data = source_batch([record]) + source_batch([record._replace(offset=1)])
    for backlog in (False, True):
        prepared = prepare(data, wanted_offset=0, policy=_POLICY, backlog=backlog)
        copies = [
            copy
            for outgoing in prepared.batches
            for copy in decode_batch(read_batches(sealed(outgoing, _SEAL))[0])
        ]
        assert [copy.headers for copy in copies] == [headers, headers]


@pytest.mark.parametrize("backlog", [False, True])
def test_leader_epochs_are_told_once_for_each_change_also_where_batches_are_packed(backlog: bool) -> None:
    data = b""
    for offset, epoch in enumerate([3] * 5 + [4] * 5 + [6] * 2):
        batch = source_batch(_records(offset, 1))
        # Outside the checksum: the broker writes it.
        data += batch[:12] + epoch.to_bytes(4) + batch[16:]
    prepared = prepare(data, wanted_offset=2, policy=_POLICY, backlog=backlog)
    assert prepared.next_offset == 12
    assert sum(batch.record_count for batch in prepared.batches) == 10
    assert [each for each in prepared.leader_epochs if each.offset >= 2][-2:] == [(4, 5), (6, 10)]
    assert [each.epoch for each in prepared.leader_epochs] == [3, 4, 6]


def test_the_leader_epoch_of_what_a_fault_holds_back_is_not_told() -> None:
    good, bad = source_batch(_records(0, 2)), source_batch(_records(2, 2))
    bad = bad[:12] + (9).to_bytes(4) + bad[16:-1] + bytes([bad[-1] ^ 1])
    prepared = prepare(good + bad, wanted_offset=0, policy=_POLICY)
    assert prepared.fault is not None
    assert [each.epoch for each in prepared.leader_epochs] == [5]


@pytest.mark.parametrize("small", [False, True])
def test_no_more_is_made_of_compressed_bytes_than_there_is_room_for(small: bool) -> None:
    """A target that stores them uncompressed may need a hundred times as much memory."""
    count, per_batch = (100, 1) if small else (4, 200)
    batches = [source_batch(_records(i * per_batch, per_batch, 1000), codec=Codec.ZSTD) for i in range(count)]
    data = b"".join(batches)
    policy = CopyPolicy(
        target=TargetTopicLimits(codec=Codec.NONE), coalesced_bytes=10_000, coalesce_below_bytes=64 << 10
    )
    whole = prepare(data, wanted_offset=0, policy=policy, backlog=small)
    assert whole.size_bytes > 10 * len(data) or small
    assert not whole.is_cut
    at, taken = 0, list[OutgoingBatch]()
    while at < whole.next_offset:
        left = b"".join(batches[at // per_batch :])
        room_bytes = 30_000
        part = prepare(left, wanted_offset=at, policy=policy, backlog=small, room_bytes=room_bytes)
        largest = max(each.size_bytes for each in part.batches)
        assert part.size_bytes <= max(room_bytes, len(left)) + largest
        assert part.is_cut or part.next_offset == whole.next_offset
        at = part.next_offset
        taken += part.batches
    assert sum(each.record_count for each in taken) == whole.record_count
    assert [value for each in taken for value in _values(each)] == [
        value for each in whole.batches for value in _values(each)
    ]


def test_what_is_copied_as_it_is_needs_no_more_room_than_it_has() -> None:
    data = b"".join(source_batch(_records(i * 10, 10)) for i in range(20))
    prepared = prepare(data, wanted_offset=0, policy=_POLICY, room_bytes=-5)
    assert (prepared.next_offset, prepared.is_cut) == (200, False)
