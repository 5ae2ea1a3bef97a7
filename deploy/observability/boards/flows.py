"""What each flow copies, how fast, and how far behind it is."""

from deploy.observability.boards.panels import (
    ACTIVE,
    FLOW,
    FLOWS,
    LAG_OF_TOPICS,
    YES,
    by_flow,
    of,
    panel,
    percentile,
    rates,
)
from deploy.observability.grafana import Board

FLOWS_BOARD = Board(
    uid="twinlog-2-flows",
    title="Twinlog 2: flows",
    meaning="What each flow copies, how fast, and how far behind it is.",
    panels=(
        panel("Records copied", "Records a second that the target has acknowledged.",
            (rates("twinlog_replication_records_total"), FLOWS), unit="cps"),
        panel("Bytes copied", "Bytes of record batches, a second.",
            (rates("twinlog_replication_io_bytes_total"), FLOWS), unit="Bps"),
        panel("Lag", "Offsets between the position of the copy and the end of the source.",
            (by_flow("sum", "twinlog_replication_lag"), FLOWS)),
        panel("Lag in time", "Age of the oldest record that is not copied.",
            (by_flow("max", "twinlog_replication_lag_time_seconds"), FLOWS), unit="s"),
        panel("Latency", "From a record's timestamp to its acknowledgement on the target, 99th percentile.",
            (percentile(0.99, "twinlog_replication_latency_seconds"), FLOWS), unit="s"),
        panel("Partitions by state", "RUNNING is as it should be; STALLED and FAULTED need somebody.",
            (f"sum by (twinlog_state) ({of('twinlog_replication_partitions')})", "{{twinlog_state}}")),
        panel("Worst topics", "The ten topics with the largest lag, in offsets.",
            (f"topk(10, {LAG_OF_TOPICS})", ""), kind="table", width=12),
        panel("Partitions that do not move", "With the reason, and for how long they have not moved.",
            (f"topk(10, {of('twinlog_replication_stalled_seconds')})", ""), kind="table", unit="s", width=12),
    ),
)  # fmt: skip


# Which end is slow: what holds the copy up.

ENDS = Board(
    uid="twinlog-3-ends",
    title="Twinlog 3: which end is slow",
    meaning="What holds the copy up: reading, writing, a quota, a limit.",
    panels=(
        panel(
            "What partitions with lag wait for",
            "Partitions with records to copy, by state and reason."
            " TARGET_SLOW: the target is slow. RUNNING without a reason: they are being copied.",
            (
                f"sum by (twinlog_state, error_type) ({of('twinlog_replication_behind')})",
                "{{twinlog_state}} {{error_type}}",
            ),
            width=12,
        ),
        panel("Quotas", "Copying tasks that a quota of a cluster slows down.",
            (f"sum by (twinlog_end) ({of('twinlog_replication_throttled')})", "{{twinlog_end}}"), width=12),
        panel("Age when read",
            "Age of records when they are read from the source, 99th percentile. If it is almost as high as"
            " the latency, reading is slow; if it is low, writing is.",
            (percentile(0.99, "twinlog_replication_record_age_seconds"), FLOWS), unit="s"),
        panel("Latency", "From a record's timestamp to its acknowledgement on the target, 99th percentile.",
            (percentile(0.99, "twinlog_replication_latency_seconds"), FLOWS), unit="s"),
        panel("Clusters reached", "Whether every service reached the cluster when it last tried.",
            ("min by (twinlog_cluster) (twinlog_cluster_reachable)", "{{twinlog_cluster}}"), words=YES),
        panel("Rounds", "Transactions on the target that were committed and aborted, a second.",
            (rates("twinlog_replication_transactions_total", by="twinlog_outcome"), "{{twinlog_outcome}}"),
            unit="ops"),
        panel("How records are copied",
            "UNOPENED: batches are copied as they are, the cheapest way. Others: why they were opened.",
            (rates("twinlog_replication_lane_records_total", by="twinlog_lane"), "{{twinlog_lane}}"),
            unit="cps"),
        panel("Limits", "Limits set by `twinlog throttle`, for a flow or a topic; empty without one.",
            (of("twinlog_replication_throttle_bytes_per_second"), FLOWS + " {{messaging_destination_name}}"),
            unit="Bps"),
    ),
)  # fmt: skip


# Whether each group could continue on the target, and how exactly.

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
