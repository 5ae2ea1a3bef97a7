"""The checkpoint service's metrics: counters are incremented where things happen, gauges are computed at each
scrape."""

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

from opentelemetry.metrics import Meter

from twinlog.clock import Clock
from twinlog.errors import TwinlogError
from twinlog.model import Flow
from twinlog.telemetry import instruments
from twinlog.telemetry.instruments import Figures
from twinlog.telemetry.metrics import services as metrics
from twinlog.telemetry.metrics.spec import END, ERROR_TYPE, GROUP, flow_attributes
from twinlog_checkpoint.config import CheckpointFlow
from twinlog_checkpoint.groups.progress import ProgressTable
from twinlog_checkpoint.translation.translation import Verdict

MOST_GROUPS = 200
"""Lag is shown for this many groups: those furthest behind on the source."""


class ObservedTail(Protocol):
    blocker: TwinlogError | None

    @property
    def position(self) -> int | None: ...


class ObservedCheckpointer(Protocol):
    entry: CheckpointFlow
    table: ProgressTable
    passes: int

    @property
    def tail(self) -> ObservedTail: ...


class ObservedDuty(Protocol):
    def refusal(self) -> TwinlogError | None: ...


class ObservedFences(Protocol):
    @property
    def topics(self) -> Mapping[str, int]: ...


class ObservedFlow(Protocol):
    """A flow as the scrape sees it."""

    @property
    def flow(self) -> Flow: ...

    @property
    def checkpointer(self) -> ObservedCheckpointer: ...

    @property
    def duty(self) -> ObservedDuty: ...

    @property
    def fences(self) -> ObservedFences: ...


class CheckpointInstruments:
    def __init__(self, meter: Meter, flow: Flow) -> None:
        self._flow = flow_attributes(flow.source, flow.target)
        self._latency = instruments.histogram(meter, metrics.CHECKPOINT_LATENCY)
        self._read = instruments.counter(meter, metrics.TRANSLATION_IO)
        self._offsets = instruments.counter(meter, metrics.CHECKPOINT_OFFSETS)
        self._failures = instruments.counter(meter, metrics.CHECKPOINT_FAILURES)

    def failed(self, reason: str) -> None:
        """Count a pass, or a commit of one group's offsets, that failed."""
        self._failures.add(1, {**self._flow, ERROR_TYPE: reason})

    def considered(self, verdict: Verdict) -> None:
        """Count the verdict of a committed offset. Not per group, because series of deleted groups would
        remain."""
        self._offsets.add(1, {**self._flow, "twinlog.outcome": verdict.value.lower()})

    def on_read_bytes(self, size_bytes: int) -> None:
        """Count bytes read from both logs to align them."""
        self._read.add(size_bytes, self._flow)

    def emitted(self, latency_seconds: float) -> None:
        """Count a checkpoint that the target acknowledged. The latency begins when the group's offsets were
        read."""
        self._latency.record(latency_seconds, self._flow)


def observe_flows(meter: Meter, flows: Sequence[ObservedFlow], *, clock: Clock) -> None:
    """Publish the gauges of all flows. Scrapes run in another thread, so the callbacks only read.

    Only the owner of a flow publishes what it knows of the groups: another process's knowledge is old.
    """

    def ages(of: ObservedFlow) -> Figures:
        at = of.checkpointer.table.confirmed_ms
        if at is not None and of.checkpointer.passes:
            yield max(0, clock.now_ms() - at) / 1000, {}

    def overdue(of: ObservedFlow) -> Figures:
        allowed = of.checkpointer.entry.settings.emit_interval_seconds
        return [(max(0.0, age - allowed), labels) for age, labels in ages(of)]

    def groups(of: ObservedFlow) -> Figures:
        return [(of.checkpointer.table.summary().group_count, {})]

    def verdicts(of: ObservedFlow) -> Figures:
        found = of.checkpointer.table.summary().partitions_by_verdict
        return [(found.get(verdict, 0), {"twinlog.verdict": verdict.value}) for verdict in Verdict]

    def positions(of: ObservedFlow) -> Figures:
        position = of.checkpointer.tail.position
        if position is not None:
            yield position, {}

    def readable(of: ObservedFlow) -> Figures:
        tail = of.checkpointer.tail
        return [(int(tail.blocker is None and tail.position is not None), {})]

    def fences(of: ObservedFlow) -> Figures:
        return [(topics, {END: end}) for end, topics in of.fences.topics.items()]

    def seen(*, of_groups: bool) -> list[tuple[Mapping[str, str], ObservedFlow]]:
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


def _lags(of: ObservedFlow) -> Figures:
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
