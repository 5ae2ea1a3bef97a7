"""A flow that is held behind copies what is old enough, in order; a finite copy ends at its very offsets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.batches import Codec, DecodedRecord, iter_batches
from twinlog.batches.header import crc_is_valid
from twinlog.batches.records import decode_batch
from twinlog.batches.transformed import head_before
from twinlog.config.flow.source_settings import parse_until, until_json
from twinlog.errors import ConfigError, WireFormatError
from twinlog.model import TopicPartition
from twinlog.testing.source_batches import old_message, old_wrapper, source_batch
from twinlog_source.config import source_flows
from twinlog_source.driver.stream.task_settings import TaskSettings
from twinlog_source.reasons import PartitionReason
from twinlog_source.task.reading.bounds import FOR_EVER, Horizon
from twinlog_source.task.settings import horizon_of
from unit.cases import about
from unit.config.config_files import load_more

NOW_MS = 1_700_000_000_000
ORDERS = TopicPartition("orders", 0)


def record(offset: int, age_seconds: float = 0.0) -> DecodedRecord:
    at_ms = NOW_MS - int(age_seconds * 1000)
    return DecodedRecord(offset, at_ms, b"k", b"v%d" % offset, ((b"h", None),))


def offsets(records: bytes | memoryview) -> list[int]:
    return [each.offset for batch in iter_batches(records) for each in decode_batch(batch)]


def test_without_a_delay_and_an_end_everything_may_be_copied() -> None:
    data = source_batch([record(0)])
    assert Horizon().cut(ORDERS, data, offset=0, now_ms=NOW_MS).records is data


def test_what_is_too_young_waits_and_so_does_what_stands_behind_it() -> None:
    """The last batch is old enough, and must not overtake."""
    data = b"".join(source_batch([record(number, age)]) for number, age in enumerate((90, 61, 20, 300)))
    horizon = Horizon(delay_seconds=60)
    cut = horizon.cut(ORDERS, data, offset=0, now_ms=NOW_MS)
    assert (offsets(cut.records), cut.reason, cut.wait_seconds) == ([0, 1], PartitionReason.DELAYED, 40)
    later = horizon.cut(ORDERS, data, offset=0, now_ms=NOW_MS + 40_000)
    assert offsets(later.records) == [0, 1, 2, 3]
    assert not later.reason


def test_a_batch_is_as_old_as_its_youngest_record() -> None:
    data = source_batch([record(0, 500), record(1, 59)])
    assert not Horizon(delay_seconds=60).cut(ORDERS, data, offset=0, now_ms=NOW_MS).records


def test_what_is_not_due_is_not_fetched_again_for_each_batch() -> None:
    for delay_seconds, look_seconds in ((60, 1), (3_600, 36)):
        youngest = source_batch([record(0, delay_seconds - 0.01)])
        cut = Horizon(delay_seconds=delay_seconds).cut(ORDERS, youngest, offset=0, now_ms=NOW_MS)
        assert cut.wait_seconds == look_seconds


def test_a_record_from_the_future_is_looked_at_again_soon() -> None:
    data = source_batch([record(0, -86_400)])
    assert Horizon(delay_seconds=1).cut(ORDERS, data, offset=0, now_ms=NOW_MS).wait_seconds == 60


def test_a_marker_is_never_too_young() -> None:
    data = source_batch([record(0)], control=True, transactional=True, producer_id=7)
    assert not Horizon(delay_seconds=60).cut(ORDERS, data, offset=0, now_ms=NOW_MS).reason


@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=5),
    st.sampled_from(list(Codec)),
    st.sets(st.integers(0, 30), max_size=5),
    st.integers(0, 35),
)
def test_a_copy_ends_at_its_very_offset(sizes: list[int], codec: Codec, holes: set[int], until: int) -> None:
    data, offset, written = b"", 0, []
    for size in sizes:
        some = [record(each) for each in range(offset, offset + size) if each not in holes]
        if some:
            data += source_batch(some, codec=codec, base_offset=offset, last_offset=offset + size - 1)
            written += [each.offset for each in some]
        offset += size
    horizon = Horizon(until={ORDERS: until})
    cut = horizon.cut(ORDERS, data, offset=0, now_ms=NOW_MS)
    assert offsets(cut.records) == [each for each in written if each < until]
    has_more = bool(written) and written[-1] >= until
    if has_more or until == 0:
        assert (cut.reason, cut.wait_seconds) == (PartitionReason.UNTIL_REACHED, FOR_EVER)
        ends = [batch.header.next_offset for batch in iter_batches(cut.records)]
        assert until in (0, cut.ends_at, *ends[-1:])
    batches = [*iter_batches(cut.records)]
    assert all(crc_is_valid(batch) for batch in batches)
    assert all(batch.header.next_offset <= until for batch in batches)


def test_a_copy_ends_within_an_old_message_set() -> None:
    """Its header has the offset of its last record."""
    for magic in [0, 1]:
        for until in range(12):
            with about(magic, until):
                inner = [old_message(each, None, b"v", magic=magic) for each in range(10)]
                data = old_wrapper(4, b"".join(inner[:5]), magic=magic)
                if magic:
                    data += old_wrapper(9, b"".join(old_message(each, None, b"v") for each in range(5)))
                else:
                    data += old_wrapper(9, b"".join(inner[5:]), magic=magic)
                cut = Horizon(until={ORDERS: until}).cut(ORDERS, data, offset=0, now_ms=NOW_MS)
                assert offsets(cut.records) == list(range(min(until, 10)))
                assert cut.reason == (PartitionReason.UNTIL_REACHED if until <= 10 else "")


def test_a_copy_that_ends_in_a_compaction_hole_ends_there() -> None:
    """A batch at or behind the end shows it, also one that is too young to be copied."""
    for surviving in [0, 5]:
        for until in [6, 10, 20]:
            for delay_seconds in [0, 60]:
                with about(surviving, until, delay_seconds):
                    data = source_batch([record(each, 90) for each in range(surviving)]) if surviving else b""
                    data += source_batch([record(20)])
                    horizon = Horizon(until={ORDERS: until}, delay_seconds=delay_seconds)
                    cut = horizon.cut(ORDERS, data, offset=0, now_ms=NOW_MS, log_end_offset=21)
                    assert offsets(cut.records) == list(range(surviving))
                    assert (cut.reason, cut.wait_seconds, cut.ends_at) == (
                        PartitionReason.UNTIL_REACHED,
                        FOR_EVER,
                        until,
                    )


def test_without_a_batch_behind_it_the_end_of_a_copy_may_still_get_records() -> None:
    data = source_batch([record(each) for each in range(5)])
    cut = Horizon(until={ORDERS: 10}).cut(ORDERS, data, offset=0, now_ms=NOW_MS, log_end_offset=5)
    assert (offsets(cut.records), cut.reason, cut.ends_at) == ([0, 1, 2, 3, 4], "", None)


@pytest.mark.parametrize("magic", [0, 1])
def test_an_old_message_set_behind_a_hole_shows_where_a_copy_ends(magic: int) -> None:
    data = old_message(20, None, b"v", magic=magic)
    cut = Horizon(until={ORDERS: 10}).cut(ORDERS, data, offset=5, now_ms=NOW_MS, log_end_offset=21)
    assert (bytes(cut.records), cut.reason, cut.ends_at) == (b"", PartitionReason.UNTIL_REACHED, 10)


def test_a_batch_with_an_impossible_offset_does_not_show_where_a_copy_ends() -> None:
    """The checksum does not cover the offset: the records before the end would be skipped."""
    data = source_batch([record(1 << 40)])
    with pytest.raises(WireFormatError):
        Horizon(until={ORDERS: 10}).cut(ORDERS, data, offset=0, now_ms=NOW_MS, log_end_offset=21)


def test_what_lies_before_a_batch_that_cannot_be_cut_is_copied_first() -> None:
    """Never what lies behind the end."""
    data = b"".join(
        source_batch([record(each) for each in range(first, first + 3)], codec=Codec.ZSTD)
        for first in (0, 3, 6)
    )
    horizon = Horizon(until={ORDERS: 4}, max_open_bytes=10)
    cut = horizon.cut(ORDERS, data, offset=0, now_ms=NOW_MS)
    assert (offsets(cut.records), cut.fault) == ([0, 1, 2], None)
    rest = horizon.cut(ORDERS, data[len(cut.records) :], offset=3, now_ms=NOW_MS)
    assert (bytes(rest.records), rest.reason) == (b"", "")
    assert rest.fault is not None
    assert rest.fault.reason == "BATCH_TOO_LARGE"


def test_a_partition_that_is_not_named_is_not_copied() -> None:
    data = source_batch([record(0)])
    cut = Horizon(until={TopicPartition("other", 0): 5}).cut(ORDERS, data, offset=0, now_ms=NOW_MS)
    assert (bytes(cut.records), cut.reason) == (b"", PartitionReason.UNTIL_REACHED)


@pytest.mark.parametrize("end", [1, 2])
def test_the_head_of_a_batch_keeps_its_transaction_and_its_timestamps(end: int) -> None:
    data = source_batch(
        [record(0, 9), record(1, 5), record(2, 1)], codec=Codec.ZSTD, transactional=True, producer_id=77
    )
    (batch,) = iter_batches(data)
    (head,) = iter_batches(head_before(batch, end))
    assert decode_batch(head) == decode_batch(batch)[:end]
    assert (head.header.producer_id, head.header.is_transactional) == (77, True)
    assert (head.header.base_offset, head.header.next_offset) == (0, end)


def test_where_a_copy_ends_is_written_and_read() -> None:
    until = {TopicPartition("orders", 0): 12, TopicPartition("orders", 3): 0, TopicPartition("ö", 1): 7}
    assert parse_until(until_json(until)) == until
    assert parse_until("") is None
    for wrong in ("[1]", "{", '{"orders": 3}', '{"orders": {"x": 1}}'):
        with pytest.raises(ValueError):
            parse_until(wrong)


def test_where_a_copy_ends_comes_from_the_file_to_its_tasks() -> None:
    (flow,) = source_flows(
        load_more('twinlog.copy.until = {"orders": {"0": 2}}', "twinlog.delay.seconds = 60")
    )
    message = TaskSettings(flow=flow).prepare(1, 0, positions_partition_count=25)
    horizon = horizon_of(message.settings)
    assert (horizon.until, horizon.delay_seconds) == ({ORDERS: 2}, 60.0)
    data = b"".join(source_batch([record(number, 100)]) for number in range(4))
    assert offsets(horizon.cut(ORDERS, data, offset=0, now_ms=NOW_MS).records) == [0, 1]
    with pytest.raises(ConfigError, match=r"twinlog\.copy\.until"):
        load_more("twinlog.copy.until = tomorrow")
