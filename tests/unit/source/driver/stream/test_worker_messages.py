"""What tasks and their driver say to each other: values inside, messages outside."""

from dataclasses import replace

import pytest
from google.protobuf.duration_pb2 import Duration

from twinlog.api.common.v1 import types_pb2
from twinlog.api.source.v1 import source_service_pb2 as source_pb
from twinlog.api.source.v1 import worker_service_pb2 as pb
from twinlog.batches import Lane
from twinlog.model import Flow, TopicPartition
from twinlog.service.feeds.replicated_topics import ReplicatedTopic, TopicState
from twinlog_source.driver.stream.task_commands import (
    End,
    Limit,
    Resume,
    Start,
    TaskCommand,
)
from twinlog_source.driver.stream.worker_messages import (
    assignment_message,
    command_message,
    limits_message,
    task_report,
)
from twinlog_source.log.facts import CopyFact, EpochStart
from twinlog_source.log.gaps import Gap, LogBounds
from twinlog_source.partitions.assignments import Assignment, PriorFailure
from twinlog_source.partitions.reports import ForeignWrite, HoleCostAgo, SkippedRange
from twinlog_source.partitions.shares import LimitDebt, SlotLimits
from twinlog_source.partitions.states import PartitionState
from twinlog_source.task.orders import Reposition, SetPaused, WithdrawReposition
from twinlog_source.task.stream.foreign_write_messages import (
    LATEST_MS,
    foreign_write_message,
    foreign_write_of,
)

P = TopicPartition("t", 3)
NAMED = types_pb2.TopicPartition(topic="t", partition=3)
TOPIC = ReplicatedTopic(
    flow=Flow("A", "B"),
    source_topic="t",
    target_topic="A.t",
    partition_count=4,
    target_partition_count=4,
    source_topic_id="id",
    target_topic_id="copy",
    generation=1,
    created_after_start=False,
    state=TopicState.READY,
    reason="",
    message="",
    target_max_message_bytes=1000,
    target_compression_type="zstd",
    target_timestamp_type="CreateTime",
    source_cleanup_policy="delete",
)
TRANSLATED = CopyFact(partition=P, preserved=False, since=0, reason="X", target_topic_id="copy")
ASSIGNMENT = Assignment(
    partition=P,
    topic=TOPIC,
    position=7,
    position_stored=True,
    copy=TRANSLATED,
    offsets_required=False,
    former_task_seconds=None,
    skip_former_task_seconds=None,
    end_reason="",
    hole_costs=(),
    paused=False,
    prior_failure=None,
    leader_epochs=(EpochStart(2, 5),),
    target_end=None,
    target_end_is_exact=False,
    sync_pace=None,
    asks_origins=True,
    shared=False,
)


def test_what_a_task_does_not_know_is_none_and_never_minus_one() -> None:
    said = pb.PartitionReport(
        partition=NAMED, position=5, source_end_offset=-1, target_end_offset=-1, target_shortened_to=-1
    )
    (report,) = task_report(pb.PartitionReports(partitions=[said])).partitions
    assert (report.partition, report.position) == (P, 5)
    assert report.source_end is report.target_end is report.target_shortened_to is None
    for absent in (report.retry_in_seconds, report.lane, report.skipped, report.sync_pace, report.latency):
        assert absent is None


def test_what_a_task_says_keeps_its_meaning() -> None:
    said = pb.PartitionReport(
        partition=NAMED,
        state=source_pb.PARTITION_STATE_FAULTED,
        lane=source_pb.LANE_RECODE,
        leader_epochs=[pb.LeaderEpochStart(leader_epoch=2, offset=5)],
        preserved=pb.PreservedCopy(skip_from=4, skip_to=9),
        gaps=[pb.Gap(from_offset=1, to_offset=3, reason="RETENTION")],
    )
    said.retry_in.FromMilliseconds(1234)
    report = task_report(pb.PartitionReports(partitions=[said], failures={"X": 2}, target_throttled=True))
    (one,) = report.partitions
    assert (one.state, one.lane, one.retry_in_seconds) == (PartitionState.FAULTED, Lane.RECODE, 1.234)
    assert (one.leader_epochs, one.skipped) == ((EpochStart(2, 5),), SkippedRange(first=4, end=9))
    assert report.gaps == (Gap(partition=P, from_offset=1, to_offset=3, reason="RETENTION", found_at_ms=0),)
    assert (report.counters.failures, report.source_throttled, report.target_throttled) == (
        {"X": 2},
        False,
        True,
    )


@pytest.mark.parametrize("state", PartitionState)
def test_every_state_has_a_name_in_the_api(state: PartitionState) -> None:
    assert source_pb.PartitionState.Value(f"PARTITION_STATE_{state}") >= 0


def test_a_state_of_a_later_version_is_not_one_of_ours() -> None:
    said = pb.PartitionReports(partitions=[pb.PartitionReport(state=99)])  # type: ignore[arg-type]
    assert task_report(said).partitions[0].state is PartitionState.UNSPECIFIED


def test_a_task_is_told_minus_one_of_an_end_that_is_not_known() -> None:
    message = assignment_message(ASSIGNMENT)
    assert (message.target_end_offset, message.position, message.position_stored) == (-1, 7, True)
    assert (message.max_message_bytes, message.compression_type, message.target_topic_id) == (
        1000,
        "zstd",
        "copy",
    )
    assert not message.compacted
    for absent in ("preserved", "prior_failure", "sync_pace"):
        assert not message.HasField(absent)
    known = assignment_message(replace(ASSIGNMENT, target_end=0))
    assert known.target_end_offset == 0


def test_a_task_is_told_what_a_preserved_copy_lacks_and_what_failed_before() -> None:
    copy = replace(TRANSLATED, preserved=True, since=2, skip_from=4, skip_to=9)
    prior_failure = PriorFailure(
        state=PartitionState.BACKOFF, reason="X", message="words", retry_in_seconds=1.5, failures=3
    )
    message = assignment_message(
        replace(
            ASSIGNMENT,
            copy=copy,
            offsets_required=True,
            former_task_seconds=2.0,
            skip_former_task_seconds=3.0,
            prior_failure=prior_failure,
            hole_costs=(HoleCostAgo(ago_seconds=4.0, holes=5, spent_seconds=1.5),),
        )
    )
    assert message.preserved == pb.PreservedCopy(
        skip_from=4,
        skip_to=9,
        since=2,
        required=True,
        former_task_ago=Duration(seconds=2),
        skip_former_task_ago=Duration(seconds=3),
    )
    (cost,) = message.hole_costs
    assert (cost.ago, cost.holes, cost.spent.ToMilliseconds()) == (Duration(seconds=4), 5, 1500)
    assert message.prior_failure.state == source_pb.PARTITION_STATE_BACKOFF
    assert (message.prior_failure.retry_in.ToMilliseconds(), message.prior_failure.failures) == (1500, 3)


def test_a_copy_without_former_tasks_waits_for_none_and_one_that_shall_end_is_told_why() -> None:
    copy = replace(TRANSLATED, preserved=True)
    message = assignment_message(replace(ASSIGNMENT, copy=copy))
    assert not message.preserved.HasField("former_task_ago")
    assert not message.preserved.HasField("skip_former_task_ago")
    assert not message.preserved.end_reason
    told = assignment_message(replace(ASSIGNMENT, copy=copy, end_reason="OFFSETS_CONFIGURED")).preserved
    assert told.end_reason == "OFFSETS_CONFIGURED"
    assert told.end_message


def test_no_limit_is_0_on_the_wire() -> None:
    assert limits_message(SlotLimits()) == pb.SetThrottle()
    limits = SlotLimits(bytes_per_second=5, topic_bytes_per_second={"t": 7})
    assert limits_message(limits) == pb.SetThrottle(bytes_per_second=5, topic_bytes_per_second={"t": 7})


def test_a_foreign_record_may_claim_any_time() -> None:
    """One written in microseconds, say, lies beyond what a message can say."""
    for claimed_ms, told_ms in ((-1, 0), (1_700_000_000_000, 1_700_000_000_000), (2**63 - 1, LATEST_MS)):
        write = ForeignWrite(
            from_offset=3, to_offset=4, records=1, producer_id=7, producer_epoch=0, written_at_ms=claimed_ms
        )
        assert foreign_write_of(foreign_write_message(write)) == replace(write, written_at_ms=told_ms)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            Start(limits=SlotLimits(bytes_per_second=5), debt=LimitDebt(bytes=7, topic_bytes={"t": 3})),
            pb.WorkerCommand(
                start=pb.Start(
                    throttle=pb.SetThrottle(bytes_per_second=5),
                    debt=pb.LimitDebt(bytes=7, topic_bytes={"t": 3}),
                )
            ),
        ),
        (
            Resume(reason="FENCED", message="by another"),
            pb.WorkerCommand(resume=pb.Resume(reason="FENCED", message="by another")),
        ),
        (
            Resume(positions={P: 7}),
            pb.WorkerCommand(resume=pb.Resume(positions=[pb.StoredPosition(partition=NAMED, position=7)])),
        ),
        (
            SetPaused(partitions=(P,), paused=True),
            pb.WorkerCommand(set_paused=pb.SetPaused(partitions=[NAMED], paused=True)),
        ),
        (
            Limit(limits=SlotLimits()),
            pb.WorkerCommand(set_throttle=pb.SetThrottle()),
        ),
        (
            Reposition(partition=P, position=3, number=7, bounds=LogBounds(start=1, end=9)),
            pb.WorkerCommand(
                reposition=pb.Reposition(
                    partition=NAMED, position=3, id=7, log_start_offset=1, log_end_offset=9
                )
            ),
        ),
        (
            Reposition(partition=P, position=3, number=7, bounds=None),
            pb.WorkerCommand(
                reposition=pb.Reposition(
                    partition=NAMED, position=3, id=7, log_start_offset=-1, log_end_offset=-1
                )
            ),
        ),
        (
            WithdrawReposition(partition=P, number=7),
            pb.WorkerCommand(withdraw_reposition=pb.WithdrawReposition(partition=NAMED, id=7)),
        ),
        (End(reason="SHUTDOWN"), pb.WorkerCommand(end=pb.End(reason="SHUTDOWN"))),
    ],
)
def test_a_command_is_told_whole(command: TaskCommand, message: pb.WorkerCommand) -> None:
    assert command_message(command) == message
