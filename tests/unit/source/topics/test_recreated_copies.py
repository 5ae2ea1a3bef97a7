"""Copies whose target topic was deleted and created again: a gap, and the copy continues."""

from dataclasses import replace
from uuid import UUID

import pytest

from twinlog.errors import KafkaError
from twinlog.kafka.errors import UNAVAILABLE, from_reason
from twinlog.model import TopicPartition
from twinlog.testing.fakes.cluster import Call
from twinlog_source.log.facts import CopyFact
from twinlog_source.partitions.events import CopyChanged, SetAside
from twinlog_source.partitions.orders import PartitionState
from twinlog_source.topics.wanted import LOOK_SECONDS
from unit.source.flow_rig import FlowRig, P, ledger, reported
from unit.source.topics.lost_copies_rig import AUTO, PRESERVED, TRANSLATED, copied_whole, stored_whole


async def test_a_copy_recreated_while_nobody_copied_is_a_gap(rig: FlowRig) -> None:
    first = await rig.owner(TRANSLATED)
    await first.journal.position(P, 5)
    rig.target.add_topic("A.t")
    assert ledger(await rig.owner(TRANSLATED)) == [(0, 5, "TARGET_RECREATED")]
    assert ledger(await rig.owner(TRANSLATED)) == [(0, 5, "TARGET_RECREATED")], "only once"


async def test_a_copy_recreated_while_the_source_shows_no_ids_does_not_begin_again_when_it_does(
    rig: FlowRig,
) -> None:
    await rig.write(rig.source, "t", 9)
    await (await rig.owner(TRANSLATED)).journal.position(P, 5)
    shown = rig.source.topics["t"].topic_id
    rig.target.add_topic("A.t")
    rig.source.topics["t"].topic_id = UUID(int=0)
    await rig.owner(TRANSLATED)
    rig.source.topics["t"].topic_id = shown
    later = await rig.owner(TRANSLATED)
    assert later.table.rows[P].position == 5
    assert ledger(later) == [(0, 5, "TARGET_RECREATED")]


async def test_a_copy_is_not_taken_for_the_deleted_one_that_a_broker_still_reports(rig: FlowRig) -> None:
    await (await rig.owner(TRANSLATED)).journal.position(P, 5)
    state = await rig.owner(TRANSLATED)
    reported(state, position=5, state=PartitionState.BACKOFF, reason="TOPIC_CHANGED")
    deleted = rig.target.topics["A.t"].topic_id
    rig.target.add_topic("A.t")
    present, its_id = rig.target.topics["A.t"].topic_id, rig.target.topic_id("A.t")
    for shown in (present, deleted, present):
        rig.target.topics["A.t"].topic_id = shown
        rig.clock.advance(LOOK_SECONDS)
        await state.refresh(owned=frozenset())
        assert state.topics["t"].target_topic_id == its_id
        rig.target.topics["A.t"].topic_id = present
        await rig.say(state.decisions)
    assert ledger(state) == [(0, 5, "TARGET_RECREATED")]


async def test_a_recreated_target_topic_is_not_also_reported_as_truncated(rig: FlowRig) -> None:
    """Its new, shorter log is seen before it is known to be another one."""
    await rig.write(rig.target, "A.t", 5)
    await (await rig.owner(TRANSLATED)).journal.position(P, 5)
    state = await rig.owner(TRANSLATED)
    reported(state, position=5, source_end=5, target_end=5)
    rig.target.add_topic("A.t")
    await state.target_logs.look_at_ends(state.topics, copying=False)
    await rig.say(state.decisions)
    await state.refresh(owned=frozenset())
    assert ledger(state) == [(0, 5, "TARGET_RECREATED")]


async def test_the_gap_includes_records_that_only_the_deleted_target_topic_held(rig: FlowRig) -> None:
    """Retention took it from the source after it was copied. What it took from both before is no gap."""
    state = await copied_whole(rig, TRANSLATED)
    await rig.target.delete_records({TopicPartition("A.t", 0): 3})
    await rig.source.delete_records({P: 12})
    await state.leave()
    rig.target.add_topic("A.t")
    later = await rig.owner(TRANSLATED)
    assert ledger(later) == [(3, 20, "TARGET_RECREATED")]


async def test_what_only_a_copy_held_that_is_made_again_from_the_beginning_is_a_gap(rig: FlowRig) -> None:
    """The new copy gets the source's offsets, and all that the source still holds."""
    state = await copied_whole(rig, TRANSLATED)
    await rig.target.delete_records({TopicPartition("A.t", 0): 3})
    await rig.source.delete_records({P: 12})
    await state.leave()
    rig.target.add_topic("A.t")
    for _ in range(2):
        later = await rig.owner(AUTO)
        assert later.table.rows[P].position == 12
        assert ledger(later) == [(3, 12, "TARGET_RECREATED")]


@pytest.mark.parametrize(
    ("source_begins", "target_began", "gap"),
    [(12, 0, (0, 12)), (12, 3, (3, 12)), (20, 3, (3, 20)), (12, 12, None), (12, 15, None)],
)
async def test_what_only_a_preserved_copy_held_is_a_gap(
    rig: FlowRig, source_begins: int, target_began: int, gap: tuple[int, int] | None
) -> None:
    """Retention took it from the source after it was copied. What it took from the copy, too, is no gap."""
    await stored_whole(rig, AUTO)
    await rig.target.delete_records({TopicPartition("A.t", 0): target_began})
    await rig.source.delete_records({P: source_begins})
    await (await rig.owner(AUTO)).leave()
    rig.target.add_topic("A.t")
    for _ in range(2):
        later = await rig.owner(AUTO)
        row = later.table.rows[P]
        assert row.copy is not None
        assert (row.copy.preserved, row.position) == (True, source_begins)
        assert ledger(later) == ([] if gap is None else [(*gap, "TARGET_RECREATED")])


async def test_where_a_preserved_copy_began_is_no_end_of_it_once_it_is_translated(rig: FlowRig) -> None:
    await stored_whole(rig, AUTO)
    await rig.target.delete_records({TopicPartition("A.t", 0): 3})
    state = await rig.owner(AUTO)
    await state.leave()
    assert state.control.targets[P].held_from == 3
    ended = replace(
        state.control.copies[P], preserved=False, since=20, reason="FOREIGN_WRITE", leader_epoch=0
    )
    await state.journal.record(ended)
    row = (await rig.owner(AUTO)).table.rows[P]
    assert (row.target_end, row.losses) == (20, ())


@pytest.mark.parametrize("offsets", [TRANSLATED, AUTO])
@pytest.mark.parametrize("decided", [False, True])
async def test_a_copy_that_got_another_name_has_lost_nothing(
    rig: FlowRig, offsets: str, decided: bool
) -> None:
    """By another policy it is another topic; the former one still has the records."""
    await stored_whole(rig, TRANSLATED)
    state = await rig.owner(TRANSLATED)
    if decided:
        fact = CopyFact(
            partition=P,
            preserved=False,
            since=0,
            reason="TARGET_DIFFERS",
            target_topic_id=rig.target.topic_id("A.t"),
        )
        await state.journal.record(fact)
    reported(state, position=20, source_end=20, target_end=20)
    await rig.source.delete_records({P: 12})
    await state.leave()
    rig.target.topics["B.t"] = rig.target.topics["A.t"]
    rig.target.add_topic("A.t")
    for _ in range(2):
        assert ledger(await rig.owner(offsets)) == []


async def test_a_former_topic_of_which_the_target_says_nothing_for_now_is_not_taken_for_gone(
    rig: FlowRig,
) -> None:
    await rig.write(rig.source, "t", 20)
    await (await rig.owner(TRANSLATED)).journal.position(P, 20)
    rig.target.topics["B.t"] = rig.target.topics["A.t"]
    rig.target.add_topic("A.t")

    def fail(call: Call) -> None:
        if "B.t" in call.arguments["names"]:
            raise from_reason(UNAVAILABLE, "describe topics", alias="B")

    undo = rig.target.intercept("describe_topics", fail)
    with pytest.raises(KafkaError):
        await rig.owner(TRANSLATED)
    undo()
    assert ledger(await rig.owner(TRANSLATED)) == []


async def test_a_preserved_copy_that_got_another_name_has_lost_nothing(rig: FlowRig) -> None:
    await stored_whole(rig, AUTO)
    await rig.source.delete_records({P: 12})
    await (await rig.owner(AUTO)).leave()
    rig.target.topics["B.t"] = rig.target.topics["A.t"]
    rig.target.add_topic("A.t")
    for _ in range(2):
        later = await rig.owner(AUTO)
        row = later.table.rows[P]
        assert row.copy is not None
        assert (row.copy.preserved, row.position) == (True, 12)
        assert ledger(later) == []


async def test_what_was_never_copied_before_a_copy_is_made_again_is_a_gap(rig: FlowRig) -> None:
    await rig.write(rig.source, "t", 20)
    await (await rig.owner(AUTO)).journal.position(P, 6)
    await rig.source.delete_records({P: 12})
    rig.target.add_topic("A.t")
    assert ledger(await rig.owner(AUTO)) == [(0, 12, "TARGET_RECREATED")], "with what the former copy had"


@pytest.mark.parametrize("offsets", ["auto", "preserved"])
async def test_a_suspended_copy_restarts_when_its_target_topic_id_changes(rig: FlowRig, offsets: str) -> None:
    await rig.write(rig.source, "t", 9)
    state = await rig.owner(f"twinlog.offsets = {offsets}")
    await state.journal.position(P, 6)
    await state.reread([P])
    state.table.apply(CopyChanged(partition=P, copy=None), 0.0)
    aside = SetAside(partition=P, reason="FOREIGN_WRITE", message="who", retry_at=1e9)
    state.table.apply(aside, 0.0)
    rig.target.add_topic("A.t")
    await rig.say(state.decisions)
    await state.refresh(owned=frozenset())
    row = state.table.rows[P]
    assert row.copy is not None
    assert (row.copy.preserved, row.position, row.blocker) == (True, 0, None)
    assert ledger(state) == []


async def ended_at(rig: FlowRig, since: int) -> None:
    """A preserved copy that somebody else wrote to has ended, and its target topic is another one now."""
    await rig.write(rig.source, "t", 20)
    state = await rig.owner(AUTO)
    former = rig.target.topic_id("A.t")
    await state.journal.position(P, since)
    await state.journal.record(
        CopyFact(partition=P, preserved=False, since=since, reason="FOREIGN_WRITE", target_topic_id=former)
    )
    await state.leave()
    rig.target.add_topic("A.t")


async def write_foreign(rig: FlowRig) -> None:
    async with rig.target.writer() as writer:
        await writer.append(TopicPartition("A.t", 0), key=None, value=b"not the source's")


@pytest.mark.parametrize("then", [AUTO, TRANSLATED])
@pytest.mark.parametrize("first", [AUTO, PRESERVED, TRANSLATED])
async def test_what_a_deleted_topic_held_of_an_ended_copy_is_a_gap(
    rig: FlowRig, first: str, then: str
) -> None:
    """Also where the configuration demands the offsets at first, and the copy waits meanwhile."""
    await ended_at(rig, 6)
    await write_foreign(rig)
    await rig.owner(first)
    later = await rig.owner(then)
    assert later.table.rows[P].position == 6
    assert ledger(later) == [(0, 6, "TARGET_RECREATED")]


@pytest.mark.parametrize("first", [AUTO, PRESERVED])
async def test_what_the_recreated_topic_has_of_the_source_is_no_gap(rig: FlowRig, first: str) -> None:
    await ended_at(rig, 6)
    await rig.write(rig.target, "A.t", 2)
    await write_foreign(rig)
    await rig.owner(first)
    later = await rig.owner(AUTO)
    assert later.table.rows[P].position == 2
    assert ledger(later) == []


@pytest.mark.parametrize("then", [AUTO, TRANSLATED])
async def test_a_copy_that_went_on_in_the_recreated_topic_has_no_other_gap(rig: FlowRig, then: str) -> None:
    await ended_at(rig, 6)
    first = await rig.owner(TRANSLATED)
    assert ledger(first) == [(0, 6, "TARGET_RECREATED")]
    for _ in range(12):
        await write_foreign(rig)
    await first.journal.position(P, 18)
    await first.reread([P])
    reported(first, position=18, source_end=20, target_end=12)
    await first.leave()
    later = await rig.owner(then)
    assert later.table.rows[P].position == 18
    assert ledger(later) == [(0, 6, "TARGET_RECREATED")]


@pytest.mark.parametrize("then", [AUTO, TRANSLATED])
async def test_a_copy_that_was_copied_again_into_the_recreated_topic_is_not_set_back(
    rig: FlowRig, then: str
) -> None:
    """It begins with the source's records at their offsets, and a marker is behind them."""
    await ended_at(rig, 6)
    first = await rig.owner(TRANSLATED)
    await rig.write(rig.target, "A.t", 5)
    for _ in range(14):
        await write_foreign(rig)
    await first.journal.position(P, 18)
    await first.reread([P])
    reported(first, position=18, source_end=20, target_end=19)
    await first.leave()
    assert (await rig.owner(then)).table.rows[P].position == 18


@pytest.mark.parametrize("before", [AUTO, TRANSLATED])
async def test_all_that_a_deleted_topic_held_is_a_gap_where_the_new_one_has_other_records(
    rig: FlowRig, before: str
) -> None:
    state = await copied_whole(rig, before)
    await rig.source.delete_records({P: 12})
    await state.leave()
    rig.target.add_topic("A.t")
    await write_foreign(rig)
    for _ in range(2):
        later = await rig.owner(AUTO)
        assert later.table.rows[P].copy is not None
        assert not later.table.rows[P].is_preserved
        assert ledger(later) == [(0, 20, "TARGET_RECREATED")]


@pytest.mark.parametrize("before", [AUTO, TRANSLATED])
async def test_a_second_recreation_is_a_gap_of_what_the_second_topic_held(rig: FlowRig, before: str) -> None:
    state = await copied_whole(rig, before)
    await rig.target.delete_records({TopicPartition("A.t", 0): 3})
    await state.leave()
    await rig.source.delete_records({P: 12})
    await (await rig.owner(before)).leave()
    rig.target.add_topic("A.t")
    second = await rig.owner(AUTO)
    assert ledger(second) == [(3, 12, "TARGET_RECREATED")]
    await second.journal.position(P, 20)
    await second.leave()
    await rig.source.delete_records({P: 15})
    rig.target.add_topic("A.t")
    later = await rig.owner(AUTO)
    assert ledger(later) == [(3, 12, "TARGET_RECREATED"), (12, 15, "TARGET_RECREATED")]


async def test_a_target_that_does_not_say_where_copies_begin_holds_up_no_clean_stop(rig: FlowRig) -> None:
    await rig.write(rig.source, "t", 5)
    state = await rig.owner(AUTO)
    asked: list[Call] = []

    def refuse(call: Call) -> None:
        if TopicPartition("A.t", 0) in call.arguments["partitions"]:
            asked.append(call)
            raise from_reason(UNAVAILABLE, "list offsets", alias="B")

    rig.target.intercept("list_offsets", refuse)
    await state.leave()
    assert asked == []
    await state.target_logs.look_at_starts(state.topics)
    assert asked


async def test_a_gap_of_no_offsets_is_not_written(rig: FlowRig) -> None:
    """A copy that held nothing was created again: the source had nothing left when it began."""
    await rig.write(rig.source, "t", 5)
    await rig.source.delete_records({P: 5})
    await (await rig.owner()).journal.position(P, 5)
    rig.target.add_topic("A.t")
    assert ledger(await rig.owner()) == []


@pytest.mark.parametrize("mode", [AUTO, TRANSLATED])
async def test_records_already_in_the_recreated_topic_are_not_part_of_the_gap(
    rig: FlowRig, mode: str
) -> None:
    """Its coming is noticed after the first records are in it."""
    await rig.write(rig.source, "t", 20)
    await rig.write(rig.target, "A.t", 5)
    former = await rig.owner(TRANSLATED)
    await former.journal.position(P, 5)
    if mode == AUTO:
        # It was preserved once.
        topic_id = rig.target.topic_id("A.t")
        ended = CopyFact(partition=P, preserved=False, since=1, reason="", target_topic_id=topic_id)
        await former.journal.record(ended)
    state = await rig.owner(mode)
    reported(state, position=5, source_end=20, target_end=5)
    rig.target.add_topic("A.t")
    for _ in range(3):
        await write_foreign(rig)  # at other offsets than the source's
    reported(
        state,
        position=9,
        source_end=20,
        target_end=3,
        target_shortened_to=0,
        target_shortened_at=6,
    )
    await state.target_logs.note_shortened(state.topics)
    reported(state, position=12, source_end=20, target_end=6)
    await rig.say(state.decisions)
    await state.refresh(owned=frozenset())
    assert ledger(state) == [(0, 6, "TARGET_RECREATED")]
