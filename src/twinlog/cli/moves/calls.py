"""The calls of `twinlog failover` and `twinlog failback` to the checkpoint service, and their output."""

import asyncio
import sys
from collections.abc import AsyncIterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import typer

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.api.common.v1 import types_pb2
from twinlog.cli.common.call import Call, Services
from twinlog.cli.common.failures import EXIT_FAILED, note, require_terminal
from twinlog.cli.common.fields import as_json, print_json_line
from twinlog.cli.common.location import SERVICES
from twinlog.cli.common.names import flow_name, parse_flow, who
from twinlog.cli.common.options import flow_of_file, required_flow
from twinlog.cli.common.pasteable import say
from twinlog.cli.moves.moves import clock_time, decided, print_plan, print_run, print_step
from twinlog.cli.moves.plan_outcome import (
    KIND_NAMES,
    KINDS,
    RUN,
    actions_by_group,
    plan_facts,
    status_as_json,
)
from twinlog.cli.verdict.moving import (
    NO_GO,
    Check,
    checks_of,
    overall,
    plan_checks,
    verdict_words,
    with_plan,
)

# `twinlog failover status`: the run in the service, and the recorded move.


def print_status(flow: types_pb2.Flow, answer: pb2.GetMoveResponse) -> None:
    """Print the status as text, with the command to run next."""
    name = flow_name(flow)
    if answer.HasField("run"):
        _print_run(name, answer.run)
    if answer.problem:
        say(f"the record of moves cannot be read: {answer.problem}")
    elif answer.HasField("last"):
        shown = bool(answer.run.left_behind)
        _print_last(name, answer.last, running=answer.run.running, shown=shown)
    else:
        say(f"no {'earlier ' if answer.HasField('run') else ''}move of {name} is recorded")


def _print_run(name: str, run: pb2.MoveRun) -> None:
    kind = KIND_NAMES.get(run.kind, "move")
    if run.running:
        follow, stop = (f"`twinlog {kind} {word} '{name}'`" for word in ("watch", "stop"))
        state = f"is running; {follow} follows it, {stop} stops it"
    elif run.left_behind:
        state = "has finished, but is not complete"
    elif run.reason:
        state = f"ended: {run.message} ({run.reason})"
        if all(step.name == "CHECK" and step.state != pb2.STEP_STATE_DONE for step in run.steps):
            state += "; it changed nothing"
    else:
        state = "has finished"
    by = run.options.by or "somebody"
    say(f"the {kind} of {name} that {by} started at {clock_time(run.started)} {state}")
    for step in run.steps:
        print_step(step)
    for reason in run.left_behind:
        say(f"not done: {reason}")


def _print_last(name: str, last: pb2.LastMove, *, running: bool, shown: bool) -> None:
    """`shown`: the run above has already listed what is not done."""
    about = f"{last.kind} run {last.run_id} by {last.by or 'somebody'}, started at {clock_time(last.started)}"
    if last.aborted:
        say(f"recorded: {about}: given up")
    elif last.finished:
        say(f"recorded: {about}: {'finished, but not complete' if last.left_behind else 'finished'}")
        for reason in last.left_behind if not shown else ():
            say(f"not done: {reason}")
    elif not running:
        steps = ", ".join(last.steps) or "nothing"
        say(
            f"recorded: {about}: interrupted after {steps}. `twinlog {last.kind} run '{name}'` continues it,"
            f" `twinlog {last.kind} give-up '{name}'` gives it up"
        )
    if last.fenced_topics:
        say(f"its fence denies writes to {', '.join(last.fenced_topics)}")


RUN_TIMEOUT_SECONDS = 24 * 3600.0
"""A run waits for the copy; --wait bounds that."""
STATUS_SECONDS = 5.0
PLAN_TIMEOUT_SECONDS = 600.0
"""Planning thousands of groups takes long; messages show its progress."""


_Events = (
    AsyncIterable[pb2.RunFailoverResponse]
    | AsyncIterable[pb2.RunFailbackResponse]
    | AsyncIterable[pb2.WatchMoveResponse]
)


@dataclass(frozen=True, kw_only=True)
class MoveCall:
    """One command about the moves of one flow."""

    kind: ClassVar[str]
    """failover or failback."""
    flow: types_pb2.Flow
    call: Call

    @classmethod
    def of(cls, flow: str | None, call: Call) -> "MoveCall":
        """Without a flow it is the only one of the file. Raises ConfigError."""
        if flow is None:
            flow = required_flow(None) if call.config is None else flow_of_file(None, call.configuration)
        return cls(flow=parse_flow(flow), call=call)

    def plan(self, options: pb2.MoveOptions) -> None:
        """Show the plan and the verdict. Exits with 1 for NO-GO."""

        async def planned(at: Services) -> tuple[pb2.MovePlan, list[Check]]:
            plan = await self._planned(at, options)
            return plan, await self._checks(plan, options)

        plan, checks = self.call.ask(planned)
        print_plan(plan, checks, self.call.output, refuses=overall(checks) == NO_GO)

    async def _checks(self, plan: pb2.MovePlan, options: pb2.MoveOptions) -> list[Check]:
        """Those of the plan, and of what all services say of the flow: as the live page shows them."""
        own = plan_checks(plan_facts(plan, actions_by_group(plan), self.kind))
        return with_plan(await self._told(options, plan.blockers), own)

    async def _told(self, options: pb2.MoveOptions, blockers: Sequence[str] = ()) -> list[Check]:
        """What all services say of the flow. A loss that is accepted is no reason against the move; and who
        names single services asks only those."""
        named = {text.partition("=")[0] for text in self.call.endpoint or ()}
        single = named and self.call.config is None and not named.issuperset(SERVICES)
        if options.accept_loss or single:
            return []
        status = await self.call.status(STATUS_SECONDS)
        return checks_of(status, self.kind, flow_name(self.flow), blockers)

    def warn(self, options: pb2.MoveOptions) -> None:
        """Say what the services have against the move, before it runs without a question; as JSON also that
        they have nothing. What blocks the plan itself, the checkpoint service refuses."""
        checks = self.call.ask(lambda at: self._told(options))
        if self.call.in_json:
            print_json_line(decided(checks))
        elif overall(checks) == NO_GO:
            say(f"{verdict_words(checks)}; nobody is asked, as --yes says", err=True)

    def run(self, options: pb2.MoveOptions, *, yes: bool) -> None:
        """Ask for confirmation, then run the move. Exits with 1 unless the move is complete.

        Raises ConfigError if it has to ask and stdin is no terminal.
        """
        if yes:
            self.warn(options)
        else:
            require_terminal()
            question = self.call.ask(lambda at: self._question(at, options))
            if not typer.confirm(question, err=True):
                note("nothing was changed")
                raise typer.Exit(EXIT_FAILED)

        self.call.ask(lambda at: self._follow(self.events(at, options)))

    def events(self, at: Services, options: pb2.MoveOptions) -> _Events:
        """Run the move."""
        raise NotImplementedError

    def watch(self) -> None:
        """Show the progress of a running move, as `run` does. Ctrl-C ends the command, not the move."""
        request = pb2.WatchMoveRequest(flow=self.flow)
        self.call.ask(lambda at: self._follow(at.checkpoint.WatchMove(request, timeout=RUN_TIMEOUT_SECONDS)))

    def status(self) -> None:
        """Show the failover or failback of a flow that is running or ran last, and its steps."""
        answer = self.call.ask(lambda at: at.checkpoint.GetMove(pb2.GetMoveRequest(flow=self.flow)))
        self.call.tell(status_as_json(answer), lambda: print_status(self.flow, answer))

    def stop(self) -> None:
        """Stop a running move. What it has done stays, also a fence; `run` continues it."""
        request = pb2.CancelMoveRequest(flow=self.flow, by=who())
        run = self.call.ask(lambda at: at.checkpoint.CancelMove(request)).run
        self.call.tell(
            as_json(RUN, run),
            lambda: say(run.message or "the run had already ended: nothing was cancelled"),
            fails=run.reason != "MOVE_CANCELLED",
        )

    def give_up(self) -> None:
        """Give up an interrupted or stopped move, and remove its fence. Committed offsets stay."""
        request = pb2.AbortMoveRequest(flow=self.flow, kind=KINDS[self.kind], by=who())
        topics = list(self.call.ask(lambda at: at.checkpoint.AbortMove(request)).unfenced_topics)
        fence = (
            f"applications may write again to {', '.join(topics)}" if topics else "it has created no fence"
        )
        told = f"the {self.kind} of {flow_name(self.flow)} is aborted: {fence}"
        self.call.tell(
            {"unfenced_topics": topics},
            lambda: typer.echo(f"{told}\noffsets that it has committed are kept"),
        )

    async def _planned(self, at: Services, options: pb2.MoveOptions) -> pb2.MovePlan:
        """Return the whole plan. On a terminal, messages show the progress meanwhile."""
        request = pb2.PlanMoveRequest(flow=self.flow, kind=KINDS[self.kind], options=options)
        rows = pb2.MovePlanPart()
        async for event in at.checkpoint.PlanMove(request, timeout=PLAN_TIMEOUT_SECONDS):
            if event.HasField("plan"):
                whole = event.plan
                whole.partitions.MergeFrom(rows.partitions)
                whole.backlog.MergeFrom(rows.backlog)
                return whole
            if event.HasField("part"):
                rows.MergeFrom(event.part)
            elif not self.call.in_json and sys.stderr.isatty():
                say(f"{event.step.message} …", err=True)
        raise AssertionError("PlanMove ends with a plan")

    async def _question(self, at: Services, options: pb2.MoveOptions) -> str:
        """Show the plan, and return the question. Exits with 1 if the move would be refused."""
        plan = await self._planned(at, options)
        checks = await self._checks(plan, options)
        if self.call.in_json and not plan.blockers:
            print_json_line(decided(checks))
        else:
            print_plan(plan, checks, self.call.output, refuses=bool(plan.blockers))
        count = len({entry.group for entry in plan.partitions})
        groups = "1 group" if count == 1 else f"{count} groups"
        fence = f", with a fence on {plan.from_cluster}" if options.fence else ""
        return f"Move {groups} from {plan.from_cluster} to {plan.to_cluster}{fence}?"

    async def _follow(self, events: _Events) -> None:
        try:
            await print_run(events, self.call.output)
        except (asyncio.CancelledError, BrokenPipeError):
            verb, flow = f"twinlog {self.kind}", flow_name(self.flow)
            note(
                f"the run continues in the service: `{verb} watch '{flow}'` follows it, `{verb} stop"
                f" '{flow}'` stops it, and `{verb} give-up '{flow}'` then removes its fence"
            )
            raise
