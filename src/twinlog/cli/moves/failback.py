"""`twinlog failback`: moves consumer groups back to the source."""

from twinlog.cli.moves.commands import Direction, commands_of

_PLAN_HELP = """Show what `failback run` would do now: for every group and partition the offset on \
the source. Changes nothing.

The first and the last line are the verdict: GO, WAIT or NO-GO, as of `failover plan`. Exit code 1 for NO-GO.
"""

_RUN_HELP = """Move the groups of a flow back from its target to its source: offsets on the copies are \
translated to offsets on the originals. If the file has the flow in the other direction, offsets on the \
target's own topics are translated to offsets on their copies.

Stop the groups' consumers on the target first. The command shows the plan and asks before it changes \
anything; without a terminal it needs --yes. The move runs in the service and its steps are recorded, as \
with `twinlog failover run`. It removes the fence of the failover, and revokes what --grant-write granted. \
The exit codes are the same.
"""

app = commands_of(
    Direction(
        kind="failback",
        help="Move consumer groups back to the source cluster.",
        plan_help=_PLAN_HELP,
        run_help=_RUN_HELP,
    )
)
