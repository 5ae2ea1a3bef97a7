"""The events of a running move: each step, then the report."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from twinlog.clock import Clock
from twinlog.moves.record import Moves, Step
from twinlog_checkpoint.moves.planning.plan import MovePlan


class StepState(StrEnum):
    STARTED = "STARTED"
    PROGRESS = "PROGRESS"
    DONE = "DONE"
    SKIPPED = "SKIPPED"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEvent:
    step: Step
    state: StepState
    message: str
    at_ms: int
    records_left: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveReport:
    run_id: str
    already_done: bool
    started_ms: int
    finished_ms: int
    plan: MovePlan
    """The plan with the actions as they were carried out."""
    left_behind: Sequence[str] = ()
    """Why the cluster that the groups left must not be switched off yet; empty when it may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aborted:
    """A run that was given up."""

    before: Moves
    after: Moves
    unfenced_topics: Sequence[str]
    """Topics whose writers may write again, sorted."""


MoveEvent = StepEvent | MoveReport


def step_event(
    clock: Clock, step: Step, state: StepState, message: str, *, records_left: int | None = None
) -> StepEvent:
    """A step event with the present time."""
    return StepEvent(step=step, state=state, message=message, at_ms=clock.now_ms(), records_left=records_left)
