"""What the checkpoint service counts, and that it stays bounded."""

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint

from twinlog.model import Flow
from twinlog.telemetry.metrics.checkpoint import CHECKPOINT_OFFSETS
from twinlog.telemetry.metrics.spec import flow_attributes
from twinlog_checkpoint.groups.instruments import CheckpointInstruments
from twinlog_checkpoint.translation.translation import Verdict


def test_judged_offsets_are_counted_by_verdict_and_not_by_group() -> None:
    """A series of a counter is there for ever, and groups come and go."""
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    instruments = CheckpointInstruments(provider.get_meter("test"), Flow("A", "B"))
    for verdict in (Verdict.EXACT, Verdict.EXACT, Verdict.FLOOR):
        instruments.considered(verdict)
    data = reader.get_metrics_data()
    assert data is not None
    points = [
        (dict(point.attributes or {}), point.value)
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
        if isinstance(point, NumberDataPoint) and metric.name == CHECKPOINT_OFFSETS.name
    ]
    flow = flow_attributes("A", "B")
    assert sorted(points, key=lambda each: -each[1]) == [
        ({**flow, "twinlog.outcome": "exact"}, 2),
        ({**flow, "twinlog.outcome": "floor"}, 1),
    ]
