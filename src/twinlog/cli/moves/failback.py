"""`twinlog failback`: consumer groups go back to the source."""

from twinlog.cli.moves.commands import Direction, commands_of

_PLAN_HELP = """Show what `failback run` would do now: for every group and partition the offset back on \
the source. Changes nothing.

Exit code 1 when something blocks the move.
"""

_RUN_HELP = """Move the groups of a flow back from its target to its source: their progress on the copies \
becomes progress on the originals, record by record; progress on the target's own topics becomes progress \
on their copies, when the file has the flow in the other direction.

Stop the groups' consumers on the target first. In a terminal the command shows the plan and asks before it \
changes anything. The move runs in the service, and its steps are recorded, as those of `twinlog failover \
run`. It removes the fence of the failover, and what its --grant-write granted. The exit codes are the same.
"""

app = commands_of(
    Direction(
        kind="failback",
        help="Move consumer groups back to the source cluster.",
        plan_help=_PLAN_HELP,
        run_help=_RUN_HELP,
    )
)
