"""What a metric reader has seen."""

from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint
from opentelemetry.util.types import AttributeValue


def counted(
    reader: InMemoryMetricReader, metric_name: str, *attributes: str
) -> dict[tuple[AttributeValue | None, ...], float]:
    """Value of each series of a metric by the values of these attributes."""
    data = reader.get_metrics_data()
    assert data is not None
    return {
        tuple((point.attributes or {}).get(attribute) for attribute in attributes): point.value
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
        if isinstance(point, NumberDataPoint) and metric.name == metric_name
    }
