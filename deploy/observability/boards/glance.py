"""Is Twinlog up, late, losing or erroring? The first look."""

from typing import Any

from deploy.observability.alerts import RPO_SECONDS
from deploy.observability.boards.panels import (
    ACTIVE,
    ANY_IS_BAD,
    FLOW,
    FLOWS,
    LOST,
    NO_RECORD,
    YES,
    by_flow,
    of,
    panel,
    percentile,
    rates,
)
from deploy.observability.grafana import Board

_STANDING = of("twinlog_replication_partitions", 'twinlog_state=~"STALLED|FAULTED"')
_ALIVE = by_flow("max", "twinlog_heartbeat_path", 'twinlog_state="ALIVE"')
_SILENT = by_flow("max", "twinlog_heartbeat_path", 'twinlog_state="SILENT"')
_PATH = f"{_ALIVE} + 2 * {_SILENT}"
_PATHS = ((0.0, "UNKNOWN", "orange"), (1.0, "ALIVE", "green"), (2.0, "SILENT", "red"))
_ROW: dict[str, Any] = {"kind": "stat", "width": 4, "height": 5}

GLANCE = Board(
    uid="twinlog-1-glance",
    title="Twinlog 1: at a glance",
    meaning="Is it up, late, losing or erroring? Do producers write, are both ends equal,"
    " did groups resume on the target?",
    panels=(
        panel("Up", "How many of the four services export metrics.",
            ("count(count by (twinlog_service) (twinlog_service_ready)) or vector(0)", "services"),
            base="red", limits=(("green", 4.0),), **_ROW),
        panel("Ready", "Every service has an owner at work for each of its flows.",
            ("min(twinlog_service_ready)", "ready"), words=YES, **_ROW),
        panel("Late",
            "Age of the oldest record that is not copied. Red: older than the recovery point objective.",
            (f"max({of('twinlog_replication_lag_time_seconds')})", "oldest"), unit="s",
            limits=(("orange", 60.0), ("red", float(RPO_SECONDS))), **_ROW),
        panel("Lost", "Source offsets that are lost since the services started; `twinlog gaps` lists them.",
            (LOST, "records"), limits=ANY_IS_BAD, **_ROW),
        panel("Different",
            "Records in which copies differ from the source, by continuous verification; empty where it is"
            " off.", (f"sum({of('twinlog_verified_differences')})", "records"), limits=ANY_IS_BAD, **_ROW),
        panel("Erroring", "Partitions that do not move: STALLED or FAULTED.",
            (f"sum({_STANDING}) or {NO_RECORD}", "partitions"), limits=ANY_IS_BAD, **_ROW),
        panel("Are producers still writing?",
            "Records a second that producers append to the source's logs; 0: nobody writes.",
            (f"sum by ({FLOW}) (deriv({of('twinlog_replication_source_end')}[5m]))", FLOWS), unit="cps"),
        panel("Are both ends equal?",
            "How long ago every copy was last found equal to its source; empty where continuous"
            " verification is off (`twinlog.verify.interval.seconds`).",
            (by_flow("max", "twinlog_verified_age_seconds"), FLOWS), unit="s"),
        panel("Did groups resume on the target?",
            "Partitions that are read by groups with members on the target.", (ACTIVE, FLOWS)),
        panel("Path", "ALIVE: heartbeats arrive. SILENT: they do not arrive. UNKNOWN: neither is known.",
            (_PATH, FLOWS), kind="stat", words=_PATHS),
        panel("Delay of the path",
            "Time that heartbeats take from the source to the target, 99th percentile.",
            (percentile(0.99, "twinlog_heartbeat_delay_seconds"), FLOWS), unit="s"),
        panel("Failures", "Failed attempts to copy, a second, by reason; each is tried again.",
            (rates("twinlog_replication_failures_total", by="error_type"), "{{error_type}}")),
    ),
)  # fmt: skip
