"""Positions that an operator moves, of copies that keep their source's offsets and are not at rest."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from twinlog.batches import NewRecord
from twinlog.kafka.deadline import pause
from twinlog.model import Flow, TopicPartition
from twinlog.testing.virtual_time import run_in_virtual_time
from twinlog_source.log.fact_records import parse_control
from twinlog_source.log.facts import CopyFact, Fact
from twinlog_source.partitions.orders import Reposition, WithdrawReposition
from twinlog_source.preserved.append_log import Phase
from twinlog_source.preserved.append_steps import Fill, ReadEnd, Tail
from twinlog_source.preserved.own_batches import ForeignWrite
from twinlog_source.task.moves import PositionMoves
from unit.source.preserved.preserved_rig import FIRST, PreservedRig

MOVE = 7


@dataclass
class Positions:
    """The positions topic: what is stored is on the log once the test says so."""

    stored: list[list[NewRecord]] = field(default_factory=list)
    on_log: bool = False

    def store_soon(self, partition: TopicPartition, extra: Sequence[NewRecord] = ()) -> None:
        self.stored.append(list(extra))

    def is_stored(self, partition: TopicPartition) -> bool:
        return self.on_log

    def facts(self) -> list[Fact]:
        parsed = [parse_control("A", each.key, each.value) for records in self.stored for each in records]
        return [each.fact for each in parsed if each is not None and each.fact is not None]


@asynccontextmanager
async def moving(rig: PreservedRig) -> AsyncIterator[tuple[PositionMoves, Positions]]:
    positions, stop = Positions(), asyncio.Event()
    moves = PositionMoves(
        flow=Flow("A", "B"),
        copies=rig.copies,
        target_writer=positions,
        on_gap=lambda _: None,
        on_moved=lambda: None,
        clock=rig.clock,
        preserved=rig.preserved,
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(moves.run(stop), name="moves")
        group.create_task(rig.preserved.judge.run(stop), name="judge")
        yield moves, positions
        stop.set()


def to(position: int) -> Reposition:
    return Reposition(partition=FIRST, position=position, number=MOVE)


def play(story: Callable[[PreservedRig], Awaitable[None]]) -> None:
    async def told() -> None:
        await story(PreservedRig())

    run_in_virtual_time(told())


def test_a_copy_whose_end_is_not_known_is_moved_once_it_is() -> None:
    """The task before wrote a record behind the stored position."""

    async def story(rig: PreservedRig) -> None:
        first = rig.assigned(FIRST, 5, is_end_read=False)
        async with moving(rig) as (moves, positions):
            moves.order(to(9))
            await pause(5)
            assert not positions.stored
            rig.end_read(first, 6)
            await pause(1)
            (fact,) = [each for each in positions.facts() if isinstance(each, CopyFact)]
            assert (fact.skip_from, fact.skip_to) == (6, 9)
            positions.on_log = True
            await pause(1)
            assert rig.copies[FIRST].repositioned == MOVE
            assert first.appends.next() == Fill(6, 3)

    play(story)


def test_a_copy_that_somebody_else_wrote_to_is_not_moved() -> None:
    async def story(rig: PreservedRig) -> None:
        first = rig.assigned(FIRST, 5)
        rig.fetched(FIRST, 5, 2)
        async with moving(rig) as (moves, positions):
            rig.answered(first, rig.sent(first), 6)
            assert first.appends.phase is Phase.FOREIGN
            moves.order(to(9))
            await pause(5)
            assert rig.copies[FIRST].needs_translation
            assert not positions.stored
            moves.withdraw(WithdrawReposition(partition=FIRST, number=MOVE))
            assert rig.copies[FIRST].withdrawn == MOVE
            (fact,) = rig.facts()
            assert isinstance(fact, CopyFact)
            assert not fact.preserved

    play(story)


def test_a_copy_that_shall_end_while_its_move_is_stored_ends_where_it_is_moved_to() -> None:
    """Else the fact of the move would say behind that of the end that the copy is preserved."""

    async def story(rig: PreservedRig) -> None:
        rig.assigned(FIRST, 5)
        async with moving(rig) as (moves, positions):
            moves.order(to(9))
            await pause(1)
            assert positions.stored
            rig.preserved.give_up(FIRST, reason="HOLES_TOO_FREQUENT", message="too many")
            assert not rig.copies[FIRST].needs_translation
            positions.on_log = True
            await pause(1)
            assert rig.copies[FIRST].repositioned == MOVE
            assert rig.copies[FIRST].needs_translation
            (fact,) = rig.facts()
            assert isinstance(fact, CopyFact)
            assert (fact.preserved, fact.since) == (False, 5)

    play(story)


def test_what_somebody_else_wrote_while_a_move_is_stored_is_judged_after_it() -> None:
    async def story(rig: PreservedRig) -> None:
        first = rig.assigned(FIRST, 5)
        async with moving(rig) as (moves, positions):
            moves.order(to(9))
            await pause(1)
            rig.found = ForeignWrite(7, 5, 0)
            rig.preserved.doubt(FIRST)
            assert isinstance(first.appends.next(), ReadEnd)
            first.appends.end_read(Tail(6, 0, True, foreign_from=5))
            rig.changed(first)
            await pause(5)
            assert not rig.copies[FIRST].needs_translation
            positions.on_log = True
            await pause(5)
            assert rig.copies[FIRST].repositioned == MOVE
            assert rig.copies[FIRST].needs_translation
            assert rig.copies[FIRST].committed == 9

    play(story)
