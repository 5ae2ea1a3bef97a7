"""Whatever happens between moves, no group skips a record that it has not read: random histories."""

import random
from collections.abc import Collection

import pytest

from twinlog.errors import StateError
from twinlog.model import Record
from unit.checkpoint.mirrored_logs import COPY, ORIGIN
from unit.checkpoint.moves.move_rig import NO_WAIT, MoveRig, move_rig, offset_of, run
from unit.checkpoint.moves.test_foreign_records import written_there
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
            logs.target.log(COPY, "expire").delete_before(there[self.dice.randrange(len(there) // 2)].offset)
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
async def test_no_group_skips_a_record_that_it_has_not_read(seed: int) -> None:
    dice = random.Random(seed)
    async with move_rig(seed=seed) as rig:
        life = Life(rig, dice)
        life.stands_behind(rig.logs.visible_source()[: dice.randint(1, 50)])
        for _ in range(12):
            await life.does(dice.choice(STEPS))
