"""Which end is slow: what holds the copy up."""

from deploy.observability.boards.panels import (
    FLOWS,
    YES,
    of,
    panel,
    percentile,
    rates,
)
from deploy.observability.grafana import Board

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
