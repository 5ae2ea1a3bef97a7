"""What the source service counts."""

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import cast

import pytest
from opentelemetry.metrics import Counter, Histogram, NoOpMeter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from twinlog.model import TopicPartition
from twinlog.telemetry.metrics.replication import OFFSET_SYNC_RECORDS, REPLICATION_RECORDS
from twinlog.testing.virtual_time import FakeClock
from twinlog_source.config import source_flows
from twinlog_source.driver.instruments import MOST_SAMPLES, FlowInstruments, ObservedFlow, observe_flows
from twinlog_source.log.control import ControlState
from twinlog_source.log.facts import ThrottleFact
from twinlog_source.log.gaps import Gap, GapIdentity
from twinlog_source.partitions.events import Copied, ForeignKnown, TopicsChosen
from twinlog_source.partitions.latency import LatencyHistogram
from twinlog_source.partitions.orders import ForeignWrite, TaskCounters
from twinlog_source.partitions.rows import PartitionRow
from twinlog_source.partitions.standing import FlowFacts
from twinlog_source.partitions.table import PartitionTable
from unit.config.config_files import load_more
from unit.metric_points import counted

PARTITION = TopicPartition("t", 0)


def test_offset_syncs_are_counted_from_the_beginning() -> None:
    """Prometheus sees no increase in the first value of a series: TwinlogOffsetSyncsStale would fire."""
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    (flow,) = source_flows(load_more("A->B.enabled = true"))
    FlowInstruments(provider.get_meter("test"), flow, PartitionTable(), ControlState(), FakeClock())

    assert counted(reader, OFFSET_SYNC_RECORDS.name, "messaging.destination.name") == {
        ("mm2-offset-syncs.B.internal",): 0
    }
    provider.shutdown()


class CountingMeter(NoOpMeter):
    """Counts the calls of its counters and histograms."""

    def __init__(self) -> None:
        super().__init__("test")
        self.calls = 0

    def create_counter(self, name: str, unit: str = "", description: str = "") -> Counter:
        return cast("Counter", _Counting(self))

    def create_histogram(self, name: str, *_args: object, **_kwargs: object) -> Histogram:
        return cast("Histogram", _Counting(self))


@dataclass
class _Counting:
    meter: CountingMeter

    def add(self, *_args: object) -> None:
        self.meter.calls += 1

    record = add


def report(topics: int, partitions: int, records: int) -> list[Copied]:
    spread = LatencyHistogram()
    for seconds in (0.001, 0.01, 0.1, 1.0):
        spread.add(seconds, max(1, records // 4))
    return [
        Copied(
            row=PartitionRow(partition=TopicPartition(f"t{topic}", number), target_topic=f"A.t{topic}"),
            records=records,
            bytes=records * 100,
            lanes={"RAW": records},
            latency=spread,
            record_age=spread,
        )
        for topic in range(topics)
        for number in range(partitions)
    ]


@pytest.mark.parametrize(("partitions", "records", "reports"), [(1, 10, 1), (8, 10, 8), (1, 1_000_000, 60)])
def test_the_calls_of_instruments_do_not_grow_with_records_partitions_or_reports(
    partitions: int, records: int, reports: int
) -> None:
    meter = CountingMeter()
    (flow,) = source_flows(load_more("A->B.enabled = true"))
    flow_instruments = FlowInstruments(meter, flow, PartitionTable(), ControlState(), FakeClock())
    before = meter.calls
    for _ in range(reports):
        flow_instruments.copied(report(500, partitions, records))
    assert meter.calls == before, "none on the event loop"
    flow_instruments.publish()
    assert meter.calls - before <= 500 * (3 + 2 * (MOST_SAMPLES + 4))
    flow_instruments.publish()
    assert meter.calls - before <= 500 * (3 + 2 * (MOST_SAMPLES + 4)), "nothing is handed over twice"


def test_a_scrape_has_what_was_copied_before_it() -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    (flow,) = source_flows(load_more("A->B.enabled = true"))
    meter = provider.get_meter("test")
    flow_instruments = FlowInstruments(meter, flow, PartitionTable(), ControlState(), FakeClock())
    asked: list[None] = []
    observed = SimpleNamespace(
        gauges=flow_instruments.gauges,
        facts=lambda: asked.append(None),
        workers_wanted=lambda: 3,
        slot_lags=lambda: [20, 0],
    )
    observe_flows(meter, [cast("ObservedFlow", observed)])
    assert counted(reader, "twinlog.desired.workers", "twinlog.source.cluster") == {("A",): 3}
    assert len(asked) == 1, "all gauges show the same moment, which is computed once"
    assert counted(reader, "twinlog.slot.lag", "twinlog.slot") == {("0",): 20, ("1",): 0}
    for expected in (20, 40):
        flow_instruments.copied(report(1, 2, 10))
        assert counted(reader, REPLICATION_RECORDS.name, "messaging.destination.name") == {
            ("A.t0",): expected
        }
    provider.shutdown()


def test_a_scrape_tells_what_was_copied_how_and_what_a_task_met() -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    (flow,) = source_flows(load_more("A->B.enabled = true"))
    table = PartitionTable()
    control = ControlState(throttles={"t0": ThrottleFact(topic="t0", bytes_per_second=5)})
    metrics = FlowInstruments(provider.get_meter("test"), flow, table, control, FakeClock())
    table.apply(TopicsChosen(targets={TopicPartition("t0", 0): "A.t0"}), 0.0)
    metrics.copied(report(1, 2, 40))
    metrics.publish()
    first = TaskCounters(transactions_committed=3, transactions_aborted=1, failures={"RECORD_TOO_LARGE": 2})
    of_next_task = TaskCounters(failures={"RECORD_TOO_LARGE": 1})
    for before, now in ((TaskCounters(), first), (first, first), (first, of_next_task)):
        metrics.task_counted(before, now)

    assert counted(reader, "twinlog.replication.io", "messaging.destination.name") == {("A.t0",): 8000}
    assert counted(reader, "twinlog.replication.lane.records", "twinlog.lane") == {("RAW",): 80}
    assert counted(reader, "twinlog.replication.failures", "error.type") == {("RECORD_TOO_LARGE",): 3}
    assert counted(reader, "twinlog.replication.transactions", "twinlog.outcome") == {
        ("committed",): 3,
        ("aborted",): 1,
    }
    assert metrics.gauges.throttles() == [(5, {"messaging.destination.name": "A.t0"})]
    provider.shutdown()


def test_a_topic_that_is_copied_no_more_has_no_series_and_others_keep_theirs() -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    (flow,) = source_flows(load_more("A->B.enabled = true"))
    table = PartitionTable()
    metrics = FlowInstruments(provider.get_meter("test"), flow, table, ControlState(), FakeClock())
    copied = report(topics=3, partitions=2, records=10)

    def topics() -> set[str]:
        metrics.publish()
        return {
            str(name) for (name,) in counted(reader, REPLICATION_RECORDS.name, "messaging.destination.name")
        }

    table.apply(TopicsChosen(targets={each.row.partition: each.row.target_topic for each in copied}), 0.0)
    metrics.copied(copied)
    assert topics() == {"A.t0", "A.t1", "A.t2"}
    left = {each.row.partition: each.row.target_topic for each in copied if each.row.target_topic != "A.t1"}
    table.apply(TopicsChosen(targets=left), 1.0)
    assert topics() == {"A.t0", "A.t2"}
    metrics.copied(copied)  # The last report of a task comes after the topic has left.
    assert topics() == {"A.t0", "A.t1", "A.t2"}
    assert topics() == {"A.t0", "A.t2"}
    provider.shutdown()


def test_a_loss_is_shown_until_somebody_acknowledges_it() -> None:
    (flow,) = source_flows(load_more("A->B.enabled = true"))
    table, gaps = PartitionTable(), dict[GapIdentity, Gap]()
    gauges = FlowInstruments(NoOpMeter("test"), flow, table, ControlState(), FakeClock(), gaps).gauges
    lost = Gap(partition=PARTITION, from_offset=3, to_offset=8, reason="RETENTION", found_at_ms=1)
    skipped = replace(lost, from_offset=10, to_offset=20, reason="SKIPPED_BY_OPERATOR")
    gaps.update({lost.identity: lost, skipped.identity: skipped})
    table.apply(TopicsChosen(targets={PARTITION: "A.t"}), 0.0)
    owner, standby = (cast("FlowFacts", SimpleNamespace(is_owned=owned)) for owned in (True, False))

    shown = {"messaging.destination.name": "A.t", "error.type": "RETENTION"}
    assert gauges.open_losses(owner) == [(5, shown)]
    assert gauges.open_losses(standby) == []
    gaps[lost.identity] = replace(lost, acknowledged_by="somebody")
    assert gauges.open_losses(owner) == []


def test_foreign_records_are_shown_until_somebody_acknowledges_them() -> None:
    (flow,) = source_flows(load_more("A->B.enabled = true"))
    table = PartitionTable()
    gauges = FlowInstruments(NoOpMeter("test"), flow, table, ControlState(), FakeClock()).gauges
    partitions = [TopicPartition("t", number) for number in range(2)]
    table.apply(TopicsChosen(targets=dict.fromkeys(partitions, "A.t")), 0.0)
    owner, standby = (cast("FlowFacts", SimpleNamespace(is_owned=owned)) for owned in (True, False))
    write = ForeignWrite(7, 9, records=2, producer_id=5, producer_epoch=0, written_at_ms=1)

    assert gauges.open_foreign(owner) == []
    for partition in partitions:
        table.apply(ForeignKnown(partition=partition, records=2, writes=(write,)), 1.0)
    assert gauges.open_foreign(owner) == [(4, {"messaging.destination.name": "A.t"})]
    assert gauges.open_foreign(standby) == []
    for partition in partitions:
        table.apply(ForeignKnown(partition=partition, records=0, writes=(write,)), 2.0)
    assert gauges.open_foreign(owner) == []
