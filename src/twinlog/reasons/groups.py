"""The reasons of consumer groups, translated and moved."""

from typing import Final

from twinlog.reasons.rows import NOTHING, RUN_AGAIN, OwnReason, ReasonGroup

GROUPS: Final = ReasonGroup(
    "Consumer groups (`twinlog groups`, `twinlog explain group`, `twinlog failover`)",
    (
        OwnReason("UP_TO_DATE", "the group has read all that has been copied", NOTHING),
        OwnReason("NOT_READY", "the first pass over the offset syncs is not done", NOTHING),
        OwnReason(
            "PAST_END", "the offset lies past the end of the log", "check the group's offset on the source"
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
            "the message names the cause",
        ),
        OwnReason(
            "MOVE_BLOCKED",
            "something blocks the failover or failback",
            "the message and `twinlog failover plan` list what, each with its remedy",
        ),
        OwnReason(
            "MOVE_IN_PROGRESS",
            "another failover or failback of this flow is running",
            "`twinlog failover watch` shows it, `twinlog failover stop` stops it",
        ),
        OwnReason(
            "BACKLOG_NOT_COPIED",
            "not all of the source's records were copied in time",
            "the message names the partitions and causes; run the command again to wait longer",
        ),
        OwnReason(
            "MOVE_CANCELLED",
            "an operator stopped the run; its changes stay, including a fence",
            "`twinlog failover run` continues it, `twinlog failover give-up` removes its fence",
        ),
        OwnReason(
            "NO_MOVE",
            "no failover or failback of this flow has run in this process since it started",
            "`twinlog failover status` shows the recorded one",
        ),
        OwnReason(
            "NOTHING_TO_ABORT",
            "there is no interrupted run of this kind",
            "the message says which; `twinlog failback run` removes the fence of a finished failover",
        ),
        OwnReason(
            "FENCE_NOT_OURS",
            "the record of failovers names an ACL that Twinlog would not have made for this flow: it is"
            " neither created nor deleted",
            "see the message, and find out who may write the topic that holds the record",
        ),
        OwnReason(
            "NOT_VERIFIED",
            "the offsets that Twinlog committed are not those that the target shows",
            RUN_AGAIN,
        ),
        OwnReason("STOPPING", "the service is stopping; the next process continues the move", RUN_AGAIN),
    ),
)
