"""The commands of a move for both directions: `twinlog failover …` and `twinlog failback …`."""

from collections.abc import AsyncIterable

import typer

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.cli.common.call import Call, Services, command
from twinlog.cli.common.options import OnlyFlowArgument, flag, group, together
from twinlog.cli.moves.calls import RUN_TIMEOUT_SECONDS, MoveCall
from twinlog.cli.moves.moves import WAIT, YesOption, move_options

_GRANT_WRITE = (
    "--grant-write",
    "Let those who may write the source's topics write their copies, until the failback.",
)
_EARLIER = {"watch": "attach", "stop": "cancel", "give_up": "abort"}
"""Their names in 0.1.0."""


def commands_of(kind: type[MoveCall]) -> typer.Typer:
    """plan, run, status, watch, stop, give-up; their help is that of the methods."""
    failover = group(kind.__doc__ or "")

    @failover.command("plan", help=kind.plan.__doc__)
    @command
    def plan_command(
        call: Call,
        flow: OnlyFlowArgument = None,
        options: pb2.MoveOptions = together(move_options),
        grant_write: bool = flag(*_GRANT_WRITE),
    ) -> None:
        options.grant_write = grant_write
        kind.of(flow, call).plan(options)

    @failover.command("run", help=kind.run.__doc__)
    @command
    def run_command(
        call: Call,
        flow: OnlyFlowArgument = None,
        options: pb2.MoveOptions = together(move_options),
        grant_write: bool = flag(*_GRANT_WRITE),
        wait: float = WAIT,
        yes: YesOption = False,
        dry_run: bool = flag("--dry-run", "Only show the plan."),
    ) -> None:
        options.grant_write = grant_write
        options.wait.FromMilliseconds(round(wait * 1000))
        move = kind.of(flow, call)
        if dry_run:
            move.plan(options)
        else:
            move.run(options, yes=yes)

    def add(name: str, act: str, *, hidden: bool = False) -> None:
        @failover.command(name.replace("_", "-"), help=getattr(kind, act).__doc__, hidden=hidden)
        @command
        def of_one_move(call: Call, flow: OnlyFlowArgument = None) -> None:
            getattr(kind.of(flow, call), act)()

    for act in ("status", *_EARLIER):
        add(act, act)
        if act in _EARLIER:
            add(_EARLIER[act], act, hidden=True)
    return failover


# `twinlog failover`: moves consumer groups to the target.


class Failover(MoveCall):
    """Move consumer groups to the target cluster."""

    kind = "failover"

    def plan(self, options: pb2.MoveOptions) -> None:
        """Show what `failover run` would do now: for every group and partition the offset on the target, and
        what has not been copied. Changes nothing.

        The first and the last line are the verdict, which the live page shows, too: GO; WAIT (it becomes so
        by itself, or when consumers stop); NO-GO (somebody has to act). What blocks the plan, `failover run`
        refuses; of everything else it warns. With --accept-loss only what the plan itself says counts. Exit
        code 1 for NO-GO.
        """
        super().plan(options)

    def run(self, options: pb2.MoveOptions, *, yes: bool) -> None:
        """Move the groups of a flow from its source to its target: record the ends of the source's logs, wait
        until all records before them are copied, commit the translated offsets on the target, and check them.

        Stop the groups' consumers on the source first. The command shows the plan and asks before it changes
        anything; without a terminal it needs --yes. The move runs in the service: Ctrl-C ends the command,
        not the move. Every step is recorded on the target:
        start an interrupted run again to continue it. If the source is lost, --accept-loss uses the last
        checkpoints and says what is missing. --fence denies all writes to the source's topics until `twinlog
        failback run`; --grant-write lets those who may write there write the copies, until then.

        Exit code 0 means that the source may be switched off: every requested group was moved, each of their
        offsets on a copied topic was translated, and every record that the source held when the final offsets
        were recorded is copied. --accept-loss accepts what is missing. Exit code 1 otherwise.
        """
        super().run(options, yes=yes)

    def events(self, at: Services, options: pb2.MoveOptions) -> AsyncIterable[pb2.RunFailoverResponse]:
        request = pb2.RunFailoverRequest(flow=self.flow, options=options)
        return at.checkpoint.RunFailover(request, timeout=RUN_TIMEOUT_SECONDS)


failover = commands_of(Failover)


# `twinlog failback`: moves consumer groups back to the source.


class Failback(MoveCall):
    """Move consumer groups back to the source cluster."""

    kind = "failback"

    def plan(self, options: pb2.MoveOptions) -> None:
        """Show what `failback run` would do now: for every group and partition the offset on the source.
        Changes nothing.

        The first and the last line are the verdict: GO, WAIT or NO-GO, as of `failover plan`. Exit code 1 for
        NO-GO.
        """
        super().plan(options)

    def run(self, options: pb2.MoveOptions, *, yes: bool) -> None:
        """Move the groups of a flow back from its target to its source: offsets on the copies are translated
        to offsets on the originals. If the file has the flow in the other direction, offsets on the target's
        own topics are translated to offsets on their copies.

        Stop the groups' consumers on the target first. The command shows the plan and asks before it changes
        anything; without a terminal it needs --yes. The move runs in the service and its steps are recorded,
        as with `twinlog failover run`. It removes the fence of the failover, and revokes what --grant-write
        granted. The exit codes are the same.
        """
        super().run(options, yes=yes)

    def events(self, at: Services, options: pb2.MoveOptions) -> AsyncIterable[pb2.RunFailbackResponse]:
        request = pb2.RunFailbackRequest(flow=self.flow, options=options)
        return at.checkpoint.RunFailback(request, timeout=RUN_TIMEOUT_SECONDS)


failback = commands_of(Failback)
