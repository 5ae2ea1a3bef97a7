"""The hour in which consumers and producers move: go or no-go."""

from typing import Any

from deploy.observability.boards.panels import (
    ACTIVE,
    FLOW,
    FLOWS,
    LAG,
    LAG_OF_TOPICS,
    LOST,
    NO_RECORD,
    OF_PRODUCERS,
    of,
    panel,
)
from deploy.observability.grafana import Board

_TO_COPY = of("twinlog_replication_behind", 'twinlog_state!="PAUSED"')
_UNCERTAIN = of(
    "twinlog_checkpoint_partitions",
    'twinlog_verdict!~"PRESERVED|EXACT|MAPPED|UP_TO_DATE|ACTIVE_ON_TARGET|NOT_REPLICATED"',
)
_LAG_ON_TARGET = of("twinlog_group_lag", 'twinlog_end="target"')
_LAG_GROWS = f"sum(deriv({of('twinlog_replication_lag')}[5m]) {OF_PRODUCERS})"
_NO_GROUP = f"0 * sum({of('twinlog_checkpoint_groups')})"
_SOURCE_ANSWERS = 'min(twinlog_cluster_reachable{twinlog_cluster=~"$source"})'
GO = ((0.0, "NO-GO", "red"), (1.0, "GO", "green"))
_GO: dict[str, Any] = {"kind": "stat", "width": 3, "height": 5, "words": GO}

MIGRATION = Board(
    uid="twinlog-6-migration",
    title="Twinlog 6: the hour of migration",
    meaning="May consumers and producers move now? From the top: go or no-go, which backlogs shrink, what"
    " blocks the move.",
    panels=(
        panel(
            "Producers silent",
            "The logs of the source have not grown for a minute, and the source answers.",
            (
                (f"(max(changes({of('twinlog_replication_source_end')}[1m])) == bool 0) * {_SOURCE_ANSWERS}"),
                "go",
            ),
            **_GO,
        ),
        panel("Nothing left to copy",
            "No partition that is not paused has anything left, and the source answers.",
            (f"((sum({_TO_COPY}) or {NO_RECORD}) == bool 0) * {_SOURCE_ANSWERS}", "go"), **_GO),
        panel("Both ends equal", "Continuous verification finds no difference; empty where it is off.",
            (f"sum({of('twinlog_verified_differences')}) == bool 0", "go"), **_GO),
        panel("Nothing lost",
            "No source offset is lost since the services started; `twinlog gaps` lists those before.",
            (f"{LOST} == bool 0", "go"), **_GO),
        panel("Groups translated",
            "Every partition of every group has an offset on the target with which no record is repeated.",
            (f"(sum({_UNCERTAIN}) or {_NO_GROUP}) == bool 0", "go"), **_GO),
        panel("Resumed on the target", "Partitions that are read by groups with members on the target.",
            (f"sum({ACTIVE})", "partitions"), kind="stat", width=3, height=5),
        panel("Fenced topics",
            "Topics that a failover or failback has fenced: nobody may write to them, by cluster.",
            (f"sum by ({FLOW}, twinlog_end) ({of('twinlog_failover_fenced')})", FLOWS + " {{twinlog_end}}"),
            kind="stat", width=3, height=5),
        panel("Drained in",
            "Time until nothing is left to copy, at the pace of the last 5 minutes. Negative: the lag grows.",
            (f"0 * (sum{LAG} == 0) or sum{LAG} / -{_LAG_GROWS}", "left"), unit="s", base="red",
            limits=(("green", 0.0),), width=3, height=5, kind="stat"),
        panel("What is left", "Offsets that are not copied yet.", (f"sum by ({FLOW}) {LAG}", FLOWS),
            width=12),
        panel("Writing against copying", "Records a second that producers write, and that are copied.",
            (f"sum(deriv({of('twinlog_replication_source_end')}[5m]))", "written on the source"),
            (f"sum(rate({of('twinlog_replication_records_total')}[5m]) {OF_PRODUCERS})", "copied"), width=12,
            unit="cps"),
        panel("Topics that hold it up", "Topics by the offsets that are left to copy.",
            (f"topk(20, {LAG_OF_TOPICS} > 0)", ""), kind="table", width=12, height=9),
        panel("Groups that hold it up",
            "Partitions of groups without an exact offset on the target, by verdict.",
            (f"max by ({FLOW}, twinlog_verdict) ({_UNCERTAIN}) > 0", ""), kind="table", width=12, height=9),
        panel("Groups on the target", "Partitions that are read by groups with members on the target.",
            (ACTIVE, FLOWS), width=12),
        panel("Groups still behind on the target", "Records that groups have not read on the target.",
            (f"topk(20, max by ({FLOW}, messaging_consumer_group_name) ({_LAG_ON_TARGET}))", ""),
            kind="table", width=12),
    ),
)  # fmt: skip
