"""The checkpoint service's metrics of one flow."""

from opentelemetry.metrics import Meter

from twinlog.model import Flow
from twinlog.telemetry import metrics
from twinlog_checkpoint.translation.translation import Verdict


class CheckpointInstruments:
    def __init__(self, meter: Meter, flow: Flow) -> None:
        self._flow = metrics.flow_attributes(flow.source, flow.target)
        self._latency = metrics.histogram(meter, metrics.CHECKPOINT_LATENCY)
        self._read = metrics.counter(meter, metrics.TRANSLATION_IO)
        self._offsets = metrics.counter(meter, metrics.CHECKPOINT_OFFSETS)

    def considered(self, group: str, verdict: Verdict) -> None:
        """A committed offset was judged."""
        outcome = verdict.value.lower()
        self._offsets.add(1, {**self._flow, metrics.GROUP: group, "twinlog.outcome": outcome})

    def on_read_bytes(self, size_bytes: int) -> None:
        """Both logs were read to align them."""
        self._read.add(size_bytes, self._flow)

    def emitted(self, latency_seconds: float) -> None:
        """The target has a checkpoint; the latency counts from the reading of the group's offsets."""
        self._latency.record(latency_seconds, self._flow)
