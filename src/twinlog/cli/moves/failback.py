"""`twinlog failback`: moves consumer groups back to the source."""

from collections.abc import AsyncIterable

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.cli.common.call import Services
from twinlog.cli.moves.calls import RUN_TIMEOUT_SECONDS, MoveCall
from twinlog.cli.moves.commands import commands_of


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


app = commands_of(Failback)
