"""Is Twinlog up, late, losing or erroring? The first look."""

from typing import Any

from deploy.observability.alerts import FLOW, RPO_SECONDS
from deploy.observability.boards.panels import ANY_IS_BAD, YES, panel
from deploy.observability.boards.queries import (
    ACTIVE,
    FLOWS,
    LOST,
    NO_RECORD,
    by_flow,
    of,
    percentile,
    rates,
)
from deploy.observability.grafana import Board

_STANDING = of("twinlog_replication_partitions", 'twinlog_state=~"STALLED|FAULTED"')
_ROW: dict[str, Any] = {"kind": "stat", "width": 4, "height": 5}

GLANCE = Board(
    uid="twinlog-1-glance",
    title="Twinlog 1: at a glance",
    meaning="Is it up, late, losing or erroring? Do producers write, are both ends equal,"
    " did groups resume on the target?",
    panels=(
        panel(
            "Up",
            "Services that show metrics: four.",
            ("count(count by (twinlog_service) (twinlog_service_ready))", "services"),
            limits=(("green", 4.0),),
            **_ROW,
        ),
        panel(
            "Ready",
            "Every flow has an owner at work.",
            ("min(twinlog_service_ready)", "ready"),
            words=YES,
            **_ROW,
        ),
        panel(
            "Late",
            "Age of the oldest record that is not copied.",
            (f"max({of('twinlog_replication_lag_time_seconds')})", "oldest"),
            unit="s",
            limits=(("orange", 60.0), ("red", float(RPO_SECONDS))),
            **_ROW,
        ),
        panel(
            "Lost",
            "Source offsets that can never be copied, since the services started.",
            (LOST, "records"),
            limits=ANY_IS_BAD,
            **_ROW,
        ),
        panel(
            "Different",
            "Records of which the standing proof has found the copy to differ; nothing where it is off.",
            (f"sum({of('twinlog_verified_differences')})", "records"),
            limits=ANY_IS_BAD,
            **_ROW,
        ),
        panel(
            "Erroring",
            "Partitions that stand: STALLED or FAULTED.",
            (f"sum({_STANDING}) or {NO_RECORD}", "partitions"),
            limits=ANY_IS_BAD,
            **_ROW,
        ),
        panel(
            "Are producers still writing?",
            "How fast the logs of the source grow: 0 means that nobody writes to what is copied.",
            (f"sum by ({FLOW}) (deriv({of('twinlog_replication_source_end')}[5m]))", FLOWS),
            unit="cps",
        ),
        panel(
            "Are both ends equal?",
            "How long ago the standing proof last found each copy equal, at most; nothing where the"
            " proof is off (`twinlog.verify.interval.seconds`).",
            (by_flow("max", "twinlog_verified_age_seconds"), FLOWS),
            unit="s",
        ),
        panel(
            "Did groups resume on the target?",
            "Partitions of groups that have members there.",
            (ACTIVE, FLOWS),
        ),
        panel(
            "Path",
            "Heartbeats arrive (ALIVE), do not (SILENT), or nothing can be said (UNKNOWN).",
            (
                f"max by ({FLOW}, twinlog_state) ({of('twinlog_heartbeat_path')}) == 1",
                FLOWS + " {{twinlog_state}}",
            ),
        ),
        panel(
            "Delay of the path",
            "From a heartbeat's emission on the source to its sight on the target.",
            (
                percentile(0.99, "twinlog_heartbeat_delay_seconds"),
                FLOWS,
            ),
            unit="s",
        ),
        panel(
            "Failures",
            "By reason; after each the copy tries again.",
            (rates("twinlog_replication_failures_total", by="error_type"), "{{error_type}}"),
        ),
    ),
)
