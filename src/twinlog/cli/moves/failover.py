"""`twinlog failover`: moves consumer groups to the target."""

from collections.abc import AsyncIterable

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.cli.common.call import Services
from twinlog.cli.moves.calls import RUN_TIMEOUT_SECONDS, MoveCall
from twinlog.cli.moves.commands import commands_of


class Failover(MoveCall):
    """Move consumer groups to the target cluster."""

    kind = "failover"

    def plan(self, options: pb2.MoveOptions) -> None:
        """Show what `failover run` would do now: for every group and partition the offset on the target, and
        what has not been copied. Changes nothing.

        The first and the last line are the verdict, which the live page shows, too: GO; WAIT (it becomes so
        by itself, or when consumers stop); NO-GO (somebody has to act). What blocks the plan, `failover run`
        refuses; of everything else it warns. With --accept-loss only what blocks the plan counts. Exit code 1
        for NO-GO.
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


app = commands_of(Failover)
