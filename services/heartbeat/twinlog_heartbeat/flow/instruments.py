"""The metrics of the service."""

from collections.abc import Callable, Iterable

from opentelemetry.metrics import Meter, Observation

from twinlog.model import Flow
from twinlog.telemetry import instruments
from twinlog.telemetry.metrics.heartbeat import (
    HEARTBEAT_AGE,
    HEARTBEAT_CLOCK_SKEW,
    HEARTBEAT_DELAY,
    HEARTBEAT_PATH,
    HEARTBEAT_RECORDS,
)
from twinlog.telemetry.metrics.spec import flow_attributes
from twinlog_heartbeat.model.delays import FlowDelay, PathState


class HeartbeatInstruments:
    """Counts heartbeats (as a `BeatMeter`), and publishes the state of every flow."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._records = instruments.counter(meter, HEARTBEAT_RECORDS)
        self._delay = instruments.histogram(meter, HEARTBEAT_DELAY)

    def emitted(self, flow: Flow) -> None:
        self._records.add(1, {**_attributes(flow), "twinlog.outcome": "emitted"})

    def observed(self, flow: Flow, *, delay_seconds: float) -> None:
        self._records.add(1, {**_attributes(flow), "twinlog.outcome": "observed"})
        self._delay.record(delay_seconds, _attributes(flow))

    def show(self, delays: Callable[[], Iterable[FlowDelay]]) -> None:
        """Call it once; `delays` is called at each scrape."""

        def ages() -> Iterable[Observation]:
            return [
                Observation(delay.age_ms / 1000, _attributes(delay.flow))
                for delay in delays()
                if delay.age_ms is not None
            ]

        def paths() -> Iterable[Observation]:
            return [
                Observation(
                    int(delay.state is state), {**_attributes(delay.flow), "twinlog.state": state.value}
                )
                for delay in delays()
                for state in PathState
            ]

        def skews() -> Iterable[Observation]:
            return [
                Observation(delay.clock_skew_ms / 1000, _attributes(delay.flow))
                for delay in delays()
                if delay.clock_skew_ms is not None
            ]

        instruments.gauge(self._meter, HEARTBEAT_AGE, ages)
        instruments.gauge(self._meter, HEARTBEAT_PATH, paths)
        instruments.gauge(self._meter, HEARTBEAT_CLOCK_SKEW, skews)


def _attributes(flow: Flow) -> dict[str, str]:
    return flow_attributes(flow.source, flow.target)
