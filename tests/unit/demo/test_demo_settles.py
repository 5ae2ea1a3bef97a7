"""When the demo calls the group's offsets on B final, and what it says of a failure."""

import pytest

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.demo.comparison import CopyCheck, Reading
from twinlog.demo.story import StoryFindings
from twinlog.demo.watching import is_settled
from twinlog.kafka.groups.consumer import ConsumedRecord
from twinlog.model import TopicPartition

COPIED_AT_MS = 10_000


def row(verdict: "pb2.Verdict.ValueType", *, lag: int | None, as_of_ms: int = 10_001) -> pb2.GroupPartition:
    found = pb2.GroupPartition(verdict=verdict, committed_on_target=True, source_lag=lag)
    found.as_of.FromMilliseconds(as_of_ms)
    return found


@pytest.mark.parametrize(
    ("told", "final"),
    [
        (row(pb2.VERDICT_EXACT, lag=500), True),
        (row(pb2.VERDICT_PRESERVED, lag=500), True),
        (row(pb2.VERDICT_UP_TO_DATE, lag=0), True),
        (row(pb2.VERDICT_UP_TO_DATE, lag=500), False),
        (row(pb2.VERDICT_UP_TO_DATE, lag=None), False),
        (row(pb2.VERDICT_UP_TO_DATE, lag=0, as_of_ms=10_000), False),
        (row(pb2.VERDICT_EXACT, lag=500, as_of_ms=9_000), False),
        (row(pb2.VERDICT_FLOOR, lag=0), False),
        (pb2.GroupPartition(verdict=pb2.VERDICT_EXACT), False),
    ],
)
def test_a_group_that_was_ahead_of_the_copy_is_not_final_before_its_record_is_copied(
    told: pb2.GroupPartition, final: bool
) -> None:
    assert is_settled(told, copied_at_ms=COPIED_AT_MS) is final


def test_a_failure_says_which_check_failed_and_a_success_has_none() -> None:
    findings = StoryFindings(
        comparison=CopyCheck(source_records=30, target_records=30),
        offsets={0: (7, 7, True), 2: (9, 8, False)},
        read_on_a=10,
        read_on_b=19,
    )
    assert findings.failures == [
        "the group continues at another record in partition 2",
        "the group read 29 records in all, and A has 30",
    ]
    findings.offsets[2], findings.read_on_b = (9, 9, True), 20
    assert findings.held


def test_records_that_a_group_reads_again_after_a_rebalance_count_once() -> None:
    tp = TopicPartition("orders", 0)
    records = [
        ConsumedRecord(partition=tp, offset=n, timestamp_ms=n, key=None, value=b"%d" % n) for n in range(5)
    ]
    reading = Reading()
    for polled in (records[1:4], records[1:3], records[3:]):
        reading.add(polled)
    assert (reading.records, reading.next_offsets, reading.first) == (4, {tp: 5}, {0: (1, None, b"1")})
