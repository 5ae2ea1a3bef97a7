"""Series that nothing sets any more are not kept."""

from collections.abc import Iterable
from itertools import count

from opentelemetry.metrics import Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from twinlog.telemetry import instruments
from twinlog.telemetry.metrics.services import GROUP_LAG
from unit.metric_points import counted


def test_a_gauge_of_names_that_come_and_go_keeps_only_some_that_are_gone() -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    meter, scrapes = provider.get_meter("test"), count()

    def observe() -> Iterable[Observation]:
        scrape = next(scrapes)
        return [Observation(1, {"group": f"{scrape}-{number}"}) for number in range(100)]

    instruments.gauge(meter, GROUP_LAG, observe)
    for _ in range(100):
        assert len(counted(reader, GROUP_LAG.name, "group")) == 100
    (matches,) = (each for storage in instruments._storages(meter) for each in storage.values())
    assert len(matches[0]._attributes_aggregation) < 2_000
    provider.shutdown()
