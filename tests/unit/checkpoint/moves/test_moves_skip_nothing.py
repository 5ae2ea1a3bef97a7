"""Whatever happens between moves, no group skips a record that it has not read: random histories."""

import random
from collections.abc import Collection
from dataclasses import replace

import pytest

from twinlog.errors import StateError
from twinlog.model import Record
from twinlog_checkpoint.moves.planning.decision import CopyReport, CopyState
from twinlog_checkpoint.moves.planning.plan import MoveAction
from unit.checkpoint.mirrored_logs import COPY, ORIGIN
from unit.checkpoint.moves.move_rig import NO_WAIT, MoveRig, actions, move_rig, offset_of, run
from unit.checkpoint.moves.test_foreign_records import failed_over, written_there
from unit.checkpoint.moves.test_sync_after_moves import next_pass, synced

STEPS = ("read", "retain", "expire", "foreign", "move", "move", "sync", "sync")


class Life:
    """One group, and what it has read."""

    def __init__(self, rig: MoveRig, dice: random.Random) -> None:
        self.rig, self.dice = rig, dice
        self.on_target = False
        self.read: set[bytes | None] = set()

    def log(self) -> list[Record]:
        return self.rig.logs.visible_target() if self.on_target else self.rig.logs.visible_source()

    async def unread(self) -> list[Record]:
        logs = self.rig.logs
        here, partition = (logs.target, COPY) if self.on_target else (logs.source, ORIGIN)
        place = await offset_of(here, "g", partition)
        assert place is not None
        return [record for record in self.log() if record.offset >= place]

    async def does(self, step: str) -> None:
        logs = self.rig.logs
        if step == "read" and (unread := await self.unread()):
            count = self.dice.choice([self.dice.randint(1, len(unread)), len(unread)])
            self.stands_behind(unread[:count])
        elif step == "retain":
            logs.retain(self.dice.choice(logs.visible_source()).offset)
        elif step == "expire":
            there = logs.visible_target()
            logs.target.log(COPY).delete_before(there[self.dice.randrange(len(there) // 2)].offset)
        elif step == "foreign" and self.on_target:
            written_there(self.rig, self.dice.randint(1, 5))
        elif step == "sync":
            before = await self.unread()
            await next_pass(self.rig)
            await synced(self.rig)
            assert await self.unread() == before
        elif step == "move":
            await self.moves()

    def stands_behind(self, records: Collection[Record]) -> None:
        logs, last = self.rig.logs, list(records)[-1]
        self.read |= {record.value for record in records}
        here, partition = (logs.target, COPY) if self.on_target else (logs.source, ORIGIN)
        here.set_group("g", {partition: last.offset + 1})

    async def moves(self) -> None:
        unread = {record.value for record in await self.unread()} - self.read
        runner = self.rig.served.failback if self.on_target else self.rig.served.failover
        if (await runner.plan(NO_WAIT)).blockers:
            assert unread, "a group that has read everything can always move"
            with pytest.raises(StateError, match="not possible now"):
                await run(runner)
            return
        await run(runner)
        self.on_target = not self.on_target
        assert unread <= {record.value for record in await self.unread()}


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("max_bytes", [1 << 30, 0])
async def test_no_group_skips_a_record_that_it_has_not_read(seed: int, max_bytes: int) -> None:
    """Also where no log may be read, so that places are known by offset syncs only, and it is not known what
    other producers wrote behind a copy's end."""
    dice = random.Random(seed)
    async with move_rig(seed=seed, translation_max_bytes=max_bytes) as rig:
        life = Life(rig, dice)
        life.stands_behind(rig.logs.visible_source()[: dice.randint(1, 50)])
        for _ in range(12):
            step = dice.choice(STEPS)
            if max_bytes or step != "foreign":
                await life.does(step)


@pytest.mark.parametrize("left", [140, 0])
async def test_what_was_deleted_on_the_target_is_counted_for_each_group_that_has_not_read_it(
    rig: MoveRig, left: int
) -> None:
    """Also where the copy has nothing left to compare, so that only offset syncs tell its place."""
    logs = rig.logs
    here, there = logs.visible_source(), logs.visible_target()
    for unread in (200, 3, 0):
        at = here[-unread].offset if unread else rig.source_end
        logs.source.set_group(f"{unread} unread", {ORIGIN: at})
    log = logs.target.log(COPY)
    log.delete_before(there[-left].offset if left else log.end_offset)
    before_it = {record.value for record in here} - {record.value for record in logs.visible_target()}
    skipped = {
        unread: sum(record.value in before_it for record in here[len(here) - unread :])
        for unread in (200, 3, 0)
    }
    plan = await rig.served.failover.plan(NO_WAIT)
    accepted = await rig.served.failover.plan(replace(NO_WAIT, accept_loss=True))
    stay = {f"{unread} unread" for unread, lost in skipped.items() if lost}
    assert actions(plan) == {
        f"{unread} unread": MoveAction.SKIP_UNREAD if lost else MoveAction.WRITE
        for unread, lost in skipped.items()
    }
    (blocker,) = plan.blockers
    assert all(f"{lost} before the start" in blocker for lost in skipped.values() if lost)
    (note,) = [each for each in accepted.warnings if "BEFORE_START" in each]
    assert all(group in note for group in stay)


async def test_what_only_the_copy_has_is_counted_where_no_sync_lies_behind_the_start_of_the_original(
    rig: MoveRig,
) -> None:
    """The original has nothing left of what was copied."""
    await failed_over(rig, read=80)
    copied = len(rig.logs.visible_target())
    rig.logs.produce(10)
    rig.logs.retain(rig.logs.visible_source()[-1].offset)
    plan = await rig.served.failback.plan(NO_WAIT)
    assert actions(plan) == {"g": MoveAction.SKIP_UNREAD}
    (blocker,) = plan.blockers
    assert f"{copied - 80} before the start" in blocker


async def test_a_group_below_the_log_there_is_named_where_only_its_checkpoint_is_known(rig: MoveRig) -> None:
    logs = rig.logs
    logs.source.set_group("g", {ORIGIN: logs.visible_source()[50].offset})
    await next_pass(rig)
    logs.target.log(COPY).delete_before(logs.visible_target()[200].offset)
    logs.source.take_away()
    plan = await rig.served.failover.plan(replace(NO_WAIT, accept_loss=True))
    assert plan.blockers == []
    assert any("group g" in each and "BEFORE_START" in each for each in plan.warnings)


async def test_a_group_that_has_read_on_there_is_not_said_to_continue_at_the_first_record(
    rig: MoveRig,
) -> None:
    logs = rig.logs
    state = CopyState(state="RUNNING", position=rig.source_end, equal_below=None)
    rig.fakes.copy_states.report = CopyReport(partitions={ORIGIN: state})
    log = logs.target.log(COPY)
    log.delete_before(logs.visible_target()[200].offset)
    logs.source.set_group("g", {ORIGIN: logs.visible_source()[50].offset})
    logs.target.set_group("g", {COPY: log.end_offset})
    plan = await rig.served.failover.plan(NO_WAIT)
    assert actions(plan) == {"g": MoveAction.KEEP_AHEAD}
    assert not [each for each in plan.warnings if "BEFORE_START" in each]


@pytest.mark.parametrize("preserved", [False, True])
async def test_a_group_past_the_end_of_the_log_that_it_leaves_is_named_with_both_places(
    rig: MoveRig, preserved: bool
) -> None:
    end, past = rig.source_end, rig.source_end + 50
    if preserved:
        state = CopyState(state="RUNNING", position=end, equal_below=None)
        rig.fakes.copy_states.report = CopyReport(partitions={ORIGIN: state})
    else:
        rig.logs.source.set_group("g", {ORIGIN: end})
        await next_pass(rig)
        await synced(rig)
    rig.logs.source.set_group("g", {ORIGIN: past})
    plan = await rig.served.failover.plan(NO_WAIT)
    (entry,) = plan.partitions
    (note,) = [each for each in plan.warnings if "past the end" in each]
    assert f"group g: its offset {past} is past the end {end} of orders-0 on A" in note
    assert f"on B it continues at {entry.to_offset}" in note
