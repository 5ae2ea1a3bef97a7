"""What a running move tells: each step as it happens, the report at the end."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from twinlog.clock import Clock
from twinlog_checkpoint.journal.record import MoveRecord, Step
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
    """What was done: the actions as they were carried out."""
    left_behind: Sequence[str] = ()
    """Why the cluster that was left must not be switched off yet, in words; empty when it may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aborted:
    """A run that was given up."""

    before: MoveRecord
    after: MoveRecord
    unfenced_topics: Sequence[str]
    """Open to writers again, sorted."""


MoveEvent = StepEvent | MoveReport


def step_event(
    clock: Clock, step: Step, state: StepState, message: str, *, records_left: int | None = None
) -> StepEvent:
    """As of now."""
    return StepEvent(step=step, state=state, message=message, at_ms=clock.now_ms(), records_left=records_left)
