"""How the driver decides about the offsets of copies, what it puts on the log for that, and what it tells its
tasks."""

from dataclasses import replace

import pytest

from twinlog.api.common.v1 import types_pb2
from twinlog.api.source.v1 import worker_service_pb2 as pb
from twinlog.errors import FatalKafkaError, KafkaError
from twinlog.kafka.errors import from_code
from twinlog.kafka.ports import ConfigChange
from twinlog.model import TopicPartition
from twinlog.testing.fakes.cluster_hooks import Call
from twinlog_source.driver.moves import planned_move
from twinlog_source.driver.ownership import FOREIGN_AFTER_MS
from twinlog_source.driver.state import FlowState
from twinlog_source.driver.worker_messages import assignment_message, task_report
from twinlog_source.log.facts import CopyFact, OwnerFact
from twinlog_source.log.gaps import LogBounds
from twinlog_source.partitions.events import Assigned, Reported
from twinlog_source.partitions.reports import PartitionReport, SkippedRange, TaskReport
from twinlog_source.partitions.rows import PartitionRow
from twinlog_source.partitions.table import PartitionTable
from twinlog_source.topics.copy_modes import RETRY_SECONDS
from unit.source.flow_rig import P, Site, ledger, reported
from unit.source.target_probe import FakeTargetProbe

AUTO = "twinlog.offsets = auto"
PRESERVED = "twinlog.offsets = preserved"
TRANSLATED = "twinlog.offsets = translated"
NOT_EXACT = "B.exactly.once.source.support = disabled"
COPY = TopicPartition("A.t", 0)


def probe_of(estate: FlowState) -> FakeTargetProbe:
    assert isinstance(estate.probe, FakeTargetProbe)
    return estate.probe


def copy_of(estate: FlowState) -> CopyFact:
    """What is in memory, and on the log as well."""
    copy = estate.table.rows[P].copy
    assert copy is not None
    assert estate.positions.control.copies[P] == copy
    return copy


def kind(estate: FlowState) -> tuple[bool, int, str, int, int]:
    copy = copy_of(estate)
    return copy.preserved, copy.since, copy.reason, copy.skip_from, copy.skip_to


async def ends(estate: FlowState, *, position: int, until: int, reason: str, tell: bool = True) -> None:
    """As its task does it: the position and the end of the copy are on the log, then they are told."""
    fact = estate.table.rows[P].copy
    assert fact is not None
    await estate.journal.position(P, position)
    await estate.journal.state(replace(fact, preserved=False, since=until, reason=reason))
    if tell:
        words = {"position": position, "reason": reason, "preserved_until": until, "source_end_offset": 50}
        reported(estate, needs_translation=True, **words)


def obstacle(estate: FlowState) -> str:
    found = estate.table.rows[P].obstacle
    return "" if found is None else found.reason


def assigned(estate: FlowState) -> pb.Assignment:
    return assignment_message(estate.assignment(P))


async def test_a_new_copy_is_preserved_and_begins_where_the_sources_log_starts(site: Site) -> None:
    await site.write(site.source, "t", 7)
    await site.source.delete_records({P: 5})
    estate = await site.owner(AUTO)
    assert kind(estate) == (True, 5, "", 0, 5)
    assert estate.table.plannable() == {P}
    handed = assigned(estate)
    assert (handed.position, handed.position_stored) == (5, False)
    assert (handed.preserved.skip_from, handed.preserved.skip_to) == (0, 5)


def waits(estate: FlowState) -> tuple[float | None, float | None]:
    """As the next task is told: how long ago former tasks lost the partition, and those among them that were
    not told of the range that is left out."""
    estate.table.apply(Assigned(partition=P, slot=0), estate.clock.monotonic())
    told = assigned(estate).preserved
    return (
        told.former_task_ago.ToTimedelta().total_seconds() if told.HasField("former_task_ago") else None,
        told.skip_former_task_ago.ToTimedelta().total_seconds()
        if told.HasField("skip_former_task_ago")
        else None,
    )


def says(estate: FlowState, *, skip: tuple[int, int] = (0, 0), at_rest: bool = False) -> None:
    report = pb.PartitionReport(
        partition=types_pb2.TopicPartition(topic="t", partition=0),
        position=9,
        target_end_offset=-1,
        target_shortened_to=-1,
        preserved=pb.PreservedCopy(skip_from=skip[0], skip_to=skip[1]),
        at_rest=at_rest,
    )
    said = task_report(pb.PartitionReports(partitions=[report]))
    estate.table.apply(Reported(slot=0, report=said, now_ms=1), estate.clock.monotonic())


async def leaves_out(estate: FlowState, first: int, end: int) -> None:
    """As its task does it: on the log, then told."""
    await estate.journal.state(replace(copy_of(estate), skip_from=first, skip_to=end))
    says(estate, skip=(first, end))


async def test_nobody_waits_where_all_tasks_ended_with_nothing_on_its_way(site: Site) -> None:
    """A range that the source lost is filled at once then."""
    estate = await site.owner(AUTO)
    assert waits(estate) == (None, None), "nobody had it before"
    says(estate, at_rest=True)
    estate.settled([P])
    assert waits(estate) == (None, None)
    await estate.leave()
    assert waits(await site.owner(AUTO)) == (None, None), "the process before has given it back"


@pytest.mark.parametrize("how", ["killed", "unanswered"])
async def test_what_a_former_task_may_still_write_is_waited_for(site: Site, how: str) -> None:
    estate = await site.owner(AUTO)
    assert waits(estate) == (None, None)
    if how == "killed":
        await estate.reread([P])
    else:
        says(estate, at_rest=False)
        estate.settled([P])
    site.clock.advance(3)
    assert waits(estate) == (3.0, 3.0)
    says(estate, at_rest=True)
    estate.settled([P])
    site.clock.advance(1)
    assert waits(estate) == (4.0, 4.0), "that the next one ended well proves nothing of the one before"
    await estate.leave()
    assert waits(await site.owner(AUTO)) == (0.0, 0.0), "nor does the process"


async def test_a_process_that_is_killed_may_still_write(site: Site) -> None:
    await (await site.owner(AUTO)).leave()
    assert waits(await site.owner(AUTO)) == (None, None)
    assert waits(await site.owner(AUTO)) == (0.0, 0.0), "it did not give the flow back"


async def test_how_long_a_left_out_range_is_known_counts_over_the_tasks_of_one_process(site: Site) -> None:
    """With tasks that are killed more often than they may write, it would never be filled."""
    estate = await site.owner(AUTO)
    await estate.reread([P])
    assert waits(estate) == (0.0, 0.0)
    await leaves_out(estate, 7, 9)
    site.clock.advance(20)
    await estate.reread([P])
    assert waits(estate) == (0.0, 20.0)
    await leaves_out(estate, 9, 11)
    site.clock.advance(5)
    assert waits(estate) == (5.0, 5.0), "another range"
    await estate.take_over(displaced=True)
    await estate.refresh(owned=frozenset())
    assert waits(estate) == (0.0, 0.0), "others may have copied meanwhile"


async def test_every_owner_writes_as_the_same_producer(site: Site) -> None:
    first = await site.owner(AUTO)
    writer = first.positions.control.writer
    assert writer is not None
    second = await site.owner(AUTO)
    assert second.positions.control.writer == writer
    assert copy_of(second) == copy_of(first)


async def test_a_preserved_copy_without_a_stored_position_begins_where_it_began(site: Site) -> None:
    """A reset would leave out what was written meanwhile and is not copied."""
    latest = "A.consumer.auto.offset.reset = latest"
    await site.write(site.source, "t", 5)
    assert kind(await site.owner(AUTO, latest)) == (True, 5, "", 0, 5)
    await site.write(site.source, "t", 5)
    estate = await site.owner(AUTO, latest)
    assert (estate.table.rows[P].position, estate.table.rows[P].stored) == (5, False)


async def test_what_began_before_is_translated_and_stays_so(site: Site) -> None:
    await (await site.owner(TRANSLATED)).journal.position(P, 3)
    assert kind(await site.owner(AUTO)) == (False, 0, "POSITION_STORED", 0, 0)
    estate = await site.owner(AUTO)
    assert kind(estate) == (False, 0, "POSITION_STORED", 0, 0)
    assert not assigned(estate).HasField("preserved")
    assert assigned(estate).position == 3


async def test_a_copy_of_nothing_yet_can_still_be_preserved(site: Site) -> None:
    await (await site.owner(TRANSLATED)).journal.position(P, 0)
    assert kind(await site.owner(AUTO)) == (True, 0, "", 0, 0)


async def test_a_compacted_target_and_one_with_records_are_translated(site: Site) -> None:
    await site.write(site.target, "A.t", 1)
    assert kind(await site.owner(AUTO))[2] == "TARGET_NOT_EMPTY"
    site.target.add_topic("A.t")
    await site.target.alter_topic_configs({"A.t": [ConfigChange(name="cleanup.policy", value="compact")]})
    assert kind(await site.owner(AUTO))[2] == "COMPACTED"


async def test_a_copy_that_costs_too_much_is_translated_or_refused_as_configured(site: Site) -> None:
    little = "twinlog.offsets.fill.max = 4"
    await site.write(site.source, "t", 5)
    await site.source.delete_records({P: 5})
    refused = await site.owner(PRESERVED, little)
    assert obstacle(refused) == "FILL_TOO_LARGE"
    assert refused.table.plannable() == frozenset()
    assert P not in refused.positions.control.copies
    assert kind(await site.owner(AUTO, little)) == (False, 0, "FILL_TOO_LARGE", 0, 0)
    # It was decided once: a later demand does not change the copy, and is refused.
    estate = await site.owner(PRESERVED)
    assert obstacle(estate) == "FILL_TOO_LARGE"
    message = estate.table.rows[P].obstacle
    assert message is not None
    assert "delete the target topic" in message.message or "raise the key" in message.message


async def test_a_refused_copy_begins_once_the_cause_is_gone(site: Site) -> None:
    await site.target.alter_topic_configs({"A.t": [ConfigChange(name="cleanup.policy", value="compact")]})
    estate = await site.owner(PRESERVED)
    assert obstacle(estate) == "COMPACTED"
    await site.target.alter_topic_configs({"A.t": [ConfigChange(name="cleanup.policy", value="delete")]})
    site.clock.advance(RETRY_SECONDS)
    assert await estate.plan_is_stale(frozenset())
    assert kind(estate)[0]


async def test_what_the_target_refuses_for_good_makes_a_copy_translated(site: Site) -> None:
    estate = await site.process(AUTO)
    probe_of(estate).known[COPY] = from_code(29, "ask for producers", alias="B")
    await estate.take_over(displaced=False)
    await estate.refresh(owned=frozenset())
    assert kind(estate)[2] == "RIGHTS_MISSING"


async def test_without_a_producer_identity_copies_are_translated(site: Site) -> None:
    estate = await site.process(AUTO)
    probe_of(estate).no_writer = from_code(31, "initialise the producer", alias="B")
    await estate.take_over(displaced=False)
    await estate.refresh(owned=frozenset())
    assert kind(estate)[2] == "RIGHTS_MISSING"
    assert estate.positions.control.writer is None


async def test_a_copy_of_which_nothing_is_known_now_waits(site: Site) -> None:
    estate = await site.process(AUTO)
    probe_of(estate).known[COPY] = from_code(6, "ask for producers", alias="B")
    await estate.take_over(displaced=False)
    await estate.refresh(owned=frozenset())
    assert (obstacle(estate), estate.table.rows[P].copy) == ("LEADER_UNAVAILABLE", None)
    del probe_of(estate).known[COPY]
    site.clock.advance(RETRY_SECONDS)
    assert await estate.plan_is_stale(frozenset())
    assert kind(estate)[0]


async def test_a_flow_that_is_not_exactly_once_is_translated(site: Site) -> None:
    estate = await site.owner(AUTO, NOT_EXACT)
    assert kind(estate)[2] == "TRANSACTIONS_DISABLED"


async def test_a_target_that_was_made_anew_is_written_from_the_beginning(site: Site) -> None:
    """Nothing that the source still holds is missing from it: no gap."""
    await site.write(site.source, "t", 9)
    await site.source.delete_records({P: 2})
    first = await site.owner(AUTO)
    await first.journal.position(P, 7)
    site.target.add_topic("A.t")
    estate = await site.owner(AUTO)
    assert kind(estate) == (True, 2, "", 0, 2)
    assert (estate.table.rows[P].position, ledger(estate)) == (2, [])
    assert (await site.owner(AUTO)).table.rows[P].position == 2


async def test_a_target_that_was_made_anew_while_its_task_wrote_is_not_empty(site: Site) -> None:
    """What was on its way to the topic before may lie anywhere in the new one, also the end of a
    transaction."""
    first = await site.owner(AUTO)
    writer = first.positions.control.writer
    assert writer is not None
    await first.journal.position(P, 7)
    site.target.add_topic("A.t")
    await site.write(site.target, "A.t", 3)
    estate = await site.process(AUTO)
    probe_of(estate).known[COPY] = [writer.producer_id]
    await estate.take_over(displaced=False)
    await estate.refresh(owned=frozenset())
    assert kind(estate) == (False, 0, "TARGET_NOT_EMPTY", 0, 0)


async def test_a_translated_copy_that_was_made_anew_is_decided_again(site: Site) -> None:
    await (await site.owner(TRANSLATED)).journal.position(P, 3)
    assert not kind(await site.owner(AUTO))[0]
    site.target.add_topic("A.t")
    assert kind(await site.owner(AUTO)) == (True, 0, "", 0, 0)


async def test_a_source_that_was_made_anew_makes_its_copy_translated(site: Site) -> None:
    await site.write(site.source, "t", 9)
    await (await site.owner(AUTO)).journal.position(P, 9)
    site.source.add_topic("t")
    estate = await site.owner(AUTO)
    assert kind(estate) == (False, 0, "SOURCE_RECREATED", 0, 0)
    assert (estate.table.rows[P].position, ledger(estate)) == (0, [])
    # Where the configuration demands the source's offsets nothing is copied.
    refused = await site.owner(PRESERVED)
    assert obstacle(refused) == "SOURCE_RECREATED"
    # The copy is new as well now.
    site.target.add_topic("A.t")
    assert kind(await site.owner(PRESERVED)) == (True, 0, "", 0, 0)


async def test_no_offset_of_a_copy_is_that_of_a_source_that_was_made_anew(site: Site) -> None:
    """Its task found it shorter, before the driver saw that it is another topic."""
    estate = await site.owner(AUTO)
    assigned(estate)
    await ends(estate, position=40, until=40, reason="SOURCE_TRUNCATED")
    assert await estate.plan_is_stale(frozenset([P]))
    assert kind(estate) == (False, 40, "SOURCE_TRUNCATED", 0, 0)
    site.source.add_topic("t")
    second = await site.owner(AUTO)
    assert kind(second) == (False, 0, "SOURCE_RECREATED", 0, 0)
    assert second.table.rows[P].position == 0


async def test_a_source_that_was_made_anew_before_a_position_was_stored_begins_at_0(site: Site) -> None:
    await site.write(site.source, "t", 9)
    await site.source.delete_records({P: 9})
    assert kind(await site.owner(AUTO))[1] == 9
    site.source.add_topic("t")
    estate = await site.owner(AUTO)
    assert kind(estate) == (False, 0, "SOURCE_RECREATED", 0, 0)
    assert estate.table.rows[P].position == 0


async def test_a_task_that_cannot_keep_the_offsets_makes_its_copy_translated(site: Site) -> None:
    estate = await site.owner(AUTO)
    handed = assigned(estate)
    assert handed.HasField("preserved")
    await ends(estate, position=40, until=37, reason="FOREIGN_WRITE")
    assert await estate.plan_is_stale(frozenset([P]))
    assert kind(estate) == (False, 37, "FOREIGN_WRITE", 0, 0)
    assert not assigned(estate).HasField("preserved")
    assert assigned(estate).position == 40
    # The word of that task says no more: what it was about is settled.
    assert not await estate.plan_is_stale(frozenset([P]))
    second = await site.owner(AUTO)
    assert kind(second) == (False, 37, "FOREIGN_WRITE", 0, 0)
    assert (second.table.rows[P].position, second.table.rows[P].stored) == (40, True)


async def test_a_copy_that_must_keep_the_offsets_and_cannot_is_set_aside_for_every_owner(site: Site) -> None:
    """The next task would take the end of the copy for its position, and leave out records."""
    estate = await site.owner(PRESERVED)
    assigned(estate)
    await ends(estate, position=40, until=37, reason="FOREIGN_WRITE")
    assert await estate.plan_is_stale(frozenset([P]))
    await estate.refresh(owned=frozenset([P]))
    for each in (estate, await site.owner(PRESERVED)):
        assert obstacle(each) == "FOREIGN_WRITE"
        assert each.table.plannable() == frozenset()
    # Who allows it continues where that task said.
    allowed = await site.owner(AUTO)
    assert (kind(allowed), allowed.table.rows[P].position) == ((False, 37, "FOREIGN_WRITE", 0, 0), 40)


@pytest.mark.parametrize("offsets", [AUTO, PRESERVED])
async def test_a_copy_whose_task_was_killed_when_it_had_ended_does_not_continue(
    site: Site, offsets: str
) -> None:
    estate = await site.owner(offsets)
    assigned(estate)
    reported(estate, position=37, target_end_offset=38, source_end_offset=50)
    await ends(estate, position=40, until=37, reason="FOREIGN_WRITE", tell=False)
    await estate.reread([P])
    row = estate.table.rows[P]
    assert (row.position, row.is_preserved) == (40, False)
    assert (row.copy is None) == (offsets is PRESERVED), "it is not handed out"
    await estate.refresh(owned=frozenset())
    assert obstacle(estate) == ("FOREIGN_WRITE" if offsets is PRESERVED else "")


async def test_the_last_words_of_a_task_that_ended_a_copy_count_for_the_next(site: Site) -> None:
    estate = await site.owner(AUTO)
    assigned(estate)
    await ends(estate, position=40, until=37, reason="FOREIGN_WRITE")
    estate.settled([P])
    assert not assigned(estate).HasField("preserved")
    assert assigned(estate).position == 40


async def test_what_a_task_has_put_on_the_log_is_not_written_over(site: Site) -> None:
    """Its driver has read of it, and not heard of it yet."""
    estate = await site.owner(AUTO)
    assigned(estate)
    await ends(estate, position=40, until=37, reason="FOREIGN_WRITE", tell=False)
    await estate.confirm()
    await estate.plan_is_stale(frozenset([P]))
    other = await site.owner(AUTO)
    assert kind(other) == (False, 37, "FOREIGN_WRITE", 0, 0)


async def test_a_doubt_that_could_not_be_put_on_the_log_is_raised_again(site: Site) -> None:
    await site.owner(AUTO)
    site.clock.advance(FOREIGN_AFTER_MS / 1000 + 1)
    stranger = await site.process(AUTO)
    stranger.journal.partition_count = 25
    await stranger.journal.position(P, 8)
    estate = await site.process(AUTO)

    def refuse(call: Call) -> None:
        if b'"copy"' in (call.arguments.get("key") or b""):
            raise from_code(7, call.operation, alias="B")

    remove = site.target.hooks.add("append", refuse, after=False)
    with pytest.raises(KafkaError, match="append"):
        await estate.take_over(displaced=False)
    remove()
    await estate.take_over(displaced=False)
    await estate.refresh(owned=frozenset())
    assert kind(await site.owner(AUTO)) == (False, 0, "POSITION_STORED", 0, 0)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [(("twinlog.offsets = translated",), "OFFSETS_CONFIGURED"), ((AUTO, NOT_EXACT), "TRANSACTIONS_DISABLED")],
)
async def test_a_copy_that_the_configuration_does_not_want_is_ended_by_its_task(
    site: Site, settings: tuple[str, ...], reason: str
) -> None:
    """At the end that the task has compared with the source: the length of the log alone says nothing."""
    await (await site.owner(AUTO)).journal.position(P, 2)
    await site.write(site.target, "A.t", 5)
    estate = await site.owner(*settings)
    assert kind(estate) == (True, 0, "", 0, 0)
    told = assigned(estate)
    assert (told.preserved.end_reason, bool(told.preserved.end_message)) == (reason, True)
    await ends(estate, position=4, until=4, reason=reason)
    assert await estate.plan_is_stale(estate.table.plannable())
    assert kind(estate) == (False, 4, reason, 0, 0)
    assert (estate.table.rows[P].position, estate.table.rows[P].stored) == (4, True)
    assert not assigned(estate).HasField("preserved")
    assert kind(await site.owner(AUTO)) == (False, 4, reason, 0, 0), "never back"


async def test_what_a_task_leaves_out_counts_for_the_next(site: Site) -> None:
    """It has put that on the log before it says so."""
    estate = await site.owner(AUTO)
    assigned(estate)
    fact = copy_of(estate)
    await estate.journal.state(replace(fact, skip_from=4, skip_to=9))
    report = PartitionReport(partition=P, position=9, skipped=SkippedRange(first=4, end=9))
    estate.table.apply(Reported(slot=0, report=TaskReport(partitions=(report,)), now_ms=1), 1.0)
    await estate.plan_is_stale(frozenset([P]))
    assert kind(estate) == (True, 0, "", 4, 9)
    assert assigned(await site.owner(AUTO)).preserved.skip_from == 4


async def test_a_preserved_copy_that_has_begun_is_moved_by_its_task_alone(site: Site) -> None:
    """Only the task has compared the end of the copy with the source: a stranger's record may lie there."""
    await site.write(site.source, "t", 9)
    estate = await site.owner(AUTO)
    await site.write(site.target, "A.t", 2)
    with pytest.raises(KafkaError) as refused:
        await estate.set_position(P, 6, bounds=LogBounds(start=0, end=9))
    assert refused.value.reason == "POSITION_NOT_MOVED"
    assert kind(estate) == (True, 0, "", 0, 0)
    assert ledger(estate) == []
    assert estate.table.plannable() == {P}


async def test_a_first_position_of_an_operator_can_begin_a_preserved_copy(site: Site) -> None:
    none = "A.consumer.auto.offset.reset = none"
    await site.write(site.source, "t", 9)
    estate = await site.owner(AUTO, none)
    assert obstacle(estate) == "NO_POSITION"
    await estate.set_position(P, 3)
    assert kind(estate) == (True, 3, "", 0, 3)
    assert (await site.owner(AUTO, none)).table.rows[P].position == 3


async def test_a_first_position_of_a_copy_that_is_refused_is_refused(site: Site) -> None:
    none = "A.consumer.auto.offset.reset = none"
    await site.write(site.source, "t", 9)
    estate = await site.owner(PRESERVED, none, "twinlog.offsets.fill.max = 1")
    with pytest.raises(FatalKafkaError, match=r"fill\.max"):
        await estate.set_position(P, 3)
    assert estate.table.rows[P].position is None


async def test_a_copy_that_others_may_have_written_is_translated(site: Site) -> None:
    """MirrorMaker 2 stored a position long after our last owner: what it wrote has offsets of its own."""
    await site.owner(AUTO)
    site.clock.advance(FOREIGN_AFTER_MS / 1000 + 1)
    stranger = await site.process(AUTO)
    stranger.journal.partition_count = 25
    await stranger.journal.position(P, 8)
    estate = await site.owner(AUTO)
    assert kind(estate) == (False, 0, "POSITION_STORED", 0, 0)
    assert estate.table.rows[P].position == 8


async def test_a_position_behind_those_of_an_owner_that_stopped_in_order_is_known_at_once(
    site: Site,
) -> None:
    """MirrorMaker 2 copied for a moment: its word counts, so nothing is repeated."""
    first = await site.owner(AUTO)
    await first.journal.position(P, 4)
    await first.leave()
    assert kind(await site.owner(AUTO)) == (True, 0, "", 0, 0)
    second = await site.owner(AUTO)
    await second.leave()
    stranger = await site.process(AUTO)
    stranger.journal.partition_count = 25
    await stranger.journal.position(P, 8)
    estate = await site.owner(AUTO)
    assert kind(estate) == (False, 0, "POSITION_STORED", 0, 0)
    assert estate.table.rows[P].position == 8


async def test_positions_of_an_owner_that_stopped_in_order_are_its_own_by_whatever_clock(
    site: Site,
) -> None:
    first = await site.owner(AUTO)
    now_ms = site.clock.now_ms()
    site.clock.set_wall_clock(now_ms + 10 * FOREIGN_AFTER_MS)
    await first.journal.position(P, 4)
    site.clock.set_wall_clock(now_ms)
    await first.leave()
    assert kind(await site.owner(AUTO)) == (True, 0, "", 0, 0)


async def test_who_was_displaced_does_not_say_where_it_left(site: Site) -> None:
    """It would call positions of the owner after it a stranger's."""
    first = await site.owner(AUTO)
    second = await site.owner(AUTO)
    with pytest.raises(FatalKafkaError, match="taken"):
        await first.leave()
    await second.journal.position(P, 4)
    assert kind(await site.owner(AUTO)) == (True, 0, "", 0, 0)


async def test_a_copy_that_an_older_version_continued_is_translated(site: Site) -> None:
    first = await site.owner(AUTO)
    await first.journal.position(P, 8)
    await first.journal.state(OwnerFact(instance="old", slots=1, renewed_at_ms=1, keeps_offsets=False))
    estate = await site.owner(AUTO)
    assert kind(estate) == (False, 0, "POSITION_STORED", 0, 0)
    assert kind(await site.owner(AUTO)) == (False, 0, "POSITION_STORED", 0, 0)


async def test_a_preserved_copy_is_never_told_to_have_lost_its_tail(site: Site) -> None:
    """Its task sees where it ends, and copies again what it lost."""
    await site.write(site.target, "A.t", 0)
    estate = await site.owner(AUTO)
    reported(estate, position=50, target_end_offset=50, source_end_offset=50)
    await estate.target_logs.look_at_ends(estate.topics)
    await estate.target_logs.put_ends_on_log(estate.topics)
    assert ledger(estate) == []
    assert P not in estate.positions.control.targets


async def test_a_copy_is_not_handed_out_before_its_kind_is_on_the_log(site: Site) -> None:
    estate = await site.process(AUTO)
    await estate.take_over(displaced=False)

    def refuse(call: Call) -> None:
        raise from_code(7, call.operation, alias="B")

    remove = site.target.hooks.add("append", refuse, after=False)
    with pytest.raises(KafkaError, match="append"):
        await estate.refresh(owned=frozenset())
    assert estate.table.plannable() == frozenset()
    remove()
    await estate.refresh(owned=frozenset())
    assert kind(estate)[0]


def test_the_words_of_an_earlier_task_do_not_count_for_a_new_one() -> None:
    fact = CopyFact(partition=P, preserved=True, since=0, reason="", target_topic_id="x")
    report = PartitionReport(partition=P, position=0, needs_translation=True)
    row = PartitionRow(partition=P, copy=fact, report=report)
    assert row.needs_translation
    PartitionTable(rows={P: row}).apply(Assigned(partition=P, slot=0), 1.0)
    assert not row.needs_translation


def test_a_position_of_a_preserved_copy_is_set_forward_only() -> None:
    fact = CopyFact(partition=P, preserved=True, since=0, reason="", target_topic_id="x")
    row = PartitionRow(partition=P, copy=fact, position=5)
    back = planned_move(P, row, wanted=3, start=0, end=9)
    assert (back.reason, back.to_offset) == ("OFFSETS_PRESERVED", 3)
    assert "delete the target topic" in back.message
    forward = planned_move(P, row, wanted=None, start=0, end=9)
    assert (forward.skipped_offsets, forward.message) == (4, ""), "nobody sees it"
    far = planned_move(P, row, wanted=None, start=0, end=905)
    assert (far.reason, far.skipped_offsets) == ("", 900)
    assert "read_uncommitted" in far.message
    row = PartitionRow(partition=P, copy=replace(fact, preserved=False), position=5)
    assert planned_move(P, row, wanted=3, start=0, end=9).repeated_offsets == 2


def test_a_position_of_a_copy_that_holds_what_the_source_lost_is_set_anywhere_and_ends_the_offsets() -> None:
    fact = CopyFact(partition=P, preserved=True, since=0, reason="", target_topic_id="x")
    report = PartitionReport(partition=P, position=50, reason="DATA_LOSS", source_lost_from=40)
    row = PartitionRow(partition=P, copy=fact, position=50, report=report)
    for wanted in (0, 30, 40):
        move = planned_move(P, row, wanted=wanted, start=0, end=40)
        assert (move.reason, move.to_offset, move.offsets_end) == ("", wanted, True)
    assert planned_move(P, row, wanted=60, start=0, end=90).offsets_end, "a log that has grown again"
    translated = PartitionRow(partition=P, copy=replace(fact, preserved=False), position=50, report=report)
    assert not planned_move(P, translated, wanted=0, start=0, end=40).offsets_end
