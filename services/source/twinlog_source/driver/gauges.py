"""The gauges of a flow, computed from its rows, limits and latest records.

Called from the thread that serves scrapes.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from opentelemetry.metrics import Meter

from twinlog.clock import Clock
from twinlog.comparison.model import Kind
from twinlog.telemetry import instruments
from twinlog.telemetry.instruments import Figures
from twinlog.telemetry.metrics import replication as metrics
from twinlog.telemetry.metrics.spec import (
    DESTINATION,
    END,
    ERROR_TYPE,
    PARTITION,
    SLOT,
    MetricSpec,
)
from twinlog.telemetry.metrics.verification import VERIFIED_AGE, VERIFIED_DIFFERENCES, VERIFIED_UNTIL
from twinlog.verify.standing import ProofStanding
from twinlog_source.log.control import ControlState
from twinlog_source.partitions.latency import LatencyHistogram, LatencyWindows
from twinlog_source.partitions.reports import PartitionState
from twinlog_source.partitions.rows import PartitionRow
from twinlog_source.partitions.standing import QUOTA_SECONDS, STANDS, FlowFacts, lag_of, standing_of
from twinlog_source.partitions.table import PartitionTable
from twinlog_source.reasons import HELD

VERIFIED_KINDS = tuple(str(kind) for kind in Kind)
MOST_STALLED = 100
"""Most partitions of a flow that are shown with their reasons."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowGauges:
    flow: Mapping[str, str]
    """Attributes of all of the flow's gauges."""
    table: PartitionTable
    control: ControlState
    latencies: LatencyWindows
    record_ages: LatencyWindows
    clock: Clock
    publish: Callable[[], None]
    """Hands the flow's other metrics to their instruments."""

    def lags(self, facts: FlowFacts) -> Figures:
        """Offsets of each partition that are not copied yet; unknown ones are absent."""
        return [(lag, _at(row)) for row in self._rows() if (lag := lag_of(row, facts)) is not None]

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
        return [(row, proofs[row.partition]) for row in self._rows() if row.partition in proofs]

    def lag_times(self, facts: FlowFacts) -> Figures:
        """Age of the oldest record of each partition that is not copied yet; absent where unknown."""
        return [
            (seconds, _at(row))
            for row in self._rows()
            if (seconds := standing_of(row, facts).lag_seconds) is not None
        ]

    def overdue(self, facts: FlowFacts) -> Figures:
        """The age of the oldest record that nobody holds back."""
        ages = []
        for row in self._rows():
            standing = standing_of(row, facts)
            is_held = standing.state == PartitionState.PAUSED or standing.reason in HELD
            if standing.lag_seconds is not None:
                ages.append(0.0 if is_held else max(0.0, standing.lag_seconds - facts.delay_seconds))
        return [(max(ages), {})] if ages else []

    def throttles(self) -> Figures:
        """The limits in force."""
        targets = {row.partition.topic: row.target_topic for row in self._rows()}
        return [
            (limit.bytes_per_second, {} if topic is None else {DESTINATION: targets.get(topic, topic)})
            for topic, limit in list(self.control.throttles.items())
        ]

    def states(self, facts: FlowFacts) -> Figures:
        """Partitions by state."""
        counts = Counter(str(standing_of(row, facts).state) for row in self._rows())
        return [(count, {"twinlog.state": name}) for name, count in counts.items()]

    def source_ends(self) -> Figures:
        """The last known log ends of each topic; topics of heartbeats are left out."""
        ends: Counter[str] = Counter()
        for row in self._rows():
            if row.end is not None and not row.is_heartbeats:
                ends[row.target_topic] += row.end
        return [(end, {DESTINATION: topic}) for topic, end in ends.items()]

    def behind(self, facts: FlowFacts) -> Figures:
        """Partitions with records to copy, by state and reason."""
        counts: Counter[tuple[str, str]] = Counter()
        for row in self._rows():
            if row.last_known_lag and not row.is_heartbeats:
                standing = standing_of(row, facts)
                counts[standing.state, standing.reason] += 1
        return [
            (count, {"twinlog.state": state, ERROR_TYPE: reason}) for (state, reason), count in counts.items()
        ]

    def stalled(self, facts: FlowFacts) -> Figures:
        """The partitions that have made no progress for the longest time, with the reason."""
        found = [
            (facts.now - since if (since := standing.stalled_since) is not None else 0.0, row, standing)
            for row in self._rows()
            if (standing := standing_of(row, facts)).state in STANDS
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
        for row in self._rows():
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

    def _rows(self) -> list[PartitionRow]:
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


_GAUGES: Mapping[MetricSpec, Callable[[ObservedFlow], Figures]] = {
    metrics.REPLICATION_RECORDS_RATE: lambda of: of.gauges.record_rates(),
    metrics.REPLICATION_IO_RATE: lambda of: of.gauges.rates(lambda row: row.bytes.shown),
    metrics.REPLICATION_LAG: lambda of: of.gauges.lags(of.facts()),
    metrics.REPLICATION_LAG_TIME: lambda of: of.gauges.lag_times(of.facts()),
    metrics.REPLICATION_OVERDUE: lambda of: of.gauges.overdue(of.facts()),
    VERIFIED_UNTIL: lambda of: of.gauges.verified_until(),
    VERIFIED_AGE: lambda of: of.gauges.verified_ages(),
    VERIFIED_DIFFERENCES: lambda of: of.gauges.verified_differences(),
    metrics.REPLICATION_THROTTLE: lambda of: of.gauges.throttles(),
    metrics.REPLICATION_PARTITIONS: lambda of: of.gauges.states(of.facts()),
    metrics.REPLICATION_SOURCE_END: lambda of: of.gauges.source_ends(),
    metrics.REPLICATION_BEHIND: lambda of: of.gauges.behind(of.facts()),
    metrics.REPLICATION_STALLED: lambda of: of.gauges.stalled(of.facts()),
    metrics.REPLICATION_THROTTLED: lambda of: of.gauges.throttled(of.facts()),
    metrics.DESIRED_WORKERS: lambda of: [(of.workers_wanted(), {})],
    metrics.SLOT_LAG: lambda of: [(lag, {SLOT: str(slot)}) for slot, lag in enumerate(of.slot_lags())],
    metrics.REPLICATION_LATENCY_MIN: lambda of: of.gauges.of_windows(of.gauges.latencies, _shortest),
    metrics.REPLICATION_LATENCY_MAX: lambda of: of.gauges.of_windows(of.gauges.latencies, _longest),
    metrics.REPLICATION_LATENCY_AVG: lambda of: of.gauges.of_windows(of.gauges.latencies, _mean),
    metrics.REPLICATION_RECORD_AGE_MIN: lambda of: of.gauges.of_windows(of.gauges.record_ages, _shortest),
    metrics.REPLICATION_RECORD_AGE_MAX: lambda of: of.gauges.of_windows(of.gauges.record_ages, _longest),
    metrics.REPLICATION_RECORD_AGE_AVG: lambda of: of.gauges.of_windows(of.gauges.record_ages, _mean),
}


def observe_flows(meter: Meter, flows: Sequence[ObservedFlow]) -> None:
    """Publish the gauges of all flows, with one callback each for the process."""
    instruments.observe_each(meter, lambda: [(flow.gauges.flow, flow) for flow in flows], _GAUGES)


def _shortest(histogram: LatencyHistogram) -> float:
    return histogram.min_seconds


def _longest(histogram: LatencyHistogram) -> float:
    return histogram.max_seconds


def _mean(histogram: LatencyHistogram) -> float:
    return histogram.sum_seconds / histogram.records
