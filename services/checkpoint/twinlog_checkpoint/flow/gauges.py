"""The gauges of the checkpoint service: they are computed at each scrape."""

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence

from opentelemetry.metrics import Meter

from twinlog.clock import Clock
from twinlog.telemetry import instruments
from twinlog.telemetry.instruments import Figures
from twinlog.telemetry.metrics import services as metrics
from twinlog.telemetry.metrics.spec import END, GROUP, flow_attributes
from twinlog_checkpoint.flow.parts import FlowParts
from twinlog_checkpoint.translation.translation import Verdict

MOST_GROUPS = 200
"""Lag is shown for this many groups: those furthest behind on the source."""


def observe_flows(meter: Meter, flows: Sequence[FlowParts], *, clock: Clock) -> None:
    """Publish the gauges of all flows. Scrapes run in another thread, so the callbacks only read.

    Only the owner of a flow publishes what it knows of the groups: another process's knowledge is old.
    """

    def ages(of: FlowParts) -> Figures:
        at = of.checkpointer.table.confirmed_ms
        if at is not None and of.checkpointer.passes:
            yield max(0, clock.now_ms() - at) / 1000, {}

    def overdue(of: FlowParts) -> Figures:
        allowed = of.checkpointer.entry.settings.emit_interval_seconds
        return [(max(0.0, age - allowed), labels) for age, labels in ages(of)]

    def groups(of: FlowParts) -> Figures:
        return [(of.checkpointer.table.summary().group_count, {})]

    def verdicts(of: FlowParts) -> Figures:
        found = of.checkpointer.table.summary().partitions_by_verdict
        return [(found.get(verdict, 0), {"twinlog.verdict": verdict.value}) for verdict in Verdict]

    def positions(of: FlowParts) -> Figures:
        position = of.checkpointer.tail.position
        if position is not None:
            yield position, {}

    def readable(of: FlowParts) -> Figures:
        tail = of.checkpointer.tail
        return [(int(tail.blocker is None and tail.position is not None), {})]

    def fences(of: FlowParts) -> Figures:
        return [(topics, {END: end}) for end, topics in of.fences.topics.items()]

    def seen(*, of_groups: bool) -> list[tuple[Mapping[str, str], FlowParts]]:
        return [
            (flow_attributes(of.flow.source, of.flow.target), of)
            for of in flows
            if not of_groups or of.duty.refusal() is None
        ]

    instruments.observe_each(
        meter,
        lambda: seen(of_groups=False),
        {
            metrics.FENCED_TOPICS: fences,
            metrics.OFFSET_SYNC_POSITION: positions,
            metrics.OFFSET_SYNC_READABLE: readable,
        },
    )
    instruments.observe_each(
        meter,
        lambda: seen(of_groups=True),
        {
            metrics.CHECKPOINT_AGE: ages,
            metrics.CHECKPOINT_OVERDUE: overdue,
            metrics.CHECKPOINT_GROUPS: groups,
            metrics.CHECKPOINT_PARTITIONS: verdicts,
            metrics.GROUP_LAG: _lags,
        },
    )


def _lags(of: FlowParts) -> Figures:
    on_source, on_target = Counter[str](), Counter[str]()
    for row in of.checkpointer.table.rows():
        if row.source_lag is not None:
            on_source[row.group] += row.source_lag
        if row.target_lag is not None:
            on_target[row.group] += row.target_lag
    for group in heapq.nlargest(MOST_GROUPS, on_source, key=lambda each: on_source[each]):
        yield on_source[group], {GROUP: group, END: "source"}
        if group in on_target:
            yield on_target[group], {GROUP: group, END: "target"}
