"""Records a metric with the instrument of its kind."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

from opentelemetry.metrics import (
    CallbackOptions,
    Counter,
    Histogram,
    Meter,
    ObservableGauge,
    Observation,
)

from twinlog.telemetry.metrics.spec import Kind, MetricSpec

_IDLE_SERIES = 1_000

Row = TypeVar("Row")
Figures = Iterable[tuple[float, Mapping[str, str]]]
"""Values with the attributes that they have besides those of their row."""


def counter(meter: Meter, spec: MetricSpec) -> Counter:
    _require(spec, Kind.COUNTER)
    return meter.create_counter(spec.name, spec.unit, spec.description)


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
        observed = list(observe())
        _forget_idle(meter, made, len(observed))
        return observed

    made = meter.create_observable_gauge(spec.name, [callback], spec.unit, spec.description)


def observe_each(
    meter: Meter,
    rows: Callable[[], Iterable[tuple[Mapping[str, str], Row]]],
    figures: Mapping[MetricSpec, Callable[[Row], Figures]],
) -> None:
    """Register a gauge for each of these, at least two; a row comes with its attributes. `rows` is
    called once a scrape, as those of `gauge`."""

    seen: list[tuple[Mapping[str, str], Row]] = []
    first, *_, last = specs = [*figures]

    def observe(spec: MetricSpec) -> list[Observation]:
        # The SDK asks in this order, for one reader after the other.
        if spec is first:
            seen[:] = rows()
        found = [
            Observation(value, {**common, **own}) for common, row in seen for value, own in figures[spec](row)
        ]
        if spec is last:
            seen.clear()
        return found

    for spec in specs:
        gauge(meter, spec, partial(observe, spec))


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


def forget_series(meter: Meter, is_gone: Callable[[Mapping[str, Any]], bool]) -> None:
    """Drop the series with such attributes, of every instrument and reader. May be called in any thread.

    The SDK has no call for it: it keeps each series, and most of them go on being exported, for as long as
    the process lives. A meter without an SDK has none.
    """
    for storage in _storages(meter):
        for matches in list(storage.values()):
            for match in matches:
                with match._lock:
                    series = match._attributes_aggregation
                    for key in [key for key, each in series.items() if is_gone(each._attributes or {})]:
                        del series[key]


def _forget_idle(meter: Meter, gauge: ObservableGauge, observed: int) -> None:
    """Drop the series of a gauge when most of them are of earlier scrapes: each one sets its values anew."""
    for storage in _storages(meter):
        for match in storage.get(gauge, ()):
            with match._lock:
                if len(match._attributes_aggregation) > 2 * observed + _IDLE_SERIES:
                    match._attributes_aggregation.clear()


def _storages(meter: Meter) -> list[dict[Any, list[Any]]]:
    """For each reader, what the SDK keeps of each instrument."""
    readers = getattr(getattr(meter, "_measurement_consumer", None), "_reader_storages", {})
    return [storage._instrument_view_instrument_matches for storage in readers.values()]


def _require(spec: MetricSpec, kind: Kind) -> None:
    if spec.kind is not kind:
        raise ValueError(f"{spec.name} is a {spec.kind}, not a {kind}")
