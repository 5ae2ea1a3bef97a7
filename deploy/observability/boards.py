"""The boards of Twinlog for Grafana, in the order of a look at 3 a.m."""

from collections.abc import Sequence
from typing import Any

from deploy.observability.alerts import FLOW, OF_PRODUCERS, RPO_SECONDS
from deploy.observability.grafana import Board, Panel, Query

SELECTED = 'twinlog_source_cluster=~"$source", twinlog_target_cluster=~"$target"'
FLOWS = "{{twinlog_source_cluster}}->{{twinlog_target_cluster}}"
RATE = "$__rate_interval"


def _panel(
    title: str,
    meaning: str,
    *queries: tuple[str, str],
    **more: Any,
) -> Panel:
    return Panel(
        title=title,
        meaning=meaning,
        queries=tuple(Query(expression=expression, legend=legend) for expression, legend in queries),
        **more,
    )


def _of(metric: str, *labels: str) -> str:
    return f"{metric}{{{', '.join([SELECTED, *labels])}}}"


def _by_flow(function: str, metric: str, *labels: str) -> str:
    return f"{function} by ({FLOW}) ({_of(metric, *labels)})"


def _rates(metric: str, *labels: str, by: str = FLOW) -> str:
    return f"sum by ({by}) (rate({_of(metric, *labels)}[{RATE}]))"


def _percentile(share: float, histogram: str, window: str = RATE) -> str:
    rates = f"sum by ({FLOW}, le) (rate({_of(f'{histogram}_bucket')}[{window}]))"
    return f"histogram_quantile({share:g}, {rates})"


_STANDING = _of("twinlog_replication_partitions", 'twinlog_state=~"STALLED|FAULTED"')
_TO_COPY = _of("twinlog_replication_behind", 'twinlog_state!="PAUSED"')
_UNCERTAIN = _of(
    "twinlog_checkpoint_partitions",
    'twinlog_verdict!~"PRESERVED|EXACT|UP_TO_DATE|ACTIVE_ON_TARGET|NOT_REPLICATED"',
)
_ON_TARGET = 'twinlog_verdict="ACTIVE_ON_TARGET"'
_LAG_ON_TARGET = _of("twinlog_group_lag", 'twinlog_end="target"')
_LAG = f"({_of('twinlog_replication_lag')} {OF_PRODUCERS})"
_LAG_OF_TOPICS = f"sum by ({FLOW}, messaging_destination_name) {_LAG}"
_LAG_GROWS = f"sum(deriv({_of('twinlog_replication_lag')}[5m]) {OF_PRODUCERS})"
# Counts that appear with the first event are 0 before it, and nothing where no service tells of the flow.
_NO_RECORD = f"0 * sum({_of('twinlog_replication_partitions')})"
_NO_GROUP = f"0 * sum({_of('twinlog_checkpoint_groups')})"
_SOURCE_ANSWERS = 'min(twinlog_cluster_reachable{twinlog_cluster=~"$source"})'
_LOST = f"(sum({_of('twinlog_replication_lost_total')}) or {_NO_RECORD})"
_ACTIVE = f"max by ({FLOW}) ({_of('twinlog_checkpoint_partitions', _ON_TARGET)})"
_YES = ((0.0, "no", "red"), (1.0, "yes", "green"))
_ANY_IS_BAD = (("red", 1.0),)
_ROW: dict[str, Any] = {"kind": "stat", "width": 4, "height": 5}
GO = ((0.0, "NO-GO", "red"), (1.0, "GO", "green"))
_GO: dict[str, Any] = {"kind": "stat", "width": 3, "height": 5, "words": GO}

GLANCE = Board(
    uid="twinlog-1-glance",
    title="Twinlog 1: at a glance",
    meaning="Is it up, late, losing or erroring? Do producers write, are both ends equal,"
    " did groups resume on the target?",
    panels=(
        _panel(
            "Up",
            "Services that show metrics: four.",
            ("count(count by (twinlog_service) (twinlog_service_ready))", "services"),
            limits=(("green", 4.0),),
            **_ROW,
        ),
        _panel(
            "Ready",
            "Every flow has an owner at work.",
            ("min(twinlog_service_ready)", "ready"),
            words=_YES,
            **_ROW,
        ),
        _panel(
            "Late",
            "Age of the oldest record that is not copied.",
            (f"max({_of('twinlog_replication_lag_time_seconds')})", "oldest"),
            unit="s",
            limits=(("orange", 60.0), ("red", float(RPO_SECONDS))),
            **_ROW,
        ),
        _panel(
            "Lost",
            "Source offsets that can never be copied, since the services started.",
            (_LOST, "records"),
            limits=_ANY_IS_BAD,
            **_ROW,
        ),
        _panel(
            "Different",
            "Records of which the standing proof has found the copy to differ; nothing where it is off.",
            (f"sum({_of('twinlog_verified_differences')})", "records"),
            limits=_ANY_IS_BAD,
            **_ROW,
        ),
        _panel(
            "Erroring",
            "Partitions that stand: STALLED or FAULTED.",
            (f"sum({_STANDING}) or {_NO_RECORD}", "partitions"),
            limits=_ANY_IS_BAD,
            **_ROW,
        ),
        _panel(
            "Are producers still writing?",
            "How fast the logs of the source grow: 0 means that nobody writes to what is copied.",
            (f"sum by ({FLOW}) (deriv({_of('twinlog_replication_source_end')}[5m]))", FLOWS),
            unit="cps",
        ),
        _panel(
            "Are both ends equal?",
            "How long ago the standing proof last found each copy equal, at most; nothing where the"
            " proof is off (`twinlog.verify.interval.seconds`).",
            (_by_flow("max", "twinlog_verified_age_seconds"), FLOWS),
            unit="s",
        ),
        _panel(
            "Did groups resume on the target?",
            "Partitions of groups that have members there.",
            (_ACTIVE, FLOWS),
        ),
        _panel(
            "Path",
            "Heartbeats arrive (ALIVE), do not (SILENT), or nothing can be said (UNKNOWN).",
            (
                f"max by ({FLOW}, twinlog_state) ({_of('twinlog_heartbeat_path')}) == 1",
                FLOWS + " {{twinlog_state}}",
            ),
        ),
        _panel(
            "Delay of the path",
            "From a heartbeat's emission on the source to its sight on the target.",
            (
                _percentile(0.99, "twinlog_heartbeat_delay_seconds"),
                FLOWS,
            ),
            unit="s",
        ),
        _panel(
            "Failures",
            "By reason; after each the copy tries again.",
            (_rates("twinlog_replication_failures_total", by="error_type"), "{{error_type}}"),
        ),
    ),
)

FLOW_BOARD = Board(
    uid="twinlog-2-flows",
    title="Twinlog 2: flows",
    meaning="What each flow copies, how fast, and how far behind it is.",
    panels=(
        _panel(
            "Records copied",
            "Acknowledged on the target, a second.",
            (_rates("twinlog_replication_records_total"), FLOWS),
            unit="cps",
        ),
        _panel(
            "Bytes copied",
            "Of record batches, a second.",
            (_rates("twinlog_replication_io_bytes_total"), FLOWS),
            unit="Bps",
        ),
        _panel(
            "Lag",
            "Offsets between the position of the copy and the end of the source.",
            (_by_flow("sum", "twinlog_replication_lag"), FLOWS),
        ),
        _panel(
            "Lag in time",
            "Age of the oldest record that is not copied.",
            (_by_flow("max", "twinlog_replication_lag_time_seconds"), FLOWS),
            unit="s",
        ),
        _panel(
            "Latency",
            "Source timestamp of a record to its acknowledgement on the target, 99th percentile.",
            (
                _percentile(0.99, "twinlog_replication_latency_seconds"),
                FLOWS,
            ),
            unit="s",
        ),
        _panel(
            "Partitions by state",
            "RUNNING is well; STALLED and FAULTED are not.",
            (f"sum by (twinlog_state) ({_of('twinlog_replication_partitions')})", "{{twinlog_state}}"),
        ),
        _panel(
            "Worst topics",
            "Furthest behind, in offsets.",
            (f"topk(10, {_LAG_OF_TOPICS})", ""),
            kind="table",
            width=12,
        ),
        _panel(
            "Partitions that stand",
            "With the reason, and for how long.",
            (f"topk(10, {_of('twinlog_replication_stalled_seconds')})", ""),
            kind="table",
            unit="s",
            width=12,
        ),
    ),
)

ENDS = Board(
    uid="twinlog-3-ends",
    title="Twinlog 3: which end is slow",
    meaning="What holds the copy up: reading, writing, a quota, a limit.",
    panels=(
        _panel(
            "What is behind waits for",
            "Partitions with something left to copy, by state and reason;"
            " TARGET_SLOW is the target, an empty reason is a copy at work.",
            (
                f"sum by (twinlog_state, error_type) ({_of('twinlog_replication_behind')})",
                "{{twinlog_state}} {{error_type}}",
            ),
            width=12,
        ),
        _panel(
            "Quotas",
            "Tasks that a quota of a cluster holds up.",
            (f"sum by (twinlog_end) ({_of('twinlog_replication_throttled')})", "{{twinlog_end}}"),
            width=12,
        ),
        _panel(
            "Age when read",
            "Of records as they come from the source: high while latency is not much"
            " higher means that reading is behind. 99th percentile.",
            (
                _percentile(0.99, "twinlog_replication_record_age_seconds"),
                FLOWS,
            ),
            unit="s",
        ),
        _panel(
            "Latency",
            "To the acknowledgement on the target, 99th percentile.",
            (
                _percentile(0.99, "twinlog_replication_latency_seconds"),
                FLOWS,
            ),
            unit="s",
        ),
        _panel(
            "Clusters reached",
            "By the last probe of each service.",
            ("min by (twinlog_cluster) (twinlog_cluster_reachable)", "{{twinlog_cluster}}"),
            words=_YES,
        ),
        _panel(
            "Rounds",
            "Committed and aborted, a second.",
            (_rates("twinlog_replication_transactions_total", by="twinlog_outcome"), "{{twinlog_outcome}}"),
            unit="ops",
        ),
        _panel(
            "How records are copied",
            "UNOPENED is the cheap way; others say why batches were opened.",
            (_rates("twinlog_replication_lane_records_total", by="twinlog_lane"), "{{twinlog_lane}}"),
            unit="cps",
        ),
        _panel(
            "Limits",
            "Of an operator, for a flow or a topic; none when empty.",
            (_of("twinlog_replication_throttle_bytes_per_second"), FLOWS + " {{messaging_destination_name}}"),
            unit="Bps",
        ),
    ),
)

OFFSETS = Board(
    uid="twinlog-4-offsets",
    title="Twinlog 4: offsets of groups",
    meaning="Could each group continue on the target, and how exactly?",
    panels=(
        _panel(
            "Verdicts",
            "Partitions of groups. PRESERVED, EXACT and UP_TO_DATE lose and repeat nothing.",
            (
                f"max by ({FLOW}, twinlog_verdict) ({_of('twinlog_checkpoint_partitions')}) > 0",
                FLOWS + " {{twinlog_verdict}}",
            ),
            width=12,
        ),
        _panel(
            "Resumed on the target",
            "Partitions of groups that have members there: they own their offsets.",
            (_ACTIVE, FLOWS),
            width=12,
        ),
        _panel(
            "Age of the translation",
            "Since all groups were translated last.",
            (_by_flow("max", "twinlog_checkpoint_age_seconds"), FLOWS),
            unit="s",
        ),
        _panel("Groups", "Known on the source.", (_by_flow("max", "twinlog_checkpoint_groups"), FLOWS)),
        _panel(
            "Offset syncs",
            "Read up to this offset; flat while records are copied is wrong.",
            (_by_flow("max", "twinlog_offset_sync_position"), FLOWS),
        ),
        _panel(
            "Failures",
            "Of passes and of groups, by reason.",
            (_rates("twinlog_checkpoint_failures_total", by="error_type"), "{{error_type}}"),
            unit="ops",
        ),
        _panel(
            "Groups furthest behind",
            "On the source and on the target, in records.",
            (
                (
                    f"topk(20, max by ({FLOW}, messaging_consumer_group_name, twinlog_end)"
                    f" ({_of('twinlog_group_lag')}))"
                ),
                "",
            ),
            kind="table",
            width=16,
        ),
    ),
)

CONFIG = Board(
    uid="twinlog-5-config",
    title="Twinlog 5: configuration and access",
    meaning="Is the target as the source: topics, configurations, ACLs, quotas?",
    panels=(
        _panel(
            "Out of step",
            "Changes that the target refuses, or that wait for `twinlog apply`.",
            (
                f"max by ({FLOW}, twinlog_resource_type) ({_of('twinlog_configsync_drift')})",
                FLOWS + " {{twinlog_resource_type}}",
            ),
            limits=_ANY_IS_BAD,
            width=12,
        ),
        _panel(
            "Last comparison",
            "How long ago.",
            (_by_flow("max", "twinlog_configsync_age_seconds"), FLOWS),
            unit="s",
            width=12,
        ),
        _panel(
            "Changes",
            "Made on the target, by kind and outcome.",
            (
                (
                    f"sum by (twinlog_resource_type, twinlog_outcome)"
                    f" (increase({_of('twinlog_configsync_changes_total')}[1h]))"
                ),
                "{{twinlog_resource_type}} {{twinlog_outcome}}",
            ),
            width=12,
        ),
        _panel(
            "Topics by state",
            "As configsync has decided.",
            (
                f"max by ({FLOW}, twinlog_state) ({_of('twinlog_configsync_topics')})",
                FLOWS + " {{twinlog_state}}",
            ),
            width=12,
        ),
    ),
)

MIGRATION = Board(
    uid="twinlog-6-migration",
    title="Twinlog 6: the hour of migration",
    meaning="May consumers and producers move now? From the top: go or no-go, what drains, what holds it up.",
    panels=(
        _panel(
            "Producers silent",
            "The logs of the source have not grown for a minute, and the source answers.",
            (
                (
                    f"(max(changes({_of('twinlog_replication_source_end')}[1m])) == bool 0)"
                    f" * {_SOURCE_ANSWERS}"
                ),
                "go",
            ),
            **_GO,
        ),
        _panel(
            "Nothing left to copy",
            "No partition that is not paused has anything left, and the source answers.",
            (f"((sum({_TO_COPY}) or {_NO_RECORD}) == bool 0) * {_SOURCE_ANSWERS}", "go"),
            **_GO,
        ),
        _panel(
            "Both ends equal",
            "The standing proof finds no difference; nothing where it is off.",
            (f"sum({_of('twinlog_verified_differences')}) == bool 0", "go"),
            **_GO,
        ),
        _panel(
            "Nothing lost",
            "Since the services started; `twinlog gaps` has the ledger.",
            (f"{_LOST} == bool 0", "go"),
            **_GO,
        ),
        _panel(
            "Groups translated",
            "Every partition of every group has an answer that repeats nothing.",
            (f"(sum({_UNCERTAIN}) or {_NO_GROUP}) == bool 0", "go"),
            **_GO,
        ),
        _panel(
            "Resumed on the target",
            "Partitions of groups that have members there.",
            (f"sum({_ACTIVE})", "partitions"),
            kind="stat",
            width=3,
            height=5,
        ),
        _panel(
            "Fenced topics",
            "Topics to which nobody may write because of a failover or failback, by cluster.",
            (
                f"sum by ({FLOW}, twinlog_end) ({_of('twinlog_failover_fenced')})",
                FLOWS + " {{twinlog_end}}",
            ),
            kind="stat",
            width=3,
            height=5,
        ),
        _panel(
            "Drained in",
            "At the pace of the last 5 minutes; negative: it is falling further behind.",
            (f"0 * (sum{_LAG} == 0) or sum{_LAG} / -{_LAG_GROWS}", "left"),
            unit="s",
            limits=(),
            width=3,
            height=5,
            kind="stat",
        ),
        _panel(
            "What is left",
            "Offsets that are not copied.",
            (f"sum by ({FLOW}) {_LAG}", FLOWS),
            width=12,
        ),
        _panel(
            "Writing against copying",
            "Source and copy, a second: they meet when the flow is caught up.",
            (f"sum(deriv({_of('twinlog_replication_source_end')}[5m]))", "written on the source"),
            (f"sum(rate({_of('twinlog_replication_records_total')}[5m]) {OF_PRODUCERS})", "copied"),
            width=12,
            unit="cps",
        ),
        _panel(
            "Topics that hold it up",
            "By what is left.",
            (
                f"topk(20, {_LAG_OF_TOPICS} > 0)",
                "",
            ),
            kind="table",
            width=12,
            height=9,
        ),
        _panel(
            "Groups that hold it up",
            "Partitions by a verdict that is not certain.",
            (f"max by ({FLOW}, twinlog_verdict) ({_UNCERTAIN}) > 0", ""),
            kind="table",
            width=12,
            height=9,
        ),
        _panel(
            "Groups on the target",
            "Partitions of groups that have members there.",
            (_ACTIVE, FLOWS),
            width=12,
        ),
        _panel(
            "Groups still behind on the target",
            "Records they have not read there.",
            (f"topk(20, max by ({FLOW}, messaging_consumer_group_name) ({_LAG_ON_TARGET}))", ""),
            kind="table",
            width=12,
        ),
    ),
)

SERVICES = Board(
    uid="twinlog-7-services",
    title="Twinlog 7: services",
    meaning="What the processes do and cost.",
    panels=(
        _panel(
            "Ready",
            "Each process.",
            (
                "min by (twinlog_service, instance) (twinlog_service_ready)",
                "{{twinlog_service}} {{instance}}",
            ),
            words=_YES,
            width=12,
        ),
        _panel(
            "Who works at a flow",
            "1: the process works at it; the others stand by.",
            (
                f"max by ({FLOW}, twinlog_service, instance) ({_of('twinlog_flow_owner')})",
                FLOWS + " {{twinlog_service}} {{instance}}",
            ),
            width=12,
        ),
        _panel(
            "CPU",
            "Of the processes without Spark's.",
            (f"sum by (instance) (rate(process_cpu_time_seconds_total[{RATE}]))", "{{instance}}"),
        ),
        _panel(
            "Memory",
            "Resident.",
            ("sum by (instance) (process_memory_usage_bytes)", "{{instance}}"),
            unit="bytes",
        ),
        _panel(
            "Memory of Spark and its tasks",
            "On the machine of the source service.",
            ("sum by (instance) (twinlog_tasks_memory_bytes)", "{{instance}}"),
            unit="bytes",
        ),
        _panel(
            "Connections",
            "Sockets of each process.",
            ("sum by (instance) (twinlog_process_connections)", "{{instance}}"),
        ),
        _panel(
            "File descriptors",
            "Open.",
            ("sum by (instance) (process_unix_file_descriptor_count)", "{{instance}}"),
        ),
        _panel(
            "Up for",
            "Since the process began.",
            ("min by (instance) (process_uptime_seconds)", "{{instance}}"),
            unit="s",
        ),
        _panel(
            "RPCs",
            "A second, by status.",
            (
                f"sum by (rpc_response_status_code) (rate(rpc_server_call_duration_seconds_count[{RATE}]))",
                "{{rpc_response_status_code}}",
            ),
            unit="reqps",
        ),
        _panel(
            "Time of RPCs",
            "99th percentile.",
            (
                (
                    "histogram_quantile(0.99, sum by (rpc_method, le)"
                    f" (rate(rpc_server_call_duration_seconds_bucket[{RATE}])))"
                ),
                "{{rpc_method}}",
            ),
            unit="s",
        ),
        _panel(
            "Length of epochs",
            "Median, of Spark.",
            (
                _percentile(0.5, "twinlog_pipeline_batch_duration_seconds", "15m"),
                FLOWS,
            ),
            unit="s",
        ),
        _panel(
            "Certificate expires in",
            "Of the gRPC port, and of the login to each cluster; nothing without TLS.",
            ("min by (instance) (twinlog_certificate_expiry_seconds)", "{{instance}}"),
            (
                "min by (twinlog_cluster) (twinlog_login_certificate_expiry_seconds)",
                "login to {{twinlog_cluster}}",
            ),
            unit="s",
        ),
        _panel(
            "Token expires in",
            "Of the login to each cluster by OAUTHBEARER, and of the one for the other services.",
            (
                "min by (instance, twinlog_cluster) (twinlog_token_expiry_seconds)",
                "{{instance}} {{twinlog_cluster}}",
            ),
            unit="s",
        ),
        _panel(
            "Owners",
            "Changes of owner in an hour.",
            (
                f"sum by ({FLOW}, twinlog_service) (increase({_of('twinlog_flow_owner_changes_total')}[1h]))",
                FLOWS + " {{twinlog_service}}",
            ),
        ),
    ),
)

BOARDS: Sequence[Board] = (GLANCE, FLOW_BOARD, ENDS, OFFSETS, CONFIG, MIGRATION, SERVICES)
