"""Whether each group could continue on the target, and how exactly."""

from deploy.observability.boards.panels import (
    ACTIVE,
    FLOW,
    FLOWS,
    by_flow,
    of,
    panel,
    rates,
)
from deploy.observability.grafana import Board

OFFSETS = Board(
    uid="twinlog-4-offsets",
    title="Twinlog 4: offsets of groups",
    meaning="Could each group continue on the target, and how exactly?",
    panels=(
        panel(
            "Verdicts",
            "Partitions of groups by verdict. PRESERVED, EXACT and UP_TO_DATE lose and repeat no record.",
            (
                f"max by ({FLOW}, twinlog_verdict) ({of('twinlog_checkpoint_partitions')}) > 0",
                FLOWS + " {{twinlog_verdict}}",
            ),
            width=12,
        ),
        panel("Resumed on the target",
            "Partitions that are read by groups with members on the target; their offsets are left alone.",
            (ACTIVE, FLOWS), width=12),
        panel("Age of the translation", "Time since the offsets of all groups were last translated.",
            (by_flow("max", "twinlog_checkpoint_age_seconds"), FLOWS), unit="s"),
        panel("Groups", "Groups of the source.", (by_flow("max", "twinlog_checkpoint_groups"), FLOWS)),
        panel("Offset syncs", "Offset up to which offset syncs are read. It grows while records are copied.",
            (by_flow("max", "twinlog_offset_sync_position"), FLOWS), least=None),
        panel("Failures", "Failed translations, a second, by reason.",
            (rates("twinlog_checkpoint_failures_total", by="error_type"), "{{error_type}}"), unit="ops"),
        panel(
            "Groups furthest behind",
            "The largest lags of groups, in records, on the source and on the target.",
            (
                (
                    f"topk(20, max by ({FLOW}, messaging_consumer_group_name, twinlog_end)"
                    f" ({of('twinlog_group_lag')}))"
                ),
                "",
            ),
            kind="table",
            width=16,
        ),
    ),
)  # fmt: skip
