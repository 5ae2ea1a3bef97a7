"""The metrics of one flow, recorded where the driver learns of things."""

from collections.abc import Iterable, Sequence

from opentelemetry.metrics import Meter, Observation

from twinlog.api.source.v1 import source_service_pb2 as source_pb
from twinlog.model import Flow
from twinlog.telemetry import metrics
from twinlog_source.partition_table import PartitionTable, Progress


class FlowInstruments:
    def __init__(self, meter: Meter, flow: Flow, table: PartitionTable) -> None:
        self._flow = metrics.flow_attributes(flow.source, flow.target)
        self._table = table
        self._records = metrics.counter(meter, metrics.REPLICATION_RECORDS)
        self._io = metrics.counter(meter, metrics.REPLICATION_IO)
        self._latency = metrics.histogram(meter, metrics.REPLICATION_LATENCY)
        self._failures = metrics.counter(meter, metrics.REPLICATION_FAILURES)
        self._epochs = metrics.histogram(meter, metrics.PIPELINE_BATCH_DURATION)

    def progress(self, added: Iterable[Progress]) -> None:
        """Count what a report added."""
        for each in added:
            if each.records:
                attributes = {**self._flow, metrics.DESTINATION: each.row.target_topic}
                self._records.add(each.records, attributes)
                self._io.add(each.bytes, attributes)
                if each.latency_seconds is not None:
                    self._latency.record(each.latency_seconds, attributes)

    def failed(self, reason: str) -> None:
        self._failures.add(1, {**self._flow, metrics.ERROR_TYPE: reason})

    def epoch_ended(self, seconds: float) -> None:
        self._epochs.record(seconds, self._flow)

    def lags(self) -> list[Observation]:
        """Records of each partition that are not copied yet. Called from the scraper's thread."""
        return [
            Observation(
                row.lag_records,
                {
                    **self._flow,
                    metrics.DESTINATION: row.target_topic,
                    metrics.PARTITION: str(partition.partition),
                },
            )
            for partition, row in list(self._table.rows.items())
        ]

    def states(self) -> list[Observation]:
        """Partitions by state. Called from the scraper's thread."""
        counts: dict[str, int] = {}
        for row in list(self._table.rows.values()):
            name = state_name(row.state)
            counts[name] = counts.get(name, 0) + 1
        return [Observation(count, {**self._flow, "twinlog.state": name}) for name, count in counts.items()]


def observe_flows(meter: Meter, flows: Sequence[FlowInstruments]) -> None:
    """Publish the gauges of all flows: one callback each for the process."""
    metrics.gauge(meter, metrics.REPLICATION_LAG, lambda: [o for flow in flows for o in flow.lags()])
    metrics.gauge(meter, metrics.REPLICATION_PARTITIONS, lambda: [o for flow in flows for o in flow.states()])


def state_name(state: source_pb.PartitionState.ValueType) -> str:
    """`RUNNING`, as operators know it."""
    return source_pb.PartitionState.Name(state).removeprefix("PARTITION_STATE_")
