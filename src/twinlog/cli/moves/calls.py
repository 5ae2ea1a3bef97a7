"""The calls of `twinlog failover` and `twinlog failback` to the checkpoint service, and their output."""

import asyncio
import sys
from collections.abc import AsyncIterable
from dataclasses import dataclass
from pathlib import Path

import grpc
import typer

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.api.checkpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from twinlog.api.common.v1 import types_pb2
from twinlog.cli.checkpoint.client import CALL_TIMEOUT_SECONDS, answered, checkpoint_stub
from twinlog.cli.common.failures import EXIT_FAILED, exiting_with, require_terminal, run_async
from twinlog.cli.common.flow_choice import flow_of_file, required_flow
from twinlog.cli.common.location import SERVICES, channels, load_config, service_endpoints
from twinlog.cli.common.output import Output, print_json
from twinlog.cli.common.pasteable import say
from twinlog.cli.configsync.client import flow_name, parse_flow
from twinlog.cli.moves.moves import print_plan, print_run
from twinlog.cli.moves.plan_outcome import actions_by_group, plan_facts
from twinlog.cli.moves.status import print_status, run_as_json, status_as_json
from twinlog.cli.source.client import who
from twinlog.cli.status.query import query_status
from twinlog.cli.verdict.moving import NO_GO, Check, checks_of, overall, plan_checks, with_plan
from twinlog.service.errors_wire import error_from_rpc

RUN_TIMEOUT_SECONDS = 24 * 3600.0
"""A run waits for the copy; --wait bounds that."""
STATUS_SECONDS = 5.0
PLAN_TIMEOUT_SECONDS = 600.0
"""Planning thousands of groups takes long; messages show its progress."""

KINDS = {"failover": pb2.MOVE_KIND_FAILOVER, "failback": pb2.MOVE_KIND_FAILBACK}


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveCall:
    """One command about the moves of one flow."""

    kind: str
    """failover or failback."""
    flow: types_pb2.Flow
    config: Path | None
    endpoint: list[str] | None
    output: Output

    @classmethod
    def of(
        cls, kind: str, flow: str | None, config: Path | None, endpoint: list[str] | None, output: Output
    ) -> "MoveCall":
        """Without a flow it is the only one of the file. Raises ConfigError."""
        if flow is None:
            flow = (
                required_flow(flow, None) if config is None else flow_of_file(flow, None, load_config(config))
            )
        return cls(kind=kind, flow=parse_flow(flow), config=config, endpoint=endpoint, output=output)

    async def plan(self, options: pb2.MoveOptions) -> None:
        """Show the plan and the verdict. Exits with 1 for NO-GO."""
        async with checkpoint_stub(self.config, self.endpoint) as stub:
            plan = await self._planned(stub, options)
        checks = await self._checks(plan, options)
        print_plan(plan, checks, self.output, refuses=overall(checks) == NO_GO)

    async def _checks(self, plan: pb2.MovePlan, options: pb2.MoveOptions) -> list[Check]:
        """Those of the plan, and of what all services say of the flow: as the live page shows them. A loss
        that is accepted is no reason against the move; and who names single services asks only those."""
        own = plan_checks(plan_facts(plan, actions_by_group(plan), self.kind))
        named = {text.partition("=")[0] for text in self.endpoint or ()}
        if options.accept_loss or (named and self.config is None and not named.issuperset(SERVICES)):
            return own
        endpoints = service_endpoints(self.config, self.endpoint)
        status = await query_status(endpoints, channels(self.config), timeout_seconds=STATUS_SECONDS)
        return with_plan(checks_of(status, self.kind, flow_name(self.flow), options.groups), own)

    def asked_and_run(self, options: pb2.MoveOptions, *, yes: bool) -> None:
        """Ask for confirmation, then run the move. Exits with 1 unless the move is complete.

        Raises ConfigError if it has to ask and stdin is no terminal.

        The question is asked outside the event loop, because inside it Ctrl-C would wait for the answer.
        """
        if not yes:
            require_terminal()
            question = run_async(self._question(options))
            if not typer.confirm(question, err=True):
                typer.echo("nothing was changed", err=True)
                raise typer.Exit(EXIT_FAILED)
        run_async(self.run(options))

    async def run(self, options: pb2.MoveOptions) -> None:
        """Run the move. Exits with 1 unless it is complete."""
        async with checkpoint_stub(self.config, self.endpoint) as stub:
            events: AsyncIterable[pb2.RunFailoverResponse] | AsyncIterable[pb2.RunFailbackResponse]
            if self.kind == "failover":
                asked = pb2.RunFailoverRequest(flow=self.flow, options=options)
                events = stub.RunFailover(asked, timeout=RUN_TIMEOUT_SECONDS)
            else:
                back = pb2.RunFailbackRequest(flow=self.flow, options=options)
                events = stub.RunFailback(back, timeout=RUN_TIMEOUT_SECONDS)
            await self._follow(events)

    async def attach(self) -> None:
        """As `run`, for the present or last run."""
        async with checkpoint_stub(self.config, self.endpoint) as stub:
            request = pb2.WatchMoveRequest(flow=self.flow)
            await self._follow(stub.WatchMove(request, timeout=RUN_TIMEOUT_SECONDS))

    async def status(self) -> None:
        async with checkpoint_stub(self.config, self.endpoint) as stub:
            request = pb2.GetMoveRequest(flow=self.flow)
            answer = await answered(stub.GetMove(request, timeout=CALL_TIMEOUT_SECONDS))
        if self.output is Output.JSON:
            print_json(status_as_json(answer))
        else:
            print_status(self.flow, answer)

    async def cancel(self) -> None:
        async with checkpoint_stub(self.config, self.endpoint) as stub:
            request = pb2.CancelMoveRequest(flow=self.flow, by=who())
            answer = await answered(stub.CancelMove(request, timeout=CALL_TIMEOUT_SECONDS))
        with exiting_with(0 if answer.run.reason == "MOVE_CANCELLED" else EXIT_FAILED):
            if self.output is Output.JSON:
                print_json(run_as_json(answer.run))
            else:
                say(answer.run.message or "the run had already ended: nothing was cancelled")

    async def abort(self) -> None:
        async with checkpoint_stub(self.config, self.endpoint) as stub:
            request = pb2.AbortMoveRequest(flow=self.flow, kind=KINDS[self.kind], by=who())
            answer = await answered(stub.AbortMove(request, timeout=CALL_TIMEOUT_SECONDS))
        topics = list(answer.unfenced_topics)
        if self.output is Output.JSON:
            print_json({"unfenced_topics": topics})
            return
        fence = (
            f"applications may write again to {', '.join(topics)}" if topics else "it has created no fence"
        )
        typer.echo(f"the {self.kind} of {flow_name(self.flow)} is aborted: {fence}")
        typer.echo("offsets that it has committed are kept")

    async def _planned(self, stub: CheckpointServiceStub, options: pb2.MoveOptions) -> pb2.MovePlan:
        """Return the whole plan. On a terminal, messages show the progress meanwhile."""
        request = pb2.PlanMoveRequest(flow=self.flow, kind=KINDS[self.kind], options=options)
        rows = pb2.MovePlanPart()
        try:
            async for event in stub.PlanMove(request, timeout=PLAN_TIMEOUT_SECONDS):
                if event.HasField("plan"):
                    whole = event.plan
                    whole.partitions.MergeFrom(rows.partitions)
                    whole.backlog.MergeFrom(rows.backlog)
                    return whole
                if event.HasField("part"):
                    rows.MergeFrom(event.part)
                elif self.output is Output.TABLE and sys.stderr.isatty():
                    say(f"{event.step.message} …", err=True)
        except grpc.aio.AioRpcError as error:
            raise error_from_rpc(error, peer="checkpoint") from error
        raise AssertionError("PlanMove ends with a plan")

    async def _question(self, options: pb2.MoveOptions) -> str:
        """Show the plan, and return the question. Exits with 1 if the move would be refused."""
        async with checkpoint_stub(self.config, self.endpoint) as stub:
            plan = await self._planned(stub, options)
        if self.output is Output.TABLE or plan.blockers:
            checks = await self._checks(plan, options)
            print_plan(plan, checks, self.output, refuses=bool(plan.blockers))
        count = len({entry.group for entry in plan.partitions})
        groups = "1 group" if count == 1 else f"{count} groups"
        fence = f", with a fence on {plan.from_cluster}" if options.fence else ""
        return f"Move {groups} from {plan.from_cluster} to {plan.to_cluster}{fence}?"

    async def _follow(
        self,
        events: AsyncIterable[pb2.RunFailoverResponse]
        | AsyncIterable[pb2.RunFailbackResponse]
        | AsyncIterable[pb2.WatchMoveResponse],
    ) -> None:
        try:
            await print_run(events, self.output)
        except (asyncio.CancelledError, BrokenPipeError):
            verb, flow = f"twinlog {self.kind}", flow_name(self.flow)
            say(
                f"the run continues in the service: `{verb} attach '{flow}'` follows it, `{verb} cancel"
                f" '{flow}'` stops it, and `{verb} abort '{flow}'` then removes its fence",
                err=True,
            )
            raise
