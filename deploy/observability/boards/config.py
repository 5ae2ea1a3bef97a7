"""Whether the target is as the source: topics, configurations, ACLs, quotas."""

from deploy.observability.boards.panels import (
    ANY_IS_BAD,
    FLOW,
    FLOWS,
    by_flow,
    of,
    panel,
)
from deploy.observability.grafana import Board

CONFIG = Board(
    uid="twinlog-5-config",
    title="Twinlog 5: configuration and access",
    meaning="Does the target match the source: topics, configurations, ACLs, quotas?",
    panels=(
        panel(
            "Out of step",
            "Changes that the target refuses, or that wait for `twinlog apply`; `twinlog plan` lists them.",
            (
                f"max by ({FLOW}, twinlog_resource_type) ({of('twinlog_configsync_drift')})",
                FLOWS + " {{twinlog_resource_type}}",
            ),
            limits=ANY_IS_BAD,
            width=12,
        ),
        panel("Last comparison", "Time since source and target were last compared.",
            (by_flow("max", "twinlog_configsync_age_seconds"), FLOWS), unit="s", width=12),
        panel(
            "Changes",
            "Changes on the target in an hour, by kind and outcome.",
            (
                (
                    f"sum by (twinlog_resource_type, twinlog_outcome)"
                    f" (increase({of('twinlog_configsync_changes_total')}[1h]))"
                ),
                "{{twinlog_resource_type}} {{twinlog_outcome}}",
            ),
            width=12,
        ),
        panel(
            "Topics by state",
            "READY: the topic is copied. The other states: `twinlog topics` says why not.",
            (
                f"max by ({FLOW}, twinlog_state) ({of('twinlog_configsync_topics')})",
                FLOWS + " {{twinlog_state}}",
            ),
            width=12,
        ),
    ),
)  # fmt: skip
