"""The gauges of a flow, computed from its rows, limits and latest records.

Called from the thread that serves scrapes.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from opentelemetry.metrics import Meter, Observation

from twinlog.clock import Clock
from twinlog.comparison.model import Kind
from twinlog.telemetry import instruments
from twinlog.telemetry.metrics.replication import (
    DESIRED_WORKERS,
    REPLICATION_BEHIND,
    REPLICATION_IO_RATE,
    REPLICATION_LAG,
    REPLICATION_LAG_TIME,
    REPLICATION_LATENCY_AVG,
    REPLICATION_LATENCY_MAX,
    REPLICATION_LATENCY_MIN,
    REPLICATION_OVERDUE,
    REPLICATION_PARTITIONS,
    REPLICATION_RECORD_AGE_AVG,
    REPLICATION_RECORD_AGE_MAX,
    REPLICATION_RECORD_AGE_MIN,
    REPLICATION_RECORDS_RATE,
    REPLICATION_SOURCE_END,
    REPLICATION_STALLED,
    REPLICATION_THROTTLE,
    REPLICATION_THROTTLED,
    SLOT_LAG,
)
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
from twinlog_source.partitions.standing import QUOTA_SECONDS, FlowFacts, lag_of, standing_of
from twinlog_source.partitions.table import PartitionTable
from twinlog_source.reasons import HELD

VERIFIED_KINDS = tuple(str(kind) for kind in Kind)
MOST_STALLED = 100
"""Most partitions of a flow that are shown with their reasons."""
_STANDS = frozenset((PartitionState.STALLED, PartitionState.FAULTED))

FigureOf = Callable[[LatencyHistogram], float]
RateOf = Callable[[PartitionRow], Callable[[float], float]]


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

    def lags(self, facts: FlowFacts) -> list[Observation]:
        """Offsets of each partition that are not copied yet; unknown ones are absent."""
        return [
            Observation(lag, self._at(row)) for row in self._rows() if (lag := lag_of(row, facts)) is not None
        ]

    def verified_until(self) -> list[Observation]:
        return [Observation(proof.proven_until, self._at(row)) for row, proof in self._proofs()]

    def verified_ages(self) -> list[Observation]:
        now_ms = self.clock.now_ms()
        return [
            Observation((now_ms - proof.proven_at_ms) / 1000, self._at(row))
            for row, proof in self._proofs()
            if proof.proven_at_ms
        ]

    def verified_differences(self) -> list[Observation]:
        """Differences by topic and kind; 0 where everything verified is equal."""
        counts: Counter[tuple[str, str]] = Counter()
        for row, proof in self._proofs():
            for kind in VERIFIED_KINDS:
                counts[row.target_topic, kind] += proof.differences.get(kind, 0)
        return [
            Observation(count, {**self._to(topic), "twinlog.kind": kind})
            for (topic, kind), count in counts.items()
        ]

    def _proofs(self) -> list[tuple[PartitionRow, ProofStanding]]:
        proofs = self.table.proofs
        return [(row, proofs[row.partition]) for row in self._rows() if row.partition in proofs]

    def lag_times(self, facts: FlowFacts) -> list[Observation]:
        """Age of the oldest record of each partition that is not copied yet; absent where unknown."""
        return [
            Observation(seconds, self._at(row))
            for row in self._rows()
            if (seconds := standing_of(row, facts).lag_seconds) is not None
        ]

    def overdue(self, facts: FlowFacts) -> list[Observation]:
        """The age of the oldest record that nobody holds back."""
        ages = []
        for row in self._rows():
            standing = standing_of(row, facts)
            is_held = standing.state == PartitionState.PAUSED or standing.reason in HELD
            if standing.lag_seconds is not None:
                ages.append(0.0 if is_held else max(0.0, standing.lag_seconds - facts.delay_seconds))
        return [Observation(max(ages), dict(self.flow))] if ages else []

    def record_rates(self) -> list[Observation]:
        return self._rates(lambda row: row.records.shown)

    def byte_rates(self) -> list[Observation]:
        return self._rates(lambda row: row.bytes.shown)

    def latency_figures(self, take: FigureOf) -> list[Observation]:
        return self._figures(self.latencies, take)

    def record_age_figures(self, take: FigureOf) -> list[Observation]:
        return self._figures(self.record_ages, take)

    def throttles(self) -> list[Observation]:
        """The limits in force."""
        target_topics = {row.partition.topic: row.target_topic for row in self._rows()}
        return [
            Observation(
                limit.bytes_per_second,
                dict(self.flow) if topic is None else self._to(target_topics.get(topic, topic)),
            )
            for topic, limit in list(self.control.throttles.items())
        ]

    def states(self, facts: FlowFacts) -> list[Observation]:
        """Partitions by state."""
        counts: dict[str, int] = {}
        for row in self._rows():
            name = standing_of(row, facts).state
            counts[name] = counts.get(name, 0) + 1
        return [Observation(count, {**self.flow, "twinlog.state": name}) for name, count in counts.items()]

    def source_ends(self) -> list[Observation]:
        """The last known log ends of each topic; topics of heartbeats are left out."""
        ends: Counter[str] = Counter()
        for row in self._rows():
            if row.end is not None and not row.is_heartbeats:
                ends[row.target_topic] += row.end
        return [Observation(end, self._to(topic)) for topic, end in ends.items()]

    def behind(self, facts: FlowFacts) -> list[Observation]:
        """Partitions with records to copy, by state and reason."""
        counts: Counter[tuple[str, str]] = Counter()
        for row in self._rows():
            if row.last_known_lag and not row.is_heartbeats:
                standing = standing_of(row, facts)
                counts[standing.state, standing.reason] += 1
        return [
            Observation(count, {**self.flow, "twinlog.state": state, ERROR_TYPE: reason})
            for (state, reason), count in counts.items()
        ]

    def stalled(self, facts: FlowFacts) -> list[Observation]:
        """The partitions that have made no progress for the longest time, with the reason."""
        found = [
            (facts.now - since if (since := standing.stalled_since) is not None else 0.0, row, standing)
            for row in self._rows()
            if (standing := standing_of(row, facts)).state in _STANDS
        ]
        found.sort(key=lambda each: (-each[0], each[1].partition))
        return [
            Observation(
                seconds,
                {
                    **self._at(row),
                    "twinlog.state": standing.state,
                    ERROR_TYPE: standing.reason,
                },
            )
            for seconds, row, standing in found[:MOST_STALLED]
        ]

    def throttled(self, facts: FlowFacts) -> list[Observation]:
        """Tasks that a quota delays, by cluster."""
        ends = (
            ("source", self.table.source_throttled_at),
            ("target", self.table.target_throttled_at),
        )
        return [
            Observation(
                sum(1 for moment in list(at.values()) if facts.now - moment <= QUOTA_SECONDS),
                {**self.flow, END: end},
            )
            for end, at in ends
        ]

    def _rows(self) -> list[PartitionRow]:
        return list(self.table.rows.values())

    def _rates(self, rate: RateOf) -> list[Observation]:
        now = self.clock.monotonic()
        by_topic: dict[str, float] = {}
        for row in self._rows():
            by_topic[row.target_topic] = by_topic.get(row.target_topic, 0.0) + rate(row)(now)
        return [Observation(per_second, self._to(topic)) for topic, per_second in by_topic.items()]

    def _figures(self, windows: LatencyWindows, take: FigureOf) -> list[Observation]:
        """One statistic of the last half minute, by topic."""
        recent = windows.recent(self.clock.monotonic())
        return [Observation(take(histogram), self._to(topic)) for topic, histogram in recent.items()]

    def _to(self, topic: str) -> dict[str, str]:
        return {**self.flow, DESTINATION: topic}

    def _at(self, row: PartitionRow) -> dict[str, str]:
        return {**self._to(row.target_topic), PARTITION: str(row.partition.partition)}


class ObservedFlow(Protocol):
    """A flow as the scrape sees it."""

    @property
    def gauges(self) -> FlowGauges: ...

    def facts(self) -> FlowFacts: ...

    def workers_wanted(self) -> int: ...

    def slot_lags(self) -> Sequence[int]: ...


def observe_flows(meter: Meter, flows: Sequence[ObservedFlow]) -> None:
    """Publish the gauges of all flows, with one callback each for the process."""

    def publish(spec: MetricSpec, observe: Callable[[FlowGauges], Iterable[Observation]]) -> None:
        instruments.gauge(meter, spec, lambda: [each for flow in flows for each in observe(flow.gauges)])

    def publish_standing(
        spec: MetricSpec, observe: Callable[[FlowGauges, FlowFacts], Iterable[Observation]]
    ) -> None:
        instruments.gauge(
            meter, spec, lambda: [each for flow in flows for each in observe(flow.gauges, flow.facts())]
        )

    publish(REPLICATION_RECORDS_RATE, _published_rates)
    publish(REPLICATION_IO_RATE, FlowGauges.byte_rates)
    publish_standing(REPLICATION_LAG, FlowGauges.lags)
    publish_standing(REPLICATION_LAG_TIME, FlowGauges.lag_times)
    publish_standing(REPLICATION_OVERDUE, FlowGauges.overdue)
    publish(VERIFIED_UNTIL, FlowGauges.verified_until)
    publish(VERIFIED_AGE, FlowGauges.verified_ages)
    publish(VERIFIED_DIFFERENCES, FlowGauges.verified_differences)
    publish(REPLICATION_THROTTLE, FlowGauges.throttles)
    publish_standing(REPLICATION_PARTITIONS, FlowGauges.states)
    publish(REPLICATION_SOURCE_END, FlowGauges.source_ends)
    publish_standing(REPLICATION_BEHIND, FlowGauges.behind)
    publish_standing(REPLICATION_STALLED, FlowGauges.stalled)
    publish_standing(REPLICATION_THROTTLED, FlowGauges.throttled)
    instruments.gauge(
        meter,
        DESIRED_WORKERS,
        lambda: [Observation(flow.workers_wanted(), dict(flow.gauges.flow)) for flow in flows],
    )
    instruments.gauge(
        meter,
        SLOT_LAG,
        lambda: [
            Observation(lag, {**flow.gauges.flow, SLOT: str(slot)})
            for flow in flows
            for slot, lag in enumerate(flow.slot_lags())
        ],
    )
    for take, latency, age in (
        (_shortest, REPLICATION_LATENCY_MIN, REPLICATION_RECORD_AGE_MIN),
        (_longest, REPLICATION_LATENCY_MAX, REPLICATION_RECORD_AGE_MAX),
        (_mean, REPLICATION_LATENCY_AVG, REPLICATION_RECORD_AGE_AVG),
    ):
        publish(latency, partial(FlowGauges.latency_figures, take=take))
        publish(age, partial(FlowGauges.record_age_figures, take=take))


def _published_rates(gauges: FlowGauges) -> list[Observation]:
    """Callbacks run before a scrape reads the instruments, so it has what is handed to them here."""
    gauges.publish()
    return gauges.record_rates()


def _shortest(histogram: LatencyHistogram) -> float:
    return histogram.min_seconds


def _longest(histogram: LatencyHistogram) -> float:
    return histogram.max_seconds


def _mean(histogram: LatencyHistogram) -> float:
    return histogram.sum_seconds / histogram.records
