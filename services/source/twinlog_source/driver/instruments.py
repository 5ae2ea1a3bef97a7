"""The metrics of one flow.

A call of an instrument takes some ten microseconds, and each task reports every second, so what is copied is
added up by topic first and reaches the instruments once for each scrape: the calls do not grow with records,
partitions or reports, and delay no event loop.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock
from types import MappingProxyType
from typing import Protocol

from opentelemetry.metrics import Meter

from twinlog.clock import Clock
from twinlog.comparison.model import DifferenceKind
from twinlog.telemetry import instruments
from twinlog.telemetry.instruments import Figures
from twinlog.telemetry.metrics import replication as metrics
from twinlog.telemetry.metrics.services import VERIFIED_AGE, VERIFIED_DIFFERENCES, VERIFIED_UNTIL
from twinlog.telemetry.metrics.spec import (
    DESTINATION,
    END,
    ERROR_TYPE,
    PARTITION,
    SLOT,
    MetricSpec,
    flow_attributes,
)
from twinlog.verify.standing import ProofStanding
from twinlog_source.config import SourceFlow
from twinlog_source.log.control import ControlState
from twinlog_source.log.gaps import Gap, GapIdentity
from twinlog_source.partitions.events import Copied
from twinlog_source.partitions.latency import LatencyHistogram, LatencyWindows
from twinlog_source.partitions.orders import PartitionState, TaskCounters
from twinlog_source.partitions.rows import PartitionRow
from twinlog_source.partitions.standing import (
    QUOTA_SECONDS,
    STANDS,
    FlowFacts,
    PartitionStanding,
    lag_of,
    standing_of,
)
from twinlog_source.partitions.table import PartitionTable
from twinlog_source.reasons import HELD

# The gauges of a flow, computed from its rows, limits and latest records.
#
# Called from the thread that serves scrapes.

VERIFIED_KINDS = tuple(str(kind) for kind in DifferenceKind)
MOST_STALLED = 100
"""Most partitions of a flow that are shown with their reasons."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowGauges:
    flow: Mapping[str, str]
    """Attributes of all of the flow's gauges."""
    table: PartitionTable
    control: ControlState
    gaps: Mapping[GapIdentity, Gap]
    latencies: LatencyWindows
    record_ages: LatencyWindows
    clock: Clock
    publish: Callable[[], None]
    """Hands the flow's other metrics to their instruments."""

    def lags(self, facts: FlowFacts) -> Figures:
        """Offsets of each partition that are not copied yet; unknown ones are absent."""
        return [(lag, _at(row)) for row in self.rows() if (lag := lag_of(row, facts)) is not None]

    def verified_until(self) -> Figures:
        return [(proof.proven_until, _at(row)) for row, proof in self._proofs()]

    def verified_ages(self) -> Figures:
        now_ms = self.clock.now_ms()
        return [
            ((now_ms - proof.proven_at_ms) / 1000, _at(row))
            for row, proof in self._proofs()
            if proof.proven_at_ms
        ]

    def verified_differences(self) -> Figures:
        """Differences by topic and kind; 0 where everything verified is equal."""
        counts: Counter[tuple[str, str]] = Counter()
        for row, proof in self._proofs():
            for kind in VERIFIED_KINDS:
                counts[row.target_topic, kind] += proof.differences.get(kind, 0)
        return [
            (count, {DESTINATION: topic, "twinlog.kind": kind}) for (topic, kind), count in counts.items()
        ]

    def _proofs(self) -> list[tuple[PartitionRow, ProofStanding]]:
        proofs = self.table.proofs
        return [(row, proofs[row.partition]) for row in self.rows() if row.partition in proofs]

    def lag_times(self, seen: "Seen") -> Figures:
        """Age of the oldest record of each partition that is not copied yet; absent where unknown."""
        return [
            (standing.lag_seconds, _at(row))
            for row, standing in seen.standings
            if standing.lag_seconds is not None
        ]

    def overdue(self, seen: "Seen") -> Figures:
        """The age of the oldest record that nobody holds back."""
        ages = []
        for _, standing in seen.standings:
            is_held = standing.state == PartitionState.PAUSED or standing.reason in HELD
            if standing.lag_seconds is not None:
                ages.append(0.0 if is_held else max(0.0, standing.lag_seconds - seen.facts.delay_seconds))
        return [(max(ages), {})] if ages else []

    def throttles(self) -> Figures:
        """The limits in force."""
        targets = {row.partition.topic: row.target_topic for row in self.rows()}
        return [
            (limit.bytes_per_second, {} if topic is None else {DESTINATION: targets.get(topic, topic)})
            for topic, limit in list(self.control.throttles.items())
        ]

    def states(self, seen: "Seen") -> Figures:
        """Partitions by state."""
        counts = Counter(str(standing.state) for _, standing in seen.standings)
        return [(count, {"twinlog.state": name}) for name, count in counts.items()]

    def open_losses(self, facts: FlowFacts) -> Figures:
        """Lost offsets that nobody has acknowledged, as the owner knows them."""
        targets = {row.partition.topic: row.target_topic for row in self.rows()}
        counts: Counter[tuple[str, str]] = Counter()
        for gap in list(self.gaps.values()) if facts.is_owned else ():
            if gap.is_loss and not gap.acknowledged_by:
                topic = gap.partition.topic
                counts[targets.get(topic, topic), gap.reason] += gap.lost_offsets
        return [
            (count, {DESTINATION: topic, ERROR_TYPE: reason}) for (topic, reason), count in counts.items()
        ]

    def open_foreign(self, facts: FlowFacts) -> Figures:
        """Foreign records that nobody has acknowledged, as the owner knows them."""
        counts: Counter[str] = Counter()
        for row in self.rows() if facts.is_owned else ():
            if row.foreign_records:
                counts[row.target_topic] += row.foreign_records
        return [(count, {DESTINATION: topic}) for topic, count in counts.items()]

    def source_ends(self) -> Figures:
        """The last known log ends of each topic; topics of heartbeats are left out."""
        ends: Counter[str] = Counter()
        for row in self.rows():
            if row.end is not None and not row.is_heartbeats:
                ends[row.target_topic] += row.end
        return [(end, {DESTINATION: topic}) for topic, end in ends.items()]

    def behind(self, seen: "Seen") -> Figures:
        """Partitions with records to copy, by state and reason."""
        counts: Counter[tuple[str, str]] = Counter()
        for row, standing in seen.standings:
            if row.last_known_lag and not row.is_heartbeats:
                counts[standing.state, standing.reason] += 1
        return [
            (count, {"twinlog.state": state, ERROR_TYPE: reason}) for (state, reason), count in counts.items()
        ]

    def stalled(self, seen: "Seen") -> Figures:
        """The partitions that have made no progress for the longest time, with the reason."""
        found = [
            (seen.facts.now - since if (since := standing.stalled_since) is not None else 0.0, row, standing)
            for row, standing in seen.standings
            if standing.state in STANDS
        ]
        found.sort(key=lambda each: (-each[0], each[1].partition))
        return [
            (seconds, {**_at(row), "twinlog.state": standing.state, ERROR_TYPE: standing.reason})
            for seconds, row, standing in found[:MOST_STALLED]
        ]

    def throttled(self, facts: FlowFacts) -> Figures:
        """Tasks that a quota delays, by cluster."""
        ends = (("source", self.table.source_throttled_at), ("target", self.table.target_throttled_at))
        return [
            (sum(facts.now - moment <= QUOTA_SECONDS for moment in list(at.values())), {END: end})
            for end, at in ends
        ]

    def rates(self, rate: Callable[[PartitionRow], Callable[[float], float]]) -> Figures:
        now = self.clock.monotonic()
        by_topic: Counter[str] = Counter()
        for row in self.rows():
            by_topic[row.target_topic] += rate(row)(now)  # type: ignore[assignment]
        return [(per_second, {DESTINATION: topic}) for topic, per_second in by_topic.items()]

    def of_windows(self, windows: LatencyWindows, take: Callable[[LatencyHistogram], float]) -> Figures:
        """One statistic of the last half minute, by topic."""
        recent = windows.recent(self.clock.monotonic())
        return [(take(histogram), {DESTINATION: topic}) for topic, histogram in recent.items()]

    def record_rates(self) -> Figures:
        """Callbacks run before a scrape reads the instruments, so it has what is handed to them here."""
        self.publish()
        return self.rates(lambda row: row.records.shown)

    def rows(self) -> list[PartitionRow]:
        return list(self.table.rows.values())


def _at(row: PartitionRow) -> dict[str, str]:
    return {DESTINATION: row.target_topic, PARTITION: str(row.partition.partition)}


class ObservedFlow(Protocol):
    """A flow as the scrape sees it."""

    @property
    def gauges(self) -> FlowGauges: ...

    def facts(self) -> FlowFacts: ...

    def workers_wanted(self) -> int: ...

    def slot_lags(self) -> Sequence[int]: ...


@dataclass(frozen=True)
class Seen:
    """A flow in one scrape: all of its gauges show the same moment."""

    flow: ObservedFlow

    @property
    def gauges(self) -> FlowGauges:
        return self.flow.gauges

    @cached_property
    def facts(self) -> FlowFacts:
        return self.flow.facts()

    @cached_property
    def standings(self) -> Sequence[tuple[PartitionRow, PartitionStanding]]:
        return [(row, standing_of(row, self.facts)) for row in self.gauges.rows()]


_GAUGES: Mapping[MetricSpec, Callable[[Seen], Figures]] = {
    metrics.REPLICATION_RECORDS_RATE: lambda of: of.gauges.record_rates(),
    metrics.REPLICATION_IO_RATE: lambda of: of.gauges.rates(lambda row: row.bytes.shown),
    metrics.REPLICATION_LAG: lambda of: of.gauges.lags(of.facts),
    metrics.REPLICATION_LAG_TIME: lambda of: of.gauges.lag_times(of),
    metrics.REPLICATION_OVERDUE: lambda of: of.gauges.overdue(of),
    VERIFIED_UNTIL: lambda of: of.gauges.verified_until(),
    VERIFIED_AGE: lambda of: of.gauges.verified_ages(),
    VERIFIED_DIFFERENCES: lambda of: of.gauges.verified_differences(),
    metrics.REPLICATION_THROTTLE: lambda of: of.gauges.throttles(),
    metrics.REPLICATION_PARTITIONS: lambda of: of.gauges.states(of),
    metrics.REPLICATION_GAPS: lambda of: of.gauges.open_losses(of.facts),
    metrics.REPLICATION_FOREIGN_OPEN: lambda of: of.gauges.open_foreign(of.facts),
    metrics.REPLICATION_SOURCE_END: lambda of: of.gauges.source_ends(),
    metrics.REPLICATION_BEHIND: lambda of: of.gauges.behind(of),
    metrics.REPLICATION_STALLED: lambda of: of.gauges.stalled(of),
    metrics.REPLICATION_THROTTLED: lambda of: of.gauges.throttled(of.facts),
    metrics.DESIRED_WORKERS: lambda of: [(of.flow.workers_wanted(), {})],
    metrics.SLOT_LAG: lambda of: [(lag, {SLOT: str(slot)}) for slot, lag in enumerate(of.flow.slot_lags())],
    metrics.REPLICATION_LATENCY_MIN: lambda of: of.gauges.of_windows(of.gauges.latencies, _shortest),
    metrics.REPLICATION_LATENCY_MAX: lambda of: of.gauges.of_windows(of.gauges.latencies, _longest),
    metrics.REPLICATION_LATENCY_AVG: lambda of: of.gauges.of_windows(of.gauges.latencies, _mean),
    metrics.REPLICATION_RECORD_AGE_MIN: lambda of: of.gauges.of_windows(of.gauges.record_ages, _shortest),
    metrics.REPLICATION_RECORD_AGE_MAX: lambda of: of.gauges.of_windows(of.gauges.record_ages, _longest),
    metrics.REPLICATION_RECORD_AGE_AVG: lambda of: of.gauges.of_windows(of.gauges.record_ages, _mean),
}


def observe_flows(meter: Meter, flows: Sequence[ObservedFlow]) -> None:
    """Publish the gauges of all flows, with one callback each for the process."""
    instruments.observe_each(meter, lambda: [(flow.gauges.flow, Seen(flow)) for flow in flows], _GAUGES)


def _shortest(histogram: LatencyHistogram) -> float:
    return histogram.min_seconds


def _longest(histogram: LatencyHistogram) -> float:
    return histogram.max_seconds


def _mean(histogram: LatencyHistogram) -> float:
    return histogram.sum_seconds / histogram.records


MOST_SAMPLES = 10
"""Most samples of one topic in one scrape: a histogram needs no more to show a distribution."""


@dataclass(slots=True)
class _Copied:
    """What was copied of one topic since the last scrape."""

    records: int = 0
    bytes: int = 0
    lanes: Counter[str] = field(default_factory=Counter)
    latency: LatencyHistogram = field(default_factory=LatencyHistogram)
    record_age: LatencyHistogram = field(default_factory=LatencyHistogram)


class FlowInstruments:
    def __init__(
        self,
        meter: Meter,
        flow: SourceFlow,
        table: PartitionTable,
        control: ControlState,
        clock: Clock,
        gaps: Mapping[GapIdentity, Gap] = MappingProxyType({}),
    ) -> None:
        self._meter = meter
        self._topics: Set[str] = frozenset()
        """The target topics that had series at the last scrape."""
        self._flow = flow_attributes(flow.flow.source, flow.flow.target)
        self._syncs_topic = "" if flow.offset_syncs is None else flow.offset_syncs.topic
        self._table = table
        self._clock = clock
        self._records = instruments.counter(meter, metrics.REPLICATION_RECORDS)
        self._io = instruments.counter(meter, metrics.REPLICATION_IO)
        self._latency = instruments.histogram(meter, metrics.REPLICATION_LATENCY)
        self._record_age = instruments.histogram(meter, metrics.REPLICATION_RECORD_AGE)
        self._lost = instruments.counter(meter, metrics.REPLICATION_LOST)
        self._foreign = instruments.counter(meter, metrics.REPLICATION_FOREIGN)
        self._lanes = instruments.counter(meter, metrics.REPLICATION_LANE_RECORDS)
        self._syncs = instruments.counter(meter, metrics.OFFSET_SYNC_RECORDS)
        self._failures = instruments.counter(meter, metrics.REPLICATION_FAILURES)
        self._transactions = instruments.counter(meter, metrics.REPLICATION_TRANSACTIONS)
        if self._syncs_topic:
            # Prometheus sees no increase in the first value of a series.
            self._syncs.add(0, self._to(self._syncs_topic))
        self._epochs = instruments.histogram(meter, metrics.PIPELINE_BATCH_DURATION)
        self._latencies = LatencyWindows()
        self._record_ages = LatencyWindows()
        self._copied: dict[str, _Copied] = {}
        self._lock = Lock()
        """Reports arrive on the event loop, scrapes in a thread of their own."""
        self.gauges = FlowGauges(
            flow=self._flow,
            table=table,
            control=control,
            gaps=gaps,
            latencies=self._latencies,
            record_ages=self._record_ages,
            clock=clock,
            publish=self.publish,
        )

    def copied(self, added: Iterable[Copied]) -> None:
        """Add up what a report tells of copied records."""
        now = self._clock.monotonic()
        latencies: dict[str, LatencyHistogram] = {}
        ages: dict[str, LatencyHistogram] = {}
        with self._lock:
            for each in added:
                topic = each.row.target_topic
                total = self._copied.setdefault(topic, _Copied())
                total.records += each.records
                total.bytes += each.bytes
                total.lanes.update(each.lanes)
                if each.latency is not None:
                    latencies.setdefault(topic, LatencyHistogram()).merge(each.latency)
                if each.record_age is not None:
                    ages.setdefault(topic, LatencyHistogram()).merge(each.record_age)
            for topic, latency in latencies.items():
                self._latencies.add(topic, latency, now)
                self._copied[topic].latency.merge(latency)
            for topic, age in ages.items():
                self._record_ages.add(topic, age, now)
                self._copied[topic].record_age.merge(age)

    def publish(self) -> None:
        """Hand what was added up to the instruments, and drop the series of topics that are copied no more.
        Called by each scrape, in its thread."""
        with self._lock:
            copied, self._copied = self._copied, {}
            self._latencies.forget(self._clock.monotonic())
            self._record_ages.forget(self._clock.monotonic())
        for topic, total in copied.items():
            attributes = self._to(topic)
            if total.records:
                self._records.add(total.records, attributes)
                self._io.add(total.bytes, attributes)
            for lane, records in total.lanes.items():
                self._lanes.add(records, {**attributes, "twinlog.lane": lane})
            for histogram, spread in (
                (self._latency, total.latency),
                (self._record_age, total.record_age),
            ):
                for seconds in spread.samples(MOST_SAMPLES):
                    histogram.record(seconds, attributes)

        before = self._topics
        # The last report of a task may come after its topic has left.
        self._topics = copied.keys() | {row.target_topic for row in list(self._table.rows.values())}
        if gone := before - self._topics:
            of_flow = self._flow.items()
            instruments.forget_series(
                self._meter, lambda series: series.get(DESTINATION) in gone and of_flow <= series.items()
            )

    def task_counted(self, before: TaskCounters, now: TaskCounters) -> None:
        """Count the increase of a task's own counters; they begin at 0 with every task."""
        if now.transactions_committed < before.transactions_committed:
            before = TaskCounters()
        for outcome, count in (
            ("committed", now.transactions_committed - before.transactions_committed),
            ("aborted", now.transactions_aborted - before.transactions_aborted),
        ):
            if count > 0:
                self._transactions.add(count, {**self._flow, "twinlog.outcome": outcome})
        if now.offset_syncs > before.offset_syncs:
            self._syncs.add(now.offset_syncs - before.offset_syncs, self._to(self._syncs_topic))
        for reason, failures in now.failures.items():
            added = failures - before.failures.get(reason, 0)
            if added > 0:
                self.failed(reason, added)

    def gap(self, gap: Gap) -> None:
        """Count a gap that was entered into the ledger."""
        row = self._table.rows.get(gap.partition)
        self._lost.add(
            gap.to_offset - gap.from_offset if gap.is_loss else 0,
            {**self._to("" if row is None else row.target_topic), ERROR_TYPE: gap.reason},
        )

    def foreign(self, row: PartitionRow, records: int) -> None:
        """Count foreign records that were found in a copy."""
        self._foreign.add(records, self._to(row.target_topic))

    def failed(self, reason: str, failures: int = 1) -> None:
        self._failures.add(failures, {**self._flow, ERROR_TYPE: reason})

    def epoch_ended(self, seconds: float) -> None:
        self._epochs.record(seconds, self._flow)

    def _to(self, topic: str) -> dict[str, str]:
        return {**self._flow, DESTINATION: topic}
