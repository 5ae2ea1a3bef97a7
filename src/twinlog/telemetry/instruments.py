"""Records a metric with the instrument of its kind."""

from collections.abc import Callable, Iterable

from opentelemetry.metrics import CallbackOptions, Counter, Histogram, Meter, Observation, UpDownCounter

from twinlog.telemetry.metrics.spec import Kind, MetricSpec


def counter(meter: Meter, spec: MetricSpec) -> Counter:
    _require(spec, Kind.COUNTER)
    return meter.create_counter(spec.name, spec.unit, spec.description)


def up_down_counter(meter: Meter, spec: MetricSpec) -> UpDownCounter:
    _require(spec, Kind.UP_DOWN_COUNTER)
    return meter.create_up_down_counter(spec.name, spec.unit, spec.description)


def histogram(meter: Meter, spec: MetricSpec) -> Histogram:
    _require(spec, Kind.HISTOGRAM)
    return meter.create_histogram(
        spec.name, spec.unit, spec.description, explicit_bucket_boundaries_advisory=spec.buckets
    )


def gauge(meter: Meter, spec: MetricSpec, observe: Callable[[], Iterable[Observation]]) -> None:
    """Register `observe`, which is called at each scrape **in another thread**: it only reads, and never
    waits."""
    _require(spec, Kind.GAUGE)

    def callback(_options: CallbackOptions) -> Iterable[Observation]:
        return observe()

    meter.create_observable_gauge(spec.name, [callback], spec.unit, spec.description)


def observed_sum(meter: Meter, spec: MetricSpec, observe: Callable[[], Iterable[Observation]]) -> None:
    """Like `gauge`, for a counter or an up-down counter whose value is kept elsewhere."""
    create = (
        meter.create_observable_counter
        if spec.kind is Kind.COUNTER
        else meter.create_observable_up_down_counter
    )
    if spec.kind is not Kind.COUNTER:
        _require(spec, Kind.UP_DOWN_COUNTER)

    def callback(_options: CallbackOptions) -> Iterable[Observation]:
        return observe()

    create(spec.name, [callback], spec.unit, spec.description)


def _require(spec: MetricSpec, kind: Kind) -> None:
    if spec.kind is not kind:
        raise ValueError(f"{spec.name} is a {spec.kind}, not a {kind}")
