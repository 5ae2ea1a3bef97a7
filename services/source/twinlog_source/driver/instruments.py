"""The metrics of one flow, recorded where the driver learns of things."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol

from opentelemetry.metrics import Histogram, Meter, Observation

from twinlog.clock import Clock
from twinlog.telemetry import instruments
from twinlog.telemetry.metrics.replication import (
    OFFSET_SYNC_RECORDS,
    PIPELINE_BATCH_DURATION,
    REPLICATION_BEHIND,
    REPLICATION_FAILURES,
    REPLICATION_FOREIGN,
    REPLICATION_IO,
    REPLICATION_IO_RATE,
    REPLICATION_LAG,
    REPLICATION_LAG_TIME,
    REPLICATION_LANE_RECORDS,
    REPLICATION_LATENCY,
    REPLICATION_LATENCY_AVG,
    REPLICATION_LATENCY_MAX,
    REPLICATION_LATENCY_MIN,
    REPLICATION_LOST,
    REPLICATION_PARTITIONS,
    REPLICATION_RECORD_AGE,
    REPLICATION_RECORD_AGE_AVG,
    REPLICATION_RECORD_AGE_MAX,
    REPLICATION_RECORD_AGE_MIN,
    REPLICATION_RECORDS,
    REPLICATION_RECORDS_RATE,
    REPLICATION_SOURCE_END,
    REPLICATION_STALLED,
    REPLICATION_THROTTLE,
    REPLICATION_THROTTLED,
    REPLICATION_TRANSACTIONS,
)
from twinlog.telemetry.metrics.spec import (
    DESTINATION,
    END,
    ERROR_TYPE,
    PARTITION,
    MetricSpec,
    flow_attributes,
)
from twinlog.telemetry.metrics.verification import VERIFIED_AGE, VERIFIED_DIFFERENCES, VERIFIED_UNTIL
from twinlog.verify.model import Kind
from twinlog.verify.standing import ProofStanding
from twinlog_source.config import SourceFlow
from twinlog_source.log.control import ControlState
from twinlog_source.log.gaps import Gap
from twinlog_source.partitions.events import Copied
from twinlog_source.partitions.latency import LatencyHistogram
from twinlog_source.partitions.latency_window import LatencyWindows
from twinlog_source.partitions.reports import TaskCounters
from twinlog_source.partitions.rows import PartitionRow
from twinlog_source.partitions.standing import QUOTA_SECONDS, FlowFacts, lag_of, standing_of
from twinlog_source.partitions.states import PartitionState
from twinlog_source.partitions.table import PartitionTable

VERIFIED_KINDS = tuple(str(kind) for kind in Kind)
MOST_SAMPLES = 100
"""Of one topic in one report: a histogram needs no more to show a distribution."""

MOST_STALLED = 100
"""Partitions of a flow that are shown with their reasons."""
_STANDS = frozenset((PartitionState.STALLED, PartitionState.FAULTED))

FigureOf = Callable[[LatencyHistogram], float]
RateOf = Callable[[PartitionRow], Callable[[float], float]]


class FlowInstruments:
    def __init__(
        self, meter: Meter, flow: SourceFlow, table: PartitionTable, control: ControlState, clock: Clock
    ) -> None:
        self._flow = flow_attributes(flow.flow.source, flow.flow.target)
        self._syncs_topic = "" if flow.offset_syncs is None else flow.offset_syncs.topic
        self._table = table
        self._control = control
        self._clock = clock
        self._records = instruments.counter(meter, REPLICATION_RECORDS)
        self._io = instruments.counter(meter, REPLICATION_IO)
        self._latency = instruments.histogram(meter, REPLICATION_LATENCY)
        self._record_age = instruments.histogram(meter, REPLICATION_RECORD_AGE)
        self._lost = instruments.counter(meter, REPLICATION_LOST)
        self._foreign = instruments.counter(meter, REPLICATION_FOREIGN)
        self._lanes = instruments.counter(meter, REPLICATION_LANE_RECORDS)
        self._syncs = instruments.counter(meter, OFFSET_SYNC_RECORDS)
        self._failures = instruments.counter(meter, REPLICATION_FAILURES)
        self._transactions = instruments.counter(meter, REPLICATION_TRANSACTIONS)
        self._epochs = instruments.histogram(meter, PIPELINE_BATCH_DURATION)
        self._latencies = LatencyWindows()
        self._record_ages = LatencyWindows()

    def copied(self, added: Iterable[Copied]) -> None:
        """Count what a report added."""
        latencies: dict[str, LatencyHistogram] = {}
        ages: dict[str, LatencyHistogram] = {}
        for each in added:
            topic = each.row.target_topic
            if each.records:
                attributes = self._to(topic)
                self._records.add(each.records, attributes)
                self._io.add(each.bytes, attributes)
                for lane, records in each.lanes.items():
                    self._lanes.add(records, {**attributes, "twinlog.lane": lane})
            if each.latency is not None:
                latencies.setdefault(topic, LatencyHistogram()).merge(each.latency)
            if each.record_age is not None:
                ages.setdefault(topic, LatencyHistogram()).merge(each.record_age)
        self._distribute(latencies, self._latency, self._latencies)
        self._distribute(ages, self._record_age, self._record_ages)

    def task_counted(self, before: TaskCounters, now: TaskCounters) -> None:
        """Count what a task's own counters grew by; they begin at 0 with every task."""
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
        """A gap was entered into the ledger."""
        row = self._table.rows.get(gap.partition)
        self._lost.add(
            gap.to_offset - gap.from_offset if gap.is_loss else 0,
            {**self._to("" if row is None else row.target_topic), ERROR_TYPE: gap.reason},
        )

    def foreign(self, row: PartitionRow, records: int) -> None:
        """Records of somebody else were found in a copy."""
        self._foreign.add(records, self._to(row.target_topic))

    def failed(self, reason: str, failures: int = 1) -> None:
        self._failures.add(failures, {**self._flow, ERROR_TYPE: reason})

    def epoch_ended(self, seconds: float) -> None:
        self._epochs.record(seconds, self._flow)

    # ---------------------------------------------------------- gauges: called from the scraper's thread

    def lags(self, facts: FlowFacts) -> list[Observation]:
        """Offsets of each partition that are not copied yet; those that are not known are absent."""
        return [
            Observation(lag, self._at(row)) for row in self._rows() if (lag := lag_of(row, facts)) is not None
        ]

    def verified_until(self) -> list[Observation]:
        return [Observation(proof.proven_until, self._at(row)) for row, proof in self._proofs()]

    def verified_ages(self) -> list[Observation]:
        now_ms = self._clock.now_ms()
        return [
            Observation((now_ms - proof.proven_at_ms) / 1000, self._at(row))
            for row, proof in self._proofs()
            if proof.proven_at_ms
        ]

    def verified_differences(self) -> list[Observation]:
        """Of each topic and kind; 0 where everything that was verified is equal."""
        counts: Counter[tuple[str, str]] = Counter()
        for row, proof in self._proofs():
            for kind in VERIFIED_KINDS:
                counts[row.target_topic, kind] += proof.differences.get(kind, 0)
        return [
            Observation(count, {**self._to(topic), "twinlog.kind": kind})
            for (topic, kind), count in counts.items()
        ]

    def _proofs(self) -> list[tuple[PartitionRow, ProofStanding]]:
        proofs = self._table.proofs
        return [(row, proofs[row.partition]) for row in self._rows() if row.partition in proofs]

    def lag_times(self, facts: FlowFacts) -> list[Observation]:
        """Age of the oldest record of each partition that is not copied; absent where it is not known."""
        return [
            Observation(seconds, self._at(row))
            for row in self._rows()
            if (seconds := standing_of(row, facts).lag_seconds) is not None
        ]

    def record_rates(self) -> list[Observation]:
        return self._rates(lambda row: row.records.shown)

    def byte_rates(self) -> list[Observation]:
        return self._rates(lambda row: row.bytes.shown)

    def latency_figures(self, take: FigureOf) -> list[Observation]:
        return self._figures(self._latencies, take)

    def record_age_figures(self, take: FigureOf) -> list[Observation]:
        return self._figures(self._record_ages, take)

    def throttles(self) -> list[Observation]:
        """Limits in force."""
        target_topics = {row.partition.topic: row.target_topic for row in self._rows()}
        return [
            Observation(
                limit.bytes_per_second,
                self._flow if topic is None else self._to(target_topics.get(topic, topic)),
            )
            for topic, limit in list(self._control.throttles.items())
        ]

    def states(self, facts: FlowFacts) -> list[Observation]:
        """Partitions by state."""
        counts: dict[str, int] = {}
        for row in self._rows():
            name = standing_of(row, facts).state
            counts[name] = counts.get(name, 0) + 1
        return [Observation(count, {**self._flow, "twinlog.state": name}) for name, count in counts.items()]

    def source_ends(self) -> list[Observation]:
        """Of each topic that producers write to, as known last."""
        ends: Counter[str] = Counter()
        for row in self._rows():
            if row.end is not None and not row.is_heartbeats:
                ends[row.target_topic] += row.end
        return [Observation(end, self._to(topic)) for topic, end in ends.items()]

    def behind(self, facts: FlowFacts) -> list[Observation]:
        """Partitions with something left to copy, by state and reason."""
        counts: Counter[tuple[str, str]] = Counter()
        for row in self._rows():
            if row.last_known_lag and not row.is_heartbeats:
                standing = standing_of(row, facts)
                counts[standing.state, standing.reason] += 1
        return [
            Observation(count, {**self._flow, "twinlog.state": state, ERROR_TYPE: reason})
            for (state, reason), count in counts.items()
        ]

    def stalled(self, facts: FlowFacts) -> list[Observation]:
        """The partitions that stand longest, with the reason."""
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
        """Tasks that a quota holds up, by cluster."""
        ends = (
            ("source", self._table.source_throttled_at),
            ("target", self._table.target_throttled_at),
        )
        return [
            Observation(
                sum(1 for moment in list(at.values()) if facts.now - moment <= QUOTA_SECONDS),
                {**self._flow, END: end},
            )
            for end, at in ends
        ]

    # -------------------------------------------------------------------------------------------------

    def _rows(self) -> list[PartitionRow]:
        return list(self._table.rows.values())

    def _rates(self, rate: RateOf) -> list[Observation]:
        now = self._clock.monotonic()
        by_topic: dict[str, float] = {}
        for row in self._rows():
            by_topic[row.target_topic] = by_topic.get(row.target_topic, 0.0) + rate(row)(now)
        return [Observation(per_second, self._to(topic)) for topic, per_second in by_topic.items()]

    def _figures(self, windows: LatencyWindows, take: FigureOf) -> list[Observation]:
        """One figure of what the last half minute brought, by topic."""
        recent = windows.recent(self._clock.monotonic())
        return [Observation(take(spread), self._to(topic)) for topic, spread in recent.items()]

    def _distribute(
        self, by_topic: dict[str, LatencyHistogram], histogram: Histogram, windows: LatencyWindows
    ) -> None:
        now = self._clock.monotonic()
        for topic, spread in by_topic.items():
            windows.add(topic, spread, now)
            attributes = self._to(topic)
            for seconds in spread.samples(MOST_SAMPLES):
                histogram.record(seconds, attributes)

    def _to(self, topic: str) -> dict[str, str]:
        return {**self._flow, DESTINATION: topic}

    def _at(self, row: PartitionRow) -> dict[str, str]:
        return {**self._to(row.target_topic), PARTITION: str(row.partition.partition)}


class ObservedFlow(Protocol):
    """A flow as the scraper sees it."""

    instruments: FlowInstruments

    def facts(self) -> FlowFacts: ...


def observe_flows(meter: Meter, flows: Sequence[ObservedFlow]) -> None:
    """Publish the gauges of all flows: one callback each for the process."""

    def publish(spec: MetricSpec, observe: Callable[[FlowInstruments], Iterable[Observation]]) -> None:
        instruments.gauge(meter, spec, lambda: [each for flow in flows for each in observe(flow.instruments)])

    def publish_standing(
        spec: MetricSpec, observe: Callable[[FlowInstruments, FlowFacts], Iterable[Observation]]
    ) -> None:
        instruments.gauge(
            meter, spec, lambda: [each for flow in flows for each in observe(flow.instruments, flow.facts())]
        )

    publish(REPLICATION_RECORDS_RATE, FlowInstruments.record_rates)
    publish(REPLICATION_IO_RATE, FlowInstruments.byte_rates)
    publish_standing(REPLICATION_LAG, FlowInstruments.lags)
    publish_standing(REPLICATION_LAG_TIME, FlowInstruments.lag_times)
    publish(VERIFIED_UNTIL, FlowInstruments.verified_until)
    publish(VERIFIED_AGE, FlowInstruments.verified_ages)
    publish(VERIFIED_DIFFERENCES, FlowInstruments.verified_differences)
    publish(REPLICATION_THROTTLE, FlowInstruments.throttles)
    publish_standing(REPLICATION_PARTITIONS, FlowInstruments.states)
    publish(REPLICATION_SOURCE_END, FlowInstruments.source_ends)
    publish_standing(REPLICATION_BEHIND, FlowInstruments.behind)
    publish_standing(REPLICATION_STALLED, FlowInstruments.stalled)
    publish_standing(REPLICATION_THROTTLED, FlowInstruments.throttled)
    for take, latency, age in (
        (_shortest, REPLICATION_LATENCY_MIN, REPLICATION_RECORD_AGE_MIN),
        (_longest, REPLICATION_LATENCY_MAX, REPLICATION_RECORD_AGE_MAX),
        (_mean, REPLICATION_LATENCY_AVG, REPLICATION_RECORD_AGE_AVG),
    ):
        publish(latency, partial(FlowInstruments.latency_figures, take=take))
        publish(age, partial(FlowInstruments.record_age_figures, take=take))


def _shortest(spread: LatencyHistogram) -> float:
    return spread.min_seconds


def _longest(spread: LatencyHistogram) -> float:
    return spread.max_seconds


def _mean(spread: LatencyHistogram) -> float:
    return spread.sum_seconds / spread.records
