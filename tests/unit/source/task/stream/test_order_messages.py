"""What a task reads of its driver's orders: nothing is lost on the way, and what is not known stays so."""

from dataclasses import replace
from typing import Any

from twinlog.batches import TargetTopicLimits
from twinlog.model import TopicPartition
from twinlog.offsets import SyncPace
from twinlog_source.driver.stream.task_commands import Start
from twinlog_source.driver.stream.worker_messages import (
    assignment_message,
    command_message,
    limits_message,
)
from twinlog_source.log.facts import EpochStart
from twinlog_source.log.gaps import LogBounds
from twinlog_source.partitions.assignments import PriorFailure
from twinlog_source.partitions.reports import HoleCostAgo
from twinlog_source.partitions.shares import SlotLimits
from twinlog_source.partitions.states import PartitionState
from twinlog_source.task.orders import (
    PreservedTerms,
    Reposition,
    SetPaused,
    TaskAssignment,
    TaskStart,
    WithdrawReposition,
)
from twinlog_source.task.stream.order_messages import (
    assignment_of,
    limits_of,
    pause_of,
    reposition_of,
    start_of,
    withdrawal_of,
)
from unit.source.driver.stream.test_worker_messages import ASSIGNMENT, TOPIC, TRANSLATED, P

LEAST = replace(ASSIGNMENT, position_stored=False, leader_epochs=())
TAKEN = TaskAssignment(
    asks_origins=True,
    partition=P,
    target_topic="A.t",
    target_topic_id="copy",
    source_topic_id="id",
    max_message_bytes=1000,
    compression_type="zstd",
    position=7,
)
EVERYTHING: dict[str, Any] = {
    "position_stored": True,
    "paused": True,
    "prior_failure": PriorFailure(
        state=PartitionState.FAULTED,
        reason="X",
        message="words",
        retry_in_seconds=1.5,
        failures=3,
        source_lost_from=5,
    ),
    "hole_costs": (HoleCostAgo(ago_seconds=4.0, holes=5, spent_seconds=1.5),),
    "leader_epochs": (EpochStart(2, 0), EpochStart(4, 6)),
    "target_end": 0,
    "target_end_is_exact": True,
    "sync_pace": SyncPace(upstream_offset=1, downstream_offset=2, records=3, credit=0.5, synced=True),
}


def test_an_assignment_arrives_as_it_was_handed_out() -> None:
    assert assignment_of(assignment_message(LEAST)) == TAKEN
    assert assignment_of(assignment_message(replace(LEAST, **EVERYTHING))) == replace(TAKEN, **EVERYTHING)


def test_the_terms_of_a_preserved_copy_arrive_and_no_former_task_is_not_one_that_left_just_now() -> None:
    copy = replace(
        TRANSLATED, preserved=True, since=2, skip_from=4, skip_to=9, leader_epoch=0, common_until=3
    )
    handed_out = replace(LEAST, copy=copy, offsets_required=True)
    terms = PreservedTerms(since=2, skip_from=4, skip_to=9, leader_epoch=0, common_until=3, required=True)
    assert assignment_of(assignment_message(handed_out)).preserved == terms
    after_others = replace(handed_out, former_task_seconds=0.0, skip_former_task_seconds=3.0)
    assert assignment_of(assignment_message(after_others)).preserved == replace(
        terms, former_task_seconds=0.0, skip_former_task_seconds=3.0
    )
    ended = assignment_of(assignment_message(replace(handed_out, end_reason="OFFSETS_CONFIGURED"))).preserved
    assert ended is not None
    assert ended.end_reason == "OFFSETS_CONFIGURED"
    assert ended.end_message


def test_a_target_whose_limit_is_not_known_takes_what_kafka_takes_by_default() -> None:
    unknown = replace(LEAST, topic=replace(TOPIC, target_max_message_bytes=0))
    taken = assignment_of(assignment_message(unknown))
    assert taken.max_message_bytes == TargetTopicLimits().max_message_bytes


def test_limits_arrive_and_none_stays_none() -> None:
    for limits in (SlotLimits(), SlotLimits(bytes_per_second=5, topic_bytes_per_second={"t": 7})):
        assert limits_of(limits_message(limits)) == limits


def test_a_start_has_all_partitions_and_limits() -> None:
    limits = SlotLimits(bytes_per_second=5)
    started = command_message(Start(assignments=(LEAST, LEAST), limits=limits)).start
    assert start_of(started) == TaskStart(assignments=(TAKEN, TAKEN), limits=limits)


def test_orders_about_partitions_arrive_as_they_were_given() -> None:
    pause = SetPaused(partitions=(P, TopicPartition("u", 0)), paused=True)
    assert pause_of(command_message(pause).set_paused) == pause
    withdrawal = WithdrawReposition(partition=P, number=7)
    assert withdrawal_of(command_message(withdrawal).withdraw_reposition) == withdrawal
    for bounds in (None, LogBounds(start=0, end=0), LogBounds(start=1, end=9)):
        move = Reposition(partition=P, position=3, number=7, bounds=bounds)
        assert reposition_of(command_message(move).reposition) == move
