"""What the checkpoint service counts where it happens."""

from opentelemetry.metrics import Meter

from twinlog.model import Flow
from twinlog.telemetry import instruments
from twinlog.telemetry.metrics import services as metrics
from twinlog.telemetry.metrics.spec import ERROR_TYPE, flow_attributes
from twinlog_checkpoint.translation.translation import Verdict


class CheckpointInstruments:
    def __init__(self, meter: Meter, flow: Flow) -> None:
        self._flow = flow_attributes(flow.source, flow.target)
        self._latency = instruments.histogram(meter, metrics.CHECKPOINT_LATENCY)
        self._read = instruments.counter(meter, metrics.TRANSLATION_IO)
        self._offsets = instruments.counter(meter, metrics.CHECKPOINT_OFFSETS)
        self._failures = instruments.counter(meter, metrics.CHECKPOINT_FAILURES)

    def failed(self, reason: str) -> None:
        """Count a pass, or a commit of one group's offsets, that failed."""
        self._failures.add(1, {**self._flow, ERROR_TYPE: reason})

    def considered(self, verdict: Verdict) -> None:
        """Count the verdict of a committed offset. Not per group, because series of deleted groups would
        remain."""
        self._offsets.add(1, {**self._flow, "twinlog.outcome": verdict.value.lower()})

    def on_read_bytes(self, size_bytes: int) -> None:
        """Count bytes read from both logs to align them."""
        self._read.add(size_bytes, self._flow)

    def emitted(self, latency_seconds: float) -> None:
        """Count a checkpoint that the target acknowledged. The latency begins when the group's offsets were
        read."""
        self._latency.record(latency_seconds, self._flow)
