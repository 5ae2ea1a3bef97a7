"""What each flow copies, how fast, and how far behind it is."""

from deploy.observability.boards.panels import (
    FLOWS,
    LAG_OF_TOPICS,
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
