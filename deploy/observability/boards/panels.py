"""How the boards show what they ask."""

from typing import Any

from deploy.observability.grafana import Panel, Query

FLOW = "twinlog_source_cluster, twinlog_target_cluster"
OF_PRODUCERS = f"and on ({FLOW}, messaging_destination_name) twinlog_replication_source_end"
"""After a metric by topic: heartbeats, which Twinlog writes itself, are left out."""

# What the boards ask Prometheus, of the flows that are chosen on a board.

SELECTED = 'twinlog_source_cluster=~"$source", twinlog_target_cluster=~"$target"'
FLOWS = "{{twinlog_source_cluster}}->{{twinlog_target_cluster}}"
"""Legend of a series by flow."""
RATE = "$__rate_interval"


def of(metric: str, *labels: str) -> str:
    """The metric's series of the chosen flows."""
    return f"{metric}{{{', '.join([SELECTED, *labels])}}}"


def by_flow(function: str, metric: str, *labels: str) -> str:
    return f"{function} by ({FLOW}) ({of(metric, *labels)})"


def rates(metric: str, *labels: str, by: str = FLOW) -> str:
    """A second, summed up."""
    return f"sum by ({by}) (rate({of(metric, *labels)}[{RATE}]))"


def percentile(share: float, histogram: str, window: str = RATE) -> str:
    buckets = f"sum by ({FLOW}, le) (rate({of(f'{histogram}_bucket')}[{window}]))"
    return f"histogram_quantile({share:g}, {buckets})"


_ON_TARGET = 'twinlog_verdict="ACTIVE_ON_TARGET"'
ACTIVE = f"max by ({FLOW}) ({of('twinlog_checkpoint_partitions', _ON_TARGET)})"
"""Partitions of groups that have members on the target."""
LAG = f"({of('twinlog_replication_lag')} {OF_PRODUCERS})"
LAG_OF_TOPICS = f"sum by ({FLOW}, messaging_destination_name) {LAG}"
NO_RECORD = f"0 * sum({of('twinlog_replication_partitions')})"
"""Counts that appear with the first event are 0 before it, and nothing where no service tells of the flow."""
LOST = f"(sum({of('twinlog_replication_lost_total')}) or {NO_RECORD})"


YES = ((0.0, "no", "red"), (1.0, "yes", "green"))
"""Words and colours of a figure that is 0 or 1."""
ANY_IS_BAD = (("red", 1.0),)


def panel(
    title: str,
    meaning: str,
    *queries: tuple[str, str],
    **more: Any,
) -> Panel:
    """`queries`: expression and legend of each. `more`: further fields of Panel."""
    return Panel(
        title=title,
        meaning=meaning,
        queries=tuple(Query(expression=expression, legend=legend) for expression, legend in queries),
        **more,
    )
