"""The metrics of one flow, recorded where the driver learns of things."""

from collections.abc import Iterable, Sequence

from opentelemetry.metrics import Meter, Observation

from twinlog.api.source.v1 import source_service_pb2 as source_pb
from twinlog.clock import Clock
from twinlog.model import Flow
from twinlog.telemetry import metrics
from twinlog_source.control import ControlState
from twinlog_source.gaps import Gap
from twinlog_source.partition_table import PartitionTable, Progress


class FlowInstruments:
    def __init__(
        self, meter: Meter, flow: Flow, table: PartitionTable, control: ControlState, clock: Clock
    ) -> None:
        self._flow = metrics.flow_attributes(flow.source, flow.target)
        self._table = table
        self._control = control
        self._clock = clock
        self._records = metrics.counter(meter, metrics.REPLICATION_RECORDS)
        self._io = metrics.counter(meter, metrics.REPLICATION_IO)
        self._latency = metrics.histogram(meter, metrics.REPLICATION_LATENCY)
        self._lost = metrics.counter(meter, metrics.REPLICATION_LOST)
        self._lanes = metrics.counter(meter, metrics.REPLICATION_LANE_RECORDS)
        self._syncs = metrics.counter(meter, metrics.OFFSET_SYNC_RECORDS)
        self._failures = metrics.counter(meter, metrics.REPLICATION_FAILURES)
        self._epochs = metrics.histogram(meter, metrics.PIPELINE_BATCH_DURATION)

    def progress(self, added: Iterable[Progress]) -> None:
        """Count what a report added."""
        for each in added:
            if each.records:
                attributes = {**self._flow, metrics.DESTINATION: each.row.target_topic}
                self._records.add(each.records, attributes)
                self._io.add(each.bytes, attributes)
                for lane, records in each.lanes.items():
                    self._lanes.add(records, {**attributes, "twinlog.lane": lane})
                if each.latency_seconds is not None:
                    self._latency.record(each.latency_seconds, attributes)

    def syncs_written(self, count: int, topic: str) -> None:
        self._syncs.add(count, {**self._flow, metrics.DESTINATION: topic})

    def gap(self, gap: Gap) -> None:
        """A gap was entered into the ledger."""
        row = self._table.rows.get(gap.partition)
        self._lost.add(
            gap.to_offset - gap.from_offset if gap.is_loss else 0,
            {
                **self._flow,
                metrics.DESTINATION: "" if row is None else row.target_topic,
                metrics.ERROR_TYPE: gap.reason,
            },
        )

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

    def lag_times(self) -> list[Observation]:
        """Seconds that each partition has been behind. Called from the scraper's thread."""
        now = self._clock.monotonic()
        return [
            Observation(
                0.0 if row.behind_since is None else now - row.behind_since,
                {
                    **self._flow,
                    metrics.DESTINATION: row.target_topic,
                    metrics.PARTITION: str(partition.partition),
                },
            )
            for partition, row in list(self._table.rows.items())
        ]

    def throttles(self) -> list[Observation]:
        """Limits in force. Called from the scraper's thread."""
        return [
            Observation(limit, self._flow if topic is None else {**self._flow, metrics.DESTINATION: topic})
            for topic, limit in list(self._control.throttles.items())
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
    metrics.gauge(
        meter, metrics.REPLICATION_LAG_TIME, lambda: [o for flow in flows for o in flow.lag_times()]
    )
    metrics.gauge(
        meter, metrics.REPLICATION_THROTTLE, lambda: [o for flow in flows for o in flow.throttles()]
    )
    metrics.gauge(meter, metrics.REPLICATION_PARTITIONS, lambda: [o for flow in flows for o in flow.states()])


def state_name(state: source_pb.PartitionState.ValueType) -> str:
    """`RUNNING`, as operators know it."""
    return source_pb.PartitionState.Name(state).removeprefix("PARTITION_STATE_")
