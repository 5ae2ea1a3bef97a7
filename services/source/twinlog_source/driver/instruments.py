"""The metrics of one flow.

A call of an instrument takes some ten microseconds, and each task reports every second, so what is copied is
added up by topic first and reaches the instruments once for each scrape: the calls do not grow with records,
partitions or reports, and delay no event loop.
"""

from collections import Counter
from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from threading import Lock

from opentelemetry.metrics import Meter

from twinlog.clock import Clock
from twinlog.telemetry import instruments
from twinlog.telemetry.metrics import replication as metrics
from twinlog.telemetry.metrics.spec import (
    DESTINATION,
    ERROR_TYPE,
    flow_attributes,
)
from twinlog_source.config import SourceFlow
from twinlog_source.driver.gauges import FlowGauges
from twinlog_source.log.control import ControlState
from twinlog_source.log.gaps import Gap
from twinlog_source.partitions.events import Copied
from twinlog_source.partitions.latency import LatencyHistogram, LatencyWindows
from twinlog_source.partitions.reports import TaskCounters
from twinlog_source.partitions.rows import PartitionRow
from twinlog_source.partitions.table import PartitionTable

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
        self, meter: Meter, flow: SourceFlow, table: PartitionTable, control: ControlState, clock: Clock
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
