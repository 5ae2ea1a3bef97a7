"""`twinlog move`: which process of a service owns which flow, and its move to another one."""

import typer

from twinlog.api.common.v1 import owners_service_pb2 as pb2
from twinlog.api.common.v1.owners_service_pb2_grpc import OwnersServiceStub
from twinlog.cli.common.call import Call, Services, command
from twinlog.cli.common.failures import require_terminal
from twinlog.cli.common.fields import Field, Fields, table
from twinlog.cli.common.names import parse_flow
from twinlog.cli.common.options import argument, flag, option
from twinlog.cli.common.pasteable import print_undo, undo_command
from twinlog.config import Service

OWNER: Fields[pb2.FlowOwner] = table(
    "flow|flow owner=process?|owner moves_to?|moves_to why?|why megabytes_per_second|MB/s>",
    Field("able", lambda owner: [*owner.able], "can own it", text=lambda owner: str(len(owner.able))),
)


@command
def move_command(
    call: Call,
    flow: str | None = argument("[A->B]", "The flow; all when left out.", None),
    to: str = option("--to REPLICA", "A process that can own it: host, HOST:PORT or address.", ""),
    service: Service = option("--service", "Whose processes.", Service.SOURCE),
    dry_run: bool = flag("--dry-run", "Only show from where to where."),
    yes: bool = flag("--yes -y", "Do not ask."),
) -> None:
    """Move a flow to another process of a service, or show who owns what and why.

    The owner ends its work in order, then the other one takes over, and keeps the flow for as long as it
    lives. Without --to the command changes nothing and lists the owners. It asks first; without a terminal
    it needs --yes.
    """
    if flow is None or not to:
        wanted = None if flow is None else parse_flow(flow)
        owners = call.ask(lambda at: _owners(at, service).ListOwners(pb2.ListOwnersRequest())).owners
        call.tell_rows(
            OWNER, [each for each in owners if wanted in (None, each.flow)], empty="no flow is served here"
        )
        return
    request = pb2.MoveFlowRequest(flow=parse_flow(flow), to=to, dry_run=True)
    if not dry_run and not yes:
        require_terminal()
    move = call.ask(lambda at: _owners(at, service).MoveFlow(request))
    words = f"{flow} of {service}: from {move.process} to {move.to}"
    if not dry_run:
        if not yes:
            typer.confirm(f"Move {words}?", abort=True, err=True)
        request.dry_run = False
        move = call.ask(lambda at: _owners(at, service).MoveFlow(request))
    before = move.process.partition(",")[0]
    undo = [] if dry_run else [undo_command("move", flow, "--to", before, "--service", str(service), "--yes")]

    def text() -> None:
        typer.echo(f"{'would move' if dry_run else 'moves'} {words}")
        print_undo(undo)

    call.tell({"applied": not dry_run, "from": move.process, "to": move.to, "undo": undo}, text)


def _owners(at: Services, service: Service) -> OwnersServiceStub:
    return at.asked(OwnersServiceStub, str(service))
