"""What a move waits for: offsets decide where they can, what blocks is named with its cause."""

from dataclasses import replace

import pytest

from twinlog.model import Record, TopicPartition
from twinlog.service.feeds.replicated_topics import ReplicatedTopic, TopicState
from twinlog.testing.fakes.cluster import Call
from twinlog_checkpoint.moves.planning.decision import CopyReport, CopyState, LostRange
from twinlog_checkpoint.moves.planning.plan import MoveOptions
from twinlog_checkpoint.moves.topic_backlog import TopicBacklog, estimated_seconds
from twinlog_checkpoint.translation.translation import SourcePosition
from unit.checkpoint.checkpoint_rig import CheckpointFlowRig
from unit.checkpoint.mirrored_logs import COPY, ORIGIN
from unit.checkpoint.moves.move_rig import NO_WAIT, MoveRig, run
from unit.checkpoint.moves.test_move_truth import refused_for_the_backlog

SMALL, SMALL_COPY = TopicPartition("small", 0), TopicPartition("A.small", 0)


def replicated(fakes: CheckpointFlowRig, topic: str, *, generation: int = 1) -> ReplicatedTopic:
    """As configsync tells of it: both sides as they are now."""
    copy = f"A.{topic}"
    return ReplicatedTopic(
        source_topic=topic,
        target_topic=copy,
        partition_count=len(fakes.source.topics[topic].partitions),
        target_partition_count=len(fakes.target.topics[copy].partitions),
        source_topic_id=fakes.source.topic_id(topic),
        target_topic_id=fakes.target.topic_id(copy),
        generation=generation,
        created_after_start=False,
        state=TopicState.READY,
        source_cleanup_policy="delete",
    )


def known(rig: MoveRig, *topics: str, generation: int = 1) -> None:
    rig.topics.known = {topic: replicated(rig.fakes, topic, generation=generation) for topic in topics}


def told(rig: MoveRig, partition: TopicPartition = ORIGIN, **state: object) -> None:
    """The source service says this of a partition, and that it copies it."""
    entry = CopyState(**{"state": "RUNNING", "position": None, **state})  # type: ignore[arg-type]
    before = rig.fakes.copy_states.report.partitions
    rig.fakes.copy_states.report = CopyReport(partitions={**before, partition: entry})


async def backlog(rig: MoveRig) -> dict[TopicPartition, TopicBacklog]:
    plan = await rig.served.failover.plan(NO_WAIT)
    return {entry.partition: entry for entry in plan.backlog}


async def test_an_empty_partition_is_copied_whatever_was_there_before(rig: MoveRig) -> None:
    """Its topic was made again: the syncs are of the one before."""
    rig.logs.source.add_topic(SMALL.topic)
    rig.logs.target.add_topic(SMALL_COPY.topic)
    await rig.fakes.write_sync(SMALL.topic, 50, 50)
    await rig.fakes.do_pass(rig.parts.checkpointer)
    found = await backlog(rig)
    assert found[SMALL].records_not_copied == 0
    _, report = await run(rig.served.failover, MoveOptions(wait_seconds=5))
    assert report.left_behind == []


async def test_what_a_group_has_asked_about_before_any_copy_is_counted(rig: MoveRig) -> None:
    """The question begins the list of what comparisons find, which stays empty; it is no word of a copy."""
    rig.logs.source.add_topic(SMALL.topic)
    rig.logs.target.add_topic(SMALL_COPY.topic)
    for value in (b"1", b"2", b"3"):
        rig.logs.source.append(SMALL, Record(offset=-1, timestamp_ms=1, key=None, value=value))
    known(rig, SMALL.topic)
    await rig.parts.back.translate([SourcePosition(partition=SMALL_COPY, next_offset=0)])
    assert rig.parts.pairs(SMALL) is not None
    assert (await backlog(rig))[SMALL].records_not_copied == 3


async def test_records_that_the_copy_has_lost_are_not_copied_whatever_the_source_service_says(
    rig: MoveRig,
) -> None:
    """An unclean election on the target: where the copy has offsets of its own, no position tells."""
    known(rig, ORIGIN.topic)
    told(rig, position=rig.source_end)
    last, its_copy = rig.logs.visible_source()[-1].offset, rig.logs.visible_target()[-1].offset
    await rig.fakes.write_sync(ORIGIN.topic, last, its_copy)
    await rig.has_synced(last)
    assert (await backlog(rig))[ORIGIN].records_not_copied == 0
    rig.logs.target.truncate(COPY, rig.logs.visible_target()[-7].offset)
    left = (await backlog(rig))[ORIGIN]
    assert left.records_not_copied is None
    assert "has lost records that were copied" in left.message


@pytest.mark.parametrize("keeps", ["all but one", "nothing"])
async def test_a_lost_tail_is_seen_before_the_source_service_notices_it(rig: MoveRig, keeps: str) -> None:
    """Also behind the newest offset sync: the service tells how far it wrote, the plan asks how far it is."""
    known(rig, ORIGIN.topic)
    told(rig, position=rig.source_end, target_end=rig.logs.target.log(COPY).end_offset)
    assert (await backlog(rig))[ORIGIN].records_not_copied == 0
    start = rig.logs.target.log(COPY).start_offset
    rig.logs.target.truncate(COPY, start if keeps == "nothing" else rig.logs.visible_target()[-1].offset)
    left = (await backlog(rig))[ORIGIN]
    assert left.records_not_copied != 0
    assert "has lost records that were copied" in left.message


@pytest.mark.parametrize("keeps", ["its first records", "not even the topic"])
async def test_what_is_lost_while_a_move_waits_for_other_partitions_is_not_taken_for_copied(
    rig: MoveRig, keeps: str
) -> None:
    known(rig, ORIGIN.topic)
    told(rig, position=rig.source_end, target_end=rig.logs.target.log(COPY).end_offset)
    meter = rig.served.failover.planner.meter()
    (before,) = await meter.measure({ORIGIN: rig.source_end})
    assert before.records_not_copied == 0
    if keeps == "not even the topic":
        del rig.logs.target.topics[COPY.topic]
    else:
        rig.logs.target.truncate(COPY, rig.logs.visible_target()[-7].offset)
    (left,) = await meter.measure({ORIGIN: rig.source_end})
    assert left.records_not_copied != 0


async def test_what_leaves_the_rules_while_a_move_waits_for_it_is_not_taken_for_copied(rig: MoveRig) -> None:
    gone = TopicPartition("gone", 0)
    (left,) = [
        entry
        for entry in await rig.served.failover.planner.meter().measure({ORIGIN: 1, gone: 5})
        if entry.partition == gone
    ]
    assert left.records_not_copied is None
    assert "no flow copies it any more" in left.message


@pytest.mark.parametrize("reason", ["TARGET_TRUNCATED", "TARGET_RECREATED"])
async def test_what_a_copy_has_lost_blocks_a_move_while_the_source_service_continues_behind_it(
    rig: MoveRig, reason: str
) -> None:
    """Neither its position nor an offset sync before the loss shows that records are not there."""
    known(rig, ORIGIN.topic)
    told(rig, position=rig.source_end)
    states, begin = rig.fakes.copy_states, rig.source_end - 9
    states.report = replace(states.report, lost={ORIGIN: [LostRange(begin, rig.source_end, reason)]})
    left = (await backlog(rig))[ORIGIN]
    assert (left.records_not_copied, left.at_most) == (None, 9)
    assert f"positions set 'A->B' --topic {ORIGIN.topic} --partition 0 --to {begin}`" in left.message
    refused = await refused_for_the_backlog(rig, MoveOptions(wait_seconds=5))
    assert reason in str(refused)
    _, accepted = await run(rig.served.failover, replace(NO_WAIT, accept_loss=True))
    assert accepted.left_behind == []
    _, report = await run(rig.served.failover)
    assert reason in report.left_behind[0]
    states.report = replace(states.report, lost={})
    _, report = await run(rig.served.failover)
    assert report.left_behind == []


@pytest.mark.parametrize(("begin", "end"), [(0, 20), (900_000, 900_001)])
async def test_a_loss_outside_what_the_source_still_holds_does_not_block(
    rig: MoveRig, begin: int, end: int
) -> None:
    known(rig, ORIGIN.topic)
    told(rig, position=rig.source_end)
    rig.logs.source.log(ORIGIN).delete_before(20)
    states = rig.fakes.copy_states
    states.report = replace(states.report, lost={ORIGIN: [LostRange(begin, end, "TARGET_RECREATED")]})
    found = await backlog(rig)
    assert found[ORIGIN].records_not_copied == 0


async def test_a_copy_that_was_made_again_does_not_block_once_its_loss_is_acknowledged(rig: MoveRig) -> None:
    """The source service continues behind it, and says where."""
    rig.logs.target.add_topic(COPY.topic)
    known(rig, ORIGIN.topic)
    told(rig, position=rig.source_end)
    found = await backlog(rig)
    assert found[ORIGIN].records_not_copied == 0
    rig.logs.produce(20)
    (left,) = (await backlog(rig)).values()
    assert left.records_not_copied


async def test_without_the_source_services_word_a_copy_that_was_made_again_is_not_known(rig: MoveRig) -> None:
    rig.logs.target.add_topic(COPY.topic)
    known(rig, ORIGIN.topic)
    found = await backlog(rig)
    assert found[ORIGIN].records_not_copied is None
    assert found[ORIGIN].message.endswith("the source service does not answer")


async def test_the_word_of_a_source_that_has_not_seen_the_new_topic_is_not_believed(rig: MoveRig) -> None:
    """configsync knows other topics by these names: the position is of a log that is gone."""
    known(rig, ORIGIN.topic)
    told(rig, position=rig.source_end)
    rig.logs.source.add_topic(ORIGIN.topic)
    rig.logs.source.append(ORIGIN, *rig.logs.visible_target()[:200])
    told(rig, position=200)
    found = await backlog(rig)
    assert found[ORIGIN].records_not_copied != 0


async def test_a_topic_that_was_made_again_is_compared_by_its_records(rig: MoveRig) -> None:
    """Its position may still be the old one's for a moment."""
    rig.logs.source.add_topic(ORIGIN.topic)
    known(rig, ORIGIN.topic, generation=2)
    rig.logs.source.append(ORIGIN, *rig.logs.visible_target()[:300])
    told(rig, position=100)
    found = await backlog(rig)
    assert found[ORIGIN].records_not_copied != 0


@pytest.mark.parametrize("by_source", [True, False])
async def test_offsets_decide_without_reading_a_log(rig: MoveRig, by_source: bool) -> None:
    """The position that the source service tells, or an offset sync at the end of the log."""
    known(rig, ORIGIN.topic)
    rig.logs.source.append(ORIGIN, rig.logs.visible_source()[-1])
    rig.logs.copy()
    newest = rig.logs.visible_source()[-1].offset
    if by_source:
        told(rig, position=rig.source_end)
    else:
        copied = rig.logs.visible_target()[-1].offset
        await rig.fakes.write_sync(ORIGIN.topic, newest, copied)
        await rig.has_synced(newest)
    reads: list[Call] = []
    for cluster in (rig.logs.source, rig.logs.target):
        cluster.intercept("fetch", reads.append)
    found = await rig.served.failover.planner.meter().measure()
    assert [entry.records_not_copied for entry in found] == [0]
    assert [call for call in reads if call.arguments["partition"] in (ORIGIN, COPY)] == []


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (
            CopyState(state="PAUSED", position=0, reason="PAUSED_BY_OPERATOR", message="by ann since 06:59"),
            "PAUSED: PAUSED_BY_OPERATOR by ann since 06:59",
        ),
        (CopyState(state="FAULTED", position=0, reason="DATA_LOSS", message="gone"), "FAULTED: DATA_LOSS"),
        (CopyState(state="RUNNING", position=0, reason="TARGET_SLOW", message="B is slow"), "TARGET_SLOW"),
        (CopyState(state="RUNNING", position=0), "it is being copied"),
        (None, "the source service does not copy this partition"),
    ],
)
async def test_what_blocks_is_named_with_its_cause(rig: MoveRig, state: CopyState | None, words: str) -> None:
    rig.logs.source.set_group("g", {ORIGIN: 100})
    rig.fakes.copy_states.report = CopyReport(partitions={} if state is None else {ORIGIN: state})
    rig.logs.produce(40)
    refused = await refused_for_the_backlog(rig, MoveOptions(wait_seconds=5))
    assert f"{ORIGIN}: " in str(refused)
    assert words in str(refused)


async def test_a_source_service_that_is_away_is_named_as_the_cause(rig: MoveRig) -> None:
    rig.logs.produce(40)
    found = await backlog(rig)
    assert found[ORIGIN].records_not_copied
    assert found[ORIGIN].message == "the source service does not answer"


async def test_a_count_that_is_not_done_says_at_most_and_goes_on(rig: MoveRig) -> None:
    """What the budget does not reach is being counted: it is not unknown, and blames nobody."""
    known(rig, ORIGIN.topic)
    copied_to, copied = rig.source_end, len(rig.logs.visible_source())
    rig.logs.produce(40)
    told(rig, position=copied_to)
    meter = rig.served.failover.planner.meter()
    meter.look_bytes = 0
    (entry,) = await meter.measure()
    assert (entry.counting, entry.records_not_copied, entry.at_most) == (
        True,
        None,
        rig.source_end - copied_to,
    )
    meter.look_bytes = 1 << 30
    (entry,) = await meter.measure()
    assert entry.records_not_copied == len(rig.logs.visible_source()) - copied


async def test_what_was_seen_copied_is_not_read_again_while_a_run_waits(rig: MoveRig) -> None:
    meter = rig.served.failover.planner.meter()
    until = {ORIGIN: rig.source_end}
    (first,) = await meter.measure(until)
    reads: list[Call] = []
    rig.logs.source.intercept("fetch", reads.append)
    (second,) = await meter.measure(until)
    assert first.records_not_copied == second.records_not_copied == 0
    assert [call for call in reads if call.arguments["partition"] == ORIGIN] == []


async def test_what_was_removed_before_it_was_copied_is_named(rig: MoveRig) -> None:
    """A paused copy stands before the start of the log, after DeleteRecords or by retention."""
    copied_to = rig.source_end
    rig.logs.produce(40)
    known(rig, ORIGIN.topic)
    begin = rig.logs.visible_source()[-10].offset
    rig.logs.source.log(ORIGIN).delete_before(begin)
    told(rig, state="PAUSED", position=copied_to, reason="PAUSED_BY_OPERATOR")
    entry = (await backlog(rig))[ORIGIN]
    assert entry.records_not_copied == 10
    gone = f"RETENTION: A no longer has the offsets from {copied_to} to {begin}, which were not copied"
    assert entry.message == f"{gone}; PAUSED: PAUSED_BY_OPERATOR"


async def test_how_far_a_copy_came_is_not_told_by_its_last_offset_sync(rig: MoveRig) -> None:
    """The source service does not answer: it may have copied what is gone since."""
    rig.logs.produce(40)
    known(rig, ORIGIN.topic)
    rig.logs.source.log(ORIGIN).delete_before(rig.logs.visible_source()[-10].offset)
    rig.fakes.copy_states.report = CopyReport(away="the source service does not answer")
    entry = (await backlog(rig))[ORIGIN]
    assert (entry.records_not_copied, entry.message) == (10, "the source service does not answer")


def test_a_copy_that_has_just_begun_has_an_estimate() -> None:
    before = TopicBacklog(partition=ORIGIN, end_offset=100, records_not_copied=100, copied_to=0)
    after = replace(before, records_not_copied=50, copied_to=50)
    assert estimated_seconds([before], [after], 10) == pytest.approx(10)


def test_records_that_nobody_can_copy_have_no_estimate() -> None:
    before = [
        TopicBacklog(partition=ORIGIN, end_offset=90, records_not_copied=90, copied_to=10),
        TopicBacklog(partition=SMALL, end_offset=9, records_not_copied=9, copied_to=0),
    ]
    after = [replace(before[0], records_not_copied=45, copied_to=55), before[1]]
    assert estimated_seconds(before, after, 10) == pytest.approx(12)
    stuck = [after[0], replace(before[1], waits_for_broker=True)]
    assert estimated_seconds(before, stuck, 10) is None
    copied = [after[0], replace(before[1], waits_for_broker=True, records_not_copied=0)]
    assert estimated_seconds(before, copied, 10) == pytest.approx(10)
