"""What the source service counts."""

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from twinlog.telemetry.metrics.replication import OFFSET_SYNC_RECORDS
from twinlog.testing.fakes.clock import FakeClock
from twinlog_source.config import source_flows
from twinlog_source.driver.instruments import FlowInstruments
from twinlog_source.log.control import ControlState
from twinlog_source.partitions.table import PartitionTable
from unit.config.config_files import load_more
from unit.metric_points import counted


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
