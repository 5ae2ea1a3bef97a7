"""Every metric of Twinlog: name, kind, unit, description, attributes. docs/metrics.md is generated from this
table.

Names follow OpenTelemetry: its own where it has one, `twinlog.` otherwise; no unit and no `total` in a name.
Counters and histograms are recorded at the event; gauges are observed by a callback at each scrape.
"""

from twinlog.telemetry.metrics import replication, service, services
from twinlog.telemetry.metrics.spec import MetricSpec

METRICS: tuple[MetricSpec, ...] = tuple(
    spec
    for module in (service, replication, services)
    for spec in vars(module).values()
    if isinstance(spec, MetricSpec)
)
