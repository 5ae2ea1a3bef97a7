"""Small batches that wait for one another become one, and nothing else changes."""

from hypothesis import given
from hypothesis import strategies as st

from twinlog.batches import Codec, NewRecord, OutgoingBatch, TargetTopicLimits, build_batch
from twinlog.batches.codec import decompress
from twinlog.batches.joining import JOINED_BELOW_BYTES, JOINED_BYTES, join
from twinlog.batches.outgoing import OffsetRun
from twinlog.batches.records import walk_records

LIMITS = TargetTopicLimits(max_message_bytes=1 << 20)
CODECS = st.sampled_from(list(Codec))
RECORDS = st.lists(
    st.builds(
        NewRecord,
        st.none() | st.binary(max_size=5),
        st.none() | st.binary(max_size=40),
        st.integers(0, 2**40),
    ),
    min_size=1,
    max_size=4,
)


def batch_at(first: int, records: list[NewRecord], codec: Codec, hole: int = 0) -> OutgoingBatch:
    """A batch with source offsets from `first` on, and `hole` missing offsets behind it."""
    return build_batch(records, codec=codec)._replace(
        runs=(OffsetRun(first, len(records)),), next_source_offset=first + len(records) + hole
    )


def contents(batches: list[OutgoingBatch]) -> list[tuple[int, int, bytes]]:
    """Source offset, timestamp and body of every record."""
    found = []
    for batch in batches:
        records: list[tuple[int, int, bytes]] = []
        data = decompress(batch.codec, batch.records, 1 << 20)
        assert not walk_records(data, 0, batch.base_timestamp_ms, batch.record_count, records.append)
        assert [delta for delta, _, _ in records] == list(range(batch.record_count))
        offsets = [first + at for first, count in batch.runs for at in range(count)]
        found += [(offset, at, body) for offset, (_, at, body) in zip(offsets, records, strict=True)]
    return found


@given(st.lists(st.tuples(RECORDS, CODECS, st.integers(0, 2)), min_size=1, max_size=8))
def test_joined_batches_hold_the_same_records_in_the_same_order(
    parts: list[tuple[list[NewRecord], Codec, int]],
) -> None:
    batches, at = [], 5
    for records, codec, hole in parts:
        batches.append(batch_at(at, records, codec, hole))
        at = batches[-1].next_source_offset
    joined = list(join(batches, target=LIMITS))
    assert contents(joined) == contents(batches)
    assert joined[-1].next_source_offset == at
    assert len(joined) <= len(batches)


def test_neighbours_of_one_codec_become_one() -> None:
    batches = [batch_at(at, [NewRecord(None, b"v", at)], Codec.NONE) for at in range(19)]
    (joined,) = join(batches, target=LIMITS)
    assert joined.runs == (OffsetRun(0, 19),)
    assert (joined.max_timestamp_ms, joined.next_source_offset) == (18, 19)


def test_large_batches_and_too_many_bytes_stay_apart() -> None:
    large = batch_at(0, [NewRecord(None, bytes(JOINED_BELOW_BYTES), 0)], Codec.NONE)
    small = batch_at(1, [NewRecord(None, b"v", 0)], Codec.NONE)
    assert list(join([large, small], target=LIMITS)) == [large, small]
    halves = [
        batch_at(at, [NewRecord(None, bytes(JOINED_BELOW_BYTES // 2), 0)], Codec.NONE) for at in range(9)
    ]
    assert [batch.record_count for batch in join(halves, target=LIMITS)] == [7, 2]
    assert sum(batch.size_bytes for batch in halves[:7]) <= JOINED_BYTES


def test_what_the_target_would_not_take_as_one_is_split_again() -> None:
    batches = [batch_at(at, [NewRecord(None, bytes(300), 0)], Codec.NONE) for at in range(4)]
    joined = join(batches, target=TargetTopicLimits(max_message_bytes=800))
    assert [batch.record_count for batch in joined] == [2, 2]


def test_bytes_that_are_no_records_are_left_alone() -> None:
    good = batch_at(0, [NewRecord(None, b"v", 0)], Codec.NONE)
    bad = good._replace(records=b"\xff" * 9, runs=(OffsetRun(1, 1),))
    assert list(join([good, bad], target=LIMITS)) == [good, bad]
