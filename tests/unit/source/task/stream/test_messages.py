"""What a driver and its tasks say arrives as it was said, and what is not known stays so."""

from dataclasses import replace
from typing import Any

import pytest
from google.protobuf.message import Message

from twinlog.api.source.v1 import source_service_pb2 as source_pb
from twinlog.api.source.v1 import worker_service_pb2 as pb
from twinlog.batches import Lane
from twinlog.batches.header import HIGHEST_OFFSET
from twinlog.model import TopicPartition
from twinlog.offsets import SyncPace
from twinlog_source.log.facts import EpochStart, WriterFact
from twinlog_source.log.gaps import Gap
from twinlog_source.partitions.latency import LatencyHistogram
from twinlog_source.partitions.orders import (
    Answer,
    Echo,
    End,
    ForeignWrite,
    NewProducer,
    PartitionReport,
    PartitionState,
    PreservedTerms,
    PriorFailure,
    Reopened,
    SetPaused,
    SkippedRange,
    Start,
    StoredPosition,
    TaskAssignment,
    TaskCommand,
    TaskCounters,
    TaskReport,
    TaskSetup,
    WhoWrote,
    Writers,
)
from twinlog_source.partitions.planner import LimitDebt, SlotLimits
from twinlog_source.task.stream.messages import (
    Question,
    command_message,
    command_of,
    fill,
    question_message,
    question_of,
    value_of,
)

P = TopicPartition("t", 3)
PACE = SyncPace(upstream_offset=1, downstream_offset=2, records=3, credit=0.5, synced=True)
LEAST = TaskAssignment(partition=P, target_topic="A.t", position=0)
MOST = TaskAssignment(
    partition=P,
    target_topic="A.t",
    target_topic_id="copy",
    source_topic_id="id",
    max_message_bytes=1000,
    compression_type="zstd",
    position=7,
    position_stored=True,
    leader_epochs=(EpochStart(2, 0), EpochStart(4, 6)),
    target_end=0,
    target_end_is_exact=True,
    wrote_nothing=True,
    compacted=True,
    paused=True,
    preserved=PreservedTerms(
        skip_from=4,
        skip_to=9,
        since=2,
        required=True,
        former_task_seconds=0.0,
        skip_former_task_seconds=3.5,
        leader_epoch=0,
        common_until=3,
        end_reason="OFFSETS_CONFIGURED",
        end_message="words",
    ),
    asks_origins=True,
    shared=True,
    sync_pace=PACE,
    prior_failure=PriorFailure(
        state=PartitionState.FAULTED,
        reason="X",
        message="words",
        retry_in_seconds=1.5,
        failures=3,
        source_lost_from=0,
    ),
)
SETUP = TaskSetup(
    clients={"source_consumer": {"bootstrap.servers": "a:1"}, "data_producer": {}},
    settings={"twinlog.coalesce.below.bytes": "1"},
    transactional_ids=("x", "y"),
    positions_topic="positions",
    positions_partition_count=25,
    connector_name="c",
    read_committed=True,
    lease_seconds=0.75,
    report_seconds=1.0,
    source_topics=("t",),
    target_topics=("A.t",),
)


@pytest.mark.parametrize(
    "command",
    [
        SETUP,
        replace(SETUP, preserved_writer=WriterFact(producer_id=0, producer_epoch=0), traceparent="00-1"),
        Start(),
        Start(
            assignments=(LEAST, MOST),
            limits=SlotLimits(bytes_per_second=5),
            debt=LimitDebt(bytes=7, topic_bytes={"t": 3}),
        ),
        SlotLimits(),
        SlotLimits(topic_bytes_per_second={"t": 7}),
        SetPaused(partitions=(P, TopicPartition("u", 0)), paused=True),
        Answer(number=1),
        Answer(number=2, reason="FENCED", message="by another"),
        Answer(positions=(StoredPosition(P, 7),), echoes=(Echo(P, -1, 3, HIGHEST_OFFSET),)),
        End(reason="SHUTDOWN"),
    ],
)
def test_a_command_arrives_as_it_was_given(command: TaskCommand) -> None:
    message = pb.WorkerCommand.FromString(command_message(command).SerializeToString())
    assert command_of(message) == command


def test_a_sign_of_life_is_no_command() -> None:
    assert command_of(pb.WorkerCommand(alive=pb.Alive())) is None


@pytest.mark.parametrize(
    "question",
    [
        Reopened(),
        NewProducer(7, "id"),
        WhoWrote((Writers(P, (-1, 7)),)),
    ],
)
def test_a_question_arrives_with_its_number(question: Question) -> None:
    message = pb.WorkerReport.FromString(question_message(3, question).SerializeToString()).question
    assert (message.number, question_of(message)) == (3, question)


def report() -> PartitionReport:
    spread = LatencyHistogram()
    spread.add(0.5, 7)
    return PartitionReport(
        partition=P,
        position=5,
        state=PartitionState.FAULTED,
        reason="X",
        message="words",
        source_end=0,
        retry_in_seconds=0.0,
        failures=1,
        records=2,
        bytes=3,
        raw_records=4,
        recoded_records={"BY_RULE": 5},
        echoes=6,
        lane=Lane.RECODE,
        replication_latency_ns=0,
        latency=spread,
        record_age=spread,
        target_end=0,
        target_end_is_old=True,
        wrote_nothing=True,
        target_shortened_to=0,
        target_shortened_at=0,
        target_shortened_times=1,
        leader_epochs=(EpochStart(0, 5),),
        sync_pace=PACE,
        skipped=SkippedRange(first=0, end=0),
        leader_epoch=0,
        source_lost_from=0,
        needs_translation=True,
        preserved_until=7,
        foreign_writes=(
            ForeignWrite(
                from_offset=3,
                to_offset=4,
                records=1,
                producer_id=-1,
                producer_epoch=-1,
                written_at_ms=2**63 - 1,
            ),
        ),
        at_rest=True,
        is_quiet=True,
    )


@pytest.mark.parametrize("told", [PartitionReport(partition=P, position=0), report()])
def test_a_report_arrives_whole_and_what_is_not_known_stays_none(told: PartitionReport) -> None:
    reports = TaskReport(
        partitions=(told,),
        gaps=(Gap(partition=P, from_offset=1, to_offset=3, reason="RETENTION", found_at_ms=9),),
        counters=TaskCounters(
            transactions_committed=1, transactions_aborted=2, offset_syncs=3, failures={"X": 2}
        ),
        target_throttled=True,
    )
    message = pb.TaskReport()
    fill(message, reports)
    assert value_of(TaskReport, pb.TaskReport.FromString(message.SerializeToString())) == reports


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (SETUP, pb.TaskSetup),
        (MOST, pb.TaskAssignment),
        (MOST.preserved, pb.PreservedTerms),
        (MOST.prior_failure, pb.PriorFailure),
        (PACE, pb.SyncPace),
        (report(), pb.PartitionReport),
        (TaskReport(), pb.TaskReport),
    ],
)
def test_no_field_of_a_value_is_missing_in_its_message(value: Any, message: type[Message]) -> None:
    assert set(message.DESCRIPTOR.fields_by_name) == {*value.__dataclass_fields__}


@pytest.mark.parametrize("state", PartitionState)
def test_every_state_has_a_name_in_the_api(state: PartitionState) -> None:
    assert source_pb.PartitionState.Value(f"PARTITION_STATE_{state}") >= 0
