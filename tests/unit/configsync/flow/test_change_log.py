"""Changes of the target are counted from the beginning."""

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from twinlog.model import Flow
from twinlog.telemetry import instruments
from twinlog.telemetry.metrics.services import CONFIGSYNC_CHANGES
from twinlog.testing.virtual_time import FakeClock
from twinlog_configsync.flow.change_log import ChangeLog
from unit.metric_points import counted


def test_every_series_exists_before_the_first_change() -> None:
    """Prometheus sees no increase in the first value of a series: TwinlogDriftFightsBack would miss it."""
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    changes = instruments.counter(provider.get_meter("test"), CONFIGSYNC_CHANGES)
    ChangeLog(flow=Flow("A", "B"), changes=changes, clock=FakeClock())

    found = counted(reader, CONFIGSYNC_CHANGES.name, "twinlog.resource.type", "twinlog.outcome")
    assert found == {
        (resource_type, outcome): 0
        for resource_type in ("topic", "partitions", "config", "acl", "quota")
        for outcome in ("applied", "drift_reverted", "refused")
    }
    provider.shutdown()
