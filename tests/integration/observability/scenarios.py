"""Which alerts fire and which panels show something in each trouble."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from integration.observability.prometheus_rig import Prometheus
from integration.observability.troubles import (
    checkpoint_service_starts_and_cannot_write,
    copier_stopped,
    copy_changed_again_and_again,
    flow_paused,
    group_behind_the_end,
    heartbeat_and_copier_stopped,
    heartbeat_stopped,
    link_cut,
    offset_syncs_cannot_be_written,
    owner_changes_again_and_again,
    record_too_large,
    records_lost,
    somebody_else_writes,
    target_refuses_a_topic,
    topic_limited_below_its_backlog,
    topic_limited_to_nothing,
    writers_limited,
)
from integration.observability.watched_rig import (
    WatchedRig,
)

Panel = tuple[str, str]
"""Board and title."""
ONLY_IN_TROUBLE: frozenset[Panel] = frozenset(
    {
        ("twinlog-1-glance", "Failures"),
        ("twinlog-2-flows", "Partitions that do not move"),
        ("twinlog-3-ends", "What partitions with lag wait for"),
        ("twinlog-3-ends", "Limits"),
        ("twinlog-4-offsets", "Failures"),
        ("twinlog-6-migration", "Topics that hold it up"),
        ("twinlog-6-migration", "Groups that hold it up"),
    }
)
"""Empty while all is well. Each of them is shown by a scenario below."""
NOT_HERE: frozenset[Panel] = frozenset(
    {("twinlog-7-services", "Certificate expires in"), ("twinlog-7-services", "Token expires in")}
)
"""The services of the scenario show neither: they have a test of their own."""
EXPIRE = frozenset({"TwinlogCertificateExpires", "TwinlogTokenExpires"})
"""The alerts of that test."""
ABOUT_RECORDS = frozenset(
    {"TwinlogDataLost", "TwinlogForeignWriter", "TwinlogPartitionFaulted", "TwinlogCopyDiffers"}
)
"""They fire in their scenarios, and not for a moment in others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    trouble: Callable[[WatchedRig, Prometheus], AbstractAsyncContextManager[None]]
    """Makes it, and mends it again."""
    fires: frozenset[str] = frozenset()
    """Alerts that it makes fire."""
    may_fire: frozenset[str] = frozenset()
    """What else is wrong for a moment while it lasts."""
    stays: bool = False
    """The alerts tell of the last hour, or of what this test does not mend."""
    shows: frozenset[Panel] = frozenset()


SCENARIOS: dict[str, Scenario] = {
    "the flow is paused": Scenario(
        trouble=flow_paused,
        fires=frozenset({"TwinlogPausedLong"}),
        shows=frozenset(
            {
                ("twinlog-3-ends", "What partitions with lag wait for"),
                ("twinlog-6-migration", "Topics that hold it up"),
            }
        ),
    ),
    "a limit is below what has to be copied": Scenario(
        trouble=topic_limited_below_its_backlog,
        fires=frozenset({"TwinlogLagOverRpo"}),
        shows=frozenset({("twinlog-3-ends", "Limits")}),
    ),
    "a limit leaves a topic nothing": Scenario(
        # It is the only topic that anybody writes to: heartbeats alone are copied.
        trouble=topic_limited_to_nothing,
        fires=frozenset({"TwinlogPartitionStalled", "TwinlogNothingCopied"}),
        may_fire=frozenset({"TwinlogLagOverRpo"}),
    ),
    "the copier stands still": Scenario(
        trouble=copier_stopped,
        fires=frozenset({"TwinlogServiceDown", "TwinlogNothingCopied", "TwinlogDelaySilent"}),
    ),
    "the heartbeat service stands still": Scenario(
        trouble=heartbeat_stopped, fires=frozenset({"TwinlogServiceDown"})
    ),
    "the heartbeat service and the copier stand still": Scenario(
        trouble=heartbeat_and_copier_stopped,
        fires=frozenset({"TwinlogServiceDown", "TwinlogNothingCopied"}),
    ),
    "a quota of the target holds the copier up": Scenario(
        trouble=writers_limited,
        fires=frozenset({"TwinlogTargetThrottles"}),
        may_fire=frozenset(
            {
                "TwinlogDelaySilent",
                "TwinlogNothingCopied",
                "TwinlogPartitionStalled",
                "TwinlogOffsetSyncsStale",
                "TwinlogCheckpointsStalled",
                "TwinlogLagOverRpo",
            }
        ),
    ),
    "the owner of a flow changes again and again": Scenario(
        trouble=owner_changes_again_and_again, fires=frozenset({"TwinlogOwnerFlapping"}), stays=True
    ),
    "the way to the target is cut": Scenario(
        trouble=link_cut,
        fires=frozenset({"TwinlogClusterUnreachable", "TwinlogNothingCopied"}),
        may_fire=frozenset(
            {
                "TwinlogDelaySilent",
                "TwinlogLagOverRpo",
                "TwinlogServiceNotReady",
                "TwinlogPartitionStalled",
                "TwinlogCheckpointsStalled",
                "TwinlogOffsetSyncsStale",
                "TwinlogOffsetsNotExact",
            }
        ),
    ),
    "the checkpoint service starts and cannot write": Scenario(
        trouble=checkpoint_service_starts_and_cannot_write,
        fires=frozenset({"TwinlogCheckpointsStalled", "TwinlogServiceNotReady"}),
        may_fire=frozenset({"TwinlogServiceDown"}),
        shows=frozenset({("twinlog-4-offsets", "Failures")}),
    ),
    "offset syncs cannot be written": Scenario(
        trouble=offset_syncs_cannot_be_written,
        fires=frozenset({"TwinlogOffsetSyncsStale"}),
        may_fire=frozenset({"TwinlogOffsetsNotExact"}),
    ),
    "the target refuses a topic": Scenario(
        trouble=target_refuses_a_topic, fires=frozenset({"TwinlogTargetOutOfStep"})
    ),
    "a group stands behind the end of its log": Scenario(
        trouble=group_behind_the_end,
        fires=frozenset({"TwinlogOffsetsNotExact"}),
        stays=True,
        shows=frozenset({("twinlog-6-migration", "Groups that hold it up")}),
    ),
    "somebody changes the target back": Scenario(
        trouble=copy_changed_again_and_again, fires=frozenset({"TwinlogDriftFightsBack"}), stays=True
    ),
    "somebody else writes into a copy": Scenario(
        trouble=somebody_else_writes,
        fires=frozenset({"TwinlogForeignWriter", "TwinlogCopyDiffers"}),
        stays=True,
    ),
    "records are deleted before they are copied": Scenario(
        trouble=records_lost, fires=frozenset({"TwinlogDataLost"}), stays=True
    ),
    "the target refuses a record": Scenario(
        trouble=record_too_large,
        fires=frozenset({"TwinlogPartitionFaulted"}),
        may_fire=frozenset({"TwinlogLagOverRpo"}),
        stays=True,
        shows=frozenset(
            {("twinlog-1-glance", "Failures"), ("twinlog-2-flows", "Partitions that do not move")}
        ),
    ),
}
