"""Whether the offset of one group is written by a move, and which."""

from dataclasses import replace

import pytest

from twinlog.model import TopicPartition
from twinlog.moves.record import went_on
from twinlog.testing.fakes.cluster import Call
from twinlog_checkpoint.moves.group_place import GroupPlace
from twinlog_checkpoint.moves.planning.decision import decide
from twinlog_checkpoint.moves.planning.plan import THERE, MoveAction, MoveOptions
from twinlog_checkpoint.translation.translation import LogBounds, Translation, Verdict
from unit.checkpoint.mirrored_logs import COPY, ORIGIN
from unit.checkpoint.moves.move_rig import MoveRig, actions, moved, offset_of, run


async def test_active_groups_are_left_alone_on_either_side(rig: MoveRig) -> None:
    rig.logs.source.set_group("here", {ORIGIN: 100}, state="STABLE", member_count=1)
    rig.logs.source.set_group("there", {ORIGIN: 100})
    rig.logs.target.set_group("there", {COPY: 3}, state="STABLE", member_count=1)
    _, report = await run(rig.served.failover)
    assert actions(report.plan) == {
        "here": MoveAction.SKIP_ACTIVE_BEFORE,
        "there": MoveAction.SKIP_ACTIVE_THERE,
    }
    assert await offset_of(rig.logs.target, "there", COPY) == 3
    asked = MoveOptions(wait_seconds=0, include_active=True)
    _, report = await run(rig.served.failover, asked)
    assert actions(report.plan)["here"] is MoveAction.WRITE


async def test_a_group_that_became_active_while_it_was_moved_is_left_alone(rig: MoveRig) -> None:
    rig.logs.source.set_group("g", {ORIGIN: 100})

    def joins(call: Call) -> None:
        rig.logs.target.set_group("g", {COPY: 1}, state="STABLE", member_count=1)

    rig.logs.target.intercept("alter_group_offsets", joins)
    _, report = await run(rig.served.failover)
    record = await rig.served.failover.journal.load()
    assert actions(report.plan) == {"g": MoveAction.SKIP_ACTIVE_THERE}
    assert moved(record) == []


def place_there(
    wanted: int | None, *, verdict: Verdict = Verdict.FLOOR, present: int | None = None
) -> GroupPlace:
    """A place to move to in a log that begins at 100 and ends at 200."""
    return GroupPlace(
        group="g",
        from_partition=ORIGIN,
        to_partition=COPY,
        from_offset=1,
        translation=Translation(verdict=verdict, downstream_offset=wanted),
        state_before="EMPTY",
        state_there="DEAD",
        present_offset=present,
        log_there=LogBounds(start=100, end=200),
    )


@pytest.mark.parametrize(("wanted", "committed"), [(5, 100), (150, 150), (200, 200)])
def test_an_offset_before_the_targets_log_becomes_its_start(wanted: int, committed: int) -> None:
    decided = decide(place_there(wanted), include_active=False)
    assert (decided.action, decided.to_offset) == (MoveAction.WRITE, committed)


def test_an_offset_past_the_end_of_the_targets_log_is_not_moved_to() -> None:
    """The copy lost its tail: its end would skip whatever was copied since."""
    decided = decide(place_there(5_000), include_active=False)
    assert (decided.action, decided.to_offset) == (MoveAction.SKIP_NO_OFFSET, None)
    assert "past the end 200" in decided.message


@pytest.mark.parametrize(
    ("verdict", "present", "wrote", "action"),
    [
        (Verdict.EXACT, 180, True, MoveAction.WRITE),
        (Verdict.FLOOR, 230, True, MoveAction.WRITE),
        (Verdict.FLOOR, 180, True, MoveAction.KEEP_AHEAD),
        (Verdict.EXACT, 180, False, MoveAction.KEEP_AHEAD),
        (Verdict.EXACT, 200, False, MoveAction.KEEP_AHEAD),
    ],
)
def test_a_group_goes_back_only_from_where_a_wrong_checkpoint_put_it(
    verdict: Verdict, present: int, wrote: bool, action: MoveAction
) -> None:
    place = replace(place_there(150, verdict=verdict, present=present), wrote_present=wrote)
    assert decide(place, include_active=False).action is action


@pytest.mark.parametrize(
    ("present", "wrote", "action"),
    [
        (150, True, MoveAction.ALREADY_THERE),
        (150, False, MoveAction.SKIP_NO_OFFSET),
        (None, False, MoveAction.SKIP_NO_OFFSET),
        (250, True, MoveAction.SKIP_NO_OFFSET),
    ],
)
def test_a_group_past_the_end_of_its_log_stays_where_it_was_put_before_that_log_lost_records(
    present: int | None, wrote: bool, action: MoveAction
) -> None:
    place = replace(place_there(None, verdict=Verdict.PAST_END, present=present), wrote_present=wrote)
    decided = decide(place, include_active=False)
    assert (decided.action, decided.to_offset) == (action, 150 if action in THERE else None)


@pytest.mark.parametrize("verdict", [Verdict.EXACT, Verdict.FLOOR])
def test_a_group_that_was_put_back_is_set_back_from_what_twinlog_committed(verdict: Verdict) -> None:
    place = replace(place_there(150, verdict=verdict, present=180), wrote_further=True)
    decided = decide(place, include_active=False)
    assert (decided.action, decided.to_offset) == (MoveAction.WRITE, 150)
    assert "put back" in decided.message


@pytest.mark.parametrize("verdict", [Verdict.EXACT, Verdict.FLOOR])
def test_a_groups_own_offset_past_the_end_of_the_log_is_no_place(verdict: Verdict) -> None:
    """Nothing follows it: its consumers would begin as their auto.offset.reset says."""
    decided = decide(place_there(150, verdict=verdict, present=230), include_active=False)
    assert decided.action is MoveAction.SKIP_NO_OFFSET
    assert (decided.translation.verdict, decided.to_offset) == (Verdict.PAST_END, None)
    for words in ("230", "(200)", "150", "--delete-offsets --group g --topic A.orders"):
        assert words in decided.message
    used = replace(place_there(150, present=230), state_there="STABLE")
    assert decide(used, include_active=False).action is MoveAction.SKIP_ACTIVE_THERE


def test_a_group_with_an_offset_where_it_had_none_went_on() -> None:
    one, other = TopicPartition("orders", 0), TopicPartition("orders", 1)
    assert went_on({one: 5}, {one: 5, other: 0}, live=False)
    assert not went_on({one: 5, other: 0}, {one: 5}, live=False)
