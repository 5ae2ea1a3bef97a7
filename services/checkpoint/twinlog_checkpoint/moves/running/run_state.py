"""What one run of a move was asked for, and what it has found and done so far."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from twinlog.model import TopicPartition
from twinlog.moves.record import Moves, Run, Step
from twinlog_checkpoint.flow.parts import Duty
from twinlog_checkpoint.journal import MoveJournal
from twinlog_checkpoint.moves.planning.plan import MoveOptions, MovePartition, MovePlan
from twinlog_checkpoint.moves.planning.planner import MovePlanner
from twinlog_checkpoint.moves.running.run_record import StepEvent, StepState, finished, run_of, step_event


@dataclass(slots=True, kw_only=True)
class RunState:
    planner: MovePlanner
    duty: Duty
    journal: MoveJournal
    options: MoveOptions
    before: Moves
    """What was recorded when it began."""
    done_with: Collection[str]
    """The groups that earlier runs have moved. They stay as they are, wherever their consumers or their
    operator have put them since."""
    moves: Moves
    """The record with what the run has done."""
    plan: MovePlan = field(init=False)
    partitions: Sequence[MovePartition] = ()
    """As they are carried out."""
    all_listed: bool = True
    """Otherwise there may be groups that it did not see."""
    fenced: bool = False
    """A fence was created by this run."""
    drained: bool = False
    """Everything before the final offsets is copied."""
    finals: Mapping[TopicPartition, int | None] | None = None
    """The final offsets, by partition, None where nobody tells; None while the cluster does not answer."""
    still_written: Collection[TopicPartition] = ()
    """Partitions that somebody still wrote to behind the fence."""
    unfenced_topics: Collection[str] = ()
    """Topics of the recorded fence whose ACL somebody else has removed."""

    @property
    def recorded(self) -> Run:
        return run_of(self.moves)

    @property
    def is_repeated(self) -> bool:
        """It checks again what an earlier run finished, and is recorded only if there is something to do."""
        last, run = self.before.run, self.recorded
        return last is not None and last.run_id != run.run_id and last.kind is run.kind and not last.aborted

    async def store(self, moves: Moves) -> None:
        self.moves = moves
        await self.duty.hold(lambda: self.journal.store(moves))

    def finished(self) -> Moves:
        """The record if the run ends now."""
        now_ms = self.planner.clock.now_ms()
        return finished(self.moves, self.partitions, self.options, all_listed=self.all_listed, now_ms=now_ms)

    def event(
        self, step: Step, state: StepState, message: str, *, records_left: int | None = None
    ) -> StepEvent:
        return step_event(self.planner.clock, step, state, message, records_left=records_left)
