"""The reasons of consumer groups, translated and moved."""

from typing import Final

from twinlog.reasons.rows import NOTHING, RUN_AGAIN, OwnReason, ReasonGroup

GROUPS: Final = ReasonGroup(
    "Consumer groups (`twinlog groups`, `twinlog explain group`, `twinlog failover`)",
    (
        OwnReason("UP_TO_DATE", "the group has read all that has been copied", NOTHING),
        OwnReason("NOT_READY", "the first pass over the offset syncs is not done", NOTHING),
        OwnReason(
            "PAST_END", "the offset lies past the end of the log", "see the group's offset on the source"
        ),
        OwnReason(
            "SOURCE_UNREADABLE",
            "the source does not let the group's offsets, its logs or the offset syncs be read",
            "the message names the cluster and the right that is missing",
        ),
        OwnReason(
            "TARGET_UNREADABLE",
            "the target does not let its logs, the group's offsets or the checkpoints be read",
            "the message names the cluster and the right that is missing",
        ),
        OwnReason(
            "GROUPS_NOT_TRANSLATED",
            "a cluster does not answer, a topic may not be read, or another process owns the flow",
            "the message names it",
        ),
        OwnReason(
            "MOVE_BLOCKED",
            "something blocks the move",
            "the message and `twinlog failover plan` list what, each with its remedy",
        ),
        OwnReason(
            "MOVE_IN_PROGRESS",
            "another move of this flow is running",
            "`twinlog failover attach` shows it, `twinlog failover cancel` stops it",
        ),
        OwnReason(
            "BACKLOG_NOT_COPIED",
            "the rest of the source's records was not copied in time",
            "the message names the partitions, each with the cause; run the command again to wait longer",
        ),
        OwnReason(
            "MOVE_CANCELLED",
            "an operator stopped the run; its changes stay, a fence too",
            "`run` continues it, `abort` removes its fence",
        ),
        OwnReason(
            "NO_MOVE",
            "no move of this flow has run in this process since it started",
            "`twinlog failover status` shows what is on record",
        ),
        OwnReason(
            "PLAN_TOO_LARGE",
            "the plan does not fit into one message",
            "`twinlog failover plan` and `PlanMove` get it in parts",
        ),
        OwnReason(
            "NOTHING_TO_ABORT",
            "no run of this kind was interrupted: there is none, or it is over",
            "the message says which; `twinlog failback run` removes the fence of a finished failover",
        ),
        OwnReason(
            "FENCE_NOT_OURS",
            "the record of moves names an ACL that Twinlog would not have made for this flow: it is neither"
            " created nor deleted",
            "the message names it; find out who may write the topic that holds the record",
        ),
        OwnReason("NOT_VERIFIED", "what was written is not what the target shows", RUN_AGAIN),
        OwnReason("STOPPING", "the service is ending; the move is finished by the next one", RUN_AGAIN),
    ),
)
