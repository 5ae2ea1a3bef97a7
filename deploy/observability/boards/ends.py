"""Which end is slow: what holds the copy up."""

from deploy.observability.boards.panels import YES, panel
from deploy.observability.boards.queries import (
    FLOWS,
    of,
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
            "What is behind waits for",
            "Partitions with something left to copy, by state and reason;"
            " TARGET_SLOW is the target, an empty reason is a copy at work.",
            (
                f"sum by (twinlog_state, error_type) ({of('twinlog_replication_behind')})",
                "{{twinlog_state}} {{error_type}}",
            ),
            width=12,
        ),
        panel(
            "Quotas",
            "Tasks that a quota of a cluster holds up.",
            (f"sum by (twinlog_end) ({of('twinlog_replication_throttled')})", "{{twinlog_end}}"),
            width=12,
        ),
        panel(
            "Age when read",
            "Of records as they come from the source: high while latency is not much"
            " higher means that reading is behind. 99th percentile.",
            (
                percentile(0.99, "twinlog_replication_record_age_seconds"),
                FLOWS,
            ),
            unit="s",
        ),
        panel(
            "Latency",
            "To the acknowledgement on the target, 99th percentile.",
            (
                percentile(0.99, "twinlog_replication_latency_seconds"),
                FLOWS,
            ),
            unit="s",
        ),
        panel(
            "Clusters reached",
            "By the last probe of each service.",
            ("min by (twinlog_cluster) (twinlog_cluster_reachable)", "{{twinlog_cluster}}"),
            words=YES,
        ),
        panel(
            "Rounds",
            "Committed and aborted, a second.",
            (rates("twinlog_replication_transactions_total", by="twinlog_outcome"), "{{twinlog_outcome}}"),
            unit="ops",
        ),
        panel(
            "How records are copied",
            "UNOPENED is the cheap way; others say why batches were opened.",
            (rates("twinlog_replication_lane_records_total", by="twinlog_lane"), "{{twinlog_lane}}"),
            unit="cps",
        ),
        panel(
            "Limits",
            "Of an operator, for a flow or a topic; none when empty.",
            (of("twinlog_replication_throttle_bytes_per_second"), FLOWS + " {{messaging_destination_name}}"),
            unit="Bps",
        ),
    ),
)
