"""How a run begins, continues an earlier run, and ends: what it makes of the homes of groups. Pure."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from twinlog.clock import Clock
from twinlog.model import ClusterAlias
from twinlog.moves.record import Certainty, Home, MoveKind, Moves, MoveState, Run, Step
from twinlog_checkpoint.moves.planning.outcome import (
    finished_with,
    lacking,
    left_at,
    skipped,
    staying,
    stood_at,
    unread,
)
from twinlog_checkpoint.moves.planning.plan import MoveAction, MoveOptions, MovePartition, MovePlan


def begun(moves: Moves, kind: MoveKind, options: MoveOptions, *, run_id: str, now_ms: int) -> Moves:
    """Continue an interrupted run of this kind, or start one called `run_id`. It replaces an interrupted run
    of the other kind: moving the groups in the other direction undoes that."""
    last = moves.run
    is_same = last is not None and last.kind is kind
    if is_same and moves.interrupted:
        return with_run(moves, groups=options.groups, by=options.by)
    fenced = is_same and last is not None and not last.aborted and Step.FENCE in last.done
    run = Run(
        run_id=run_id,
        kind=kind,
        state=MoveState.RUNNING,
        groups=options.groups,
        by=options.by,
        started_ms=now_ms,
        done=(Step.FENCE,) if fenced else (),
        on_target=moves.on_target,
        any_group="" if last is None else last.any_group,
        any_given_up=last is not None and last.any_given_up and kind is MoveKind.FAILOVER,
    )
    return replace(moves, run=run)


def committing(moves: Moves, groups: Collection[str]) -> Moves:
    """A failover is about to commit offsets of these groups: from now on they may be on the target."""
    run = run_of(moves)
    if run.kind is MoveKind.FAILBACK:
        return moves  # Until it is done, its groups count as being where they were.
    homes = {
        group: replace(
            home,
            certainty=Certainty.BEGUN,
            run=home.run if home.certainty is Certainty.BEGUN else run.run_id,
        )
        for group in groups
        for home in [moves.homes.get(group, Home(where=moves.flow.source, run=run.run_id))]
    }
    return replace(with_run(moves, on_target=True), homes={**moves.homes, **homes})


def finished(
    moves: Moves,
    partitions: Sequence[MovePartition],
    options: MoveOptions,
    *,
    all_listed: bool,
    now_ms: int,
) -> Moves:
    """Mark the run as done. `all_listed`: otherwise there may be groups that it did not see."""
    run, newly = run_of(moves), finished_with(partitions, accepted=options.accept_loss)
    seen = {entry.group for entry in partitions}
    behind = _left_behind(partitions, options)
    homes = dict(moves.homes)
    stood, left = stood_at(partitions), left_at(partitions)
    for group in newly:
        homes[group] = Home(
            where=moves.enters(run.kind),
            run=run.run_id,
            stood_at=stood.get(group, {}),
            left_at=left.get(group, {}),
        )
    # A group that a run for it does not find has nothing left to move, and one with members on the other
    # cluster works there already.
    for group in moves.due(run.kind) or ():
        if group not in newly and group not in behind and (not run.groups or group in run.groups):
            del homes[group]
    works_on_source = _active(partitions, on_source_of=run.kind)
    for group, home in list(homes.items()):
        if home.certainty is not Certainty.SURE and (
            group in works_on_source or not (run.groups or group in seen)
        ):
            _forget_begun(homes, moves.flow.source, group)
        elif run.kind is MoveKind.FAILBACK and home.certainty is Certainty.GIVEN_UP and group in seen:
            homes[group] = replace(home, certainty=Certainty.BEGUN)
    was_for_all = all_listed and not run.groups
    if run.any_group and was_for_all:
        for group in seen - newly - works_on_source:
            known = homes.get(group, Home(where=moves.flow.source, run=run.run_id))
            homes[group] = replace(known, certainty=Certainty.BEGUN)
    done = with_run(
        replace(moves, homes=homes),
        done=(*run.done, Step.DONE),
        state=MoveState.DONE,
        finished_ms=now_ms,
        on_target=run.on_target or run.kind is MoveKind.FAILOVER,
        any_group="" if was_for_all else run.any_group,
    )
    if run.kind is MoveKind.FAILBACK and is_whole(done):
        there = {group: home for group, home in homes.items() if home.where == moves.flow.source}
        done = with_run(replace(done, homes=there), on_target=False)
    return done


def is_whole(moves: Moves) -> bool:
    """Whether every group has moved that moves in the other direction had moved: what those left, fences and
    grants, is not needed any more."""
    return moves.due(run_of(moves).kind) == frozenset()


def given_up(moves: Moves, *, now_ms: int) -> Moves:
    """Give up an interrupted run: the fences that it created go, and it keeps no group on the target."""
    run = run_of(moves)
    here = moves.leaves(run.kind)
    kept = {topic: by for topic, by in moves.fences.get(here, {}).items() if by != run.run_id}
    homes = {
        group: replace(home, certainty=Certainty.GIVEN_UP)
        if home.certainty is Certainty.BEGUN and home.run == run.run_id
        else home
        for group, home in moves.homes.items()
    }
    return with_run(
        replace(moves, homes=homes, fences={**moves.fences, here: kept}),
        state=MoveState.DONE,
        aborted=True,
        any_given_up=run.any_given_up or run.any_group == run.run_id,
        finished_ms=now_ms,
        done=tuple(step for step in run.done if step is not Step.FENCE),
    )


def run_of(moves: Moves) -> Run:
    assert moves.run is not None, "a run has begun"
    return moves.run


def with_run(moves: Moves, **changes: Any) -> Moves:
    return replace(moves, run=replace(run_of(moves), **changes))


def after(moves: Moves, step: Step) -> Moves:
    """The run has done this step."""
    done = run_of(moves).done
    return moves if step in done else with_run(moves, done=(*done, step))


def _left_behind(partitions: Sequence[MovePartition], options: MoveOptions) -> set[str]:
    """The groups that a later run has to move."""
    behind = staying(partitions) | unread(partitions).keys() | skipped(partitions)
    if not options.accept_loss:
        behind |= {entry.group for entry in lacking(partitions)}
    return behind - {entry.group for entry in partitions if entry.action is MoveAction.SKIP_ACTIVE_THERE}


def _active(partitions: Sequence[MovePartition], *, on_source_of: MoveKind) -> set[str]:
    """The groups that have members on the flow's source."""
    is_failover = on_source_of is MoveKind.FAILOVER
    action = MoveAction.SKIP_ACTIVE_BEFORE if is_failover else MoveAction.SKIP_ACTIVE_THERE
    return {entry.group for entry in partitions if entry.action is action}


def _forget_begun(homes: dict[str, Home], source: ClusterAlias, group: str) -> None:
    """The failover that had begun to move the group has not moved it."""
    home = homes[group]
    if home.where == source and not home.stood_at:
        del homes[group]
    else:
        homes[group] = replace(home, certainty=Certainty.SURE)


# The events of a running move: each step, then the report.


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
