"""What the checkpoint service counts, and that it stays bounded."""

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from twinlog.model import Flow
from twinlog.telemetry.metrics.checkpoint import CHECKPOINT_OFFSETS
from twinlog_checkpoint.groups.instruments import CheckpointInstruments
from twinlog_checkpoint.translation.translation import Verdict
from unit.metric_points import counted


def test_judged_offsets_are_counted_by_verdict_and_not_by_group() -> None:
    """A series of a counter is there for ever, and groups come and go."""
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    instruments = CheckpointInstruments(provider.get_meter("test"), Flow("A", "B"))
    for verdict in (Verdict.EXACT, Verdict.EXACT, Verdict.FLOOR):
        instruments.considered(verdict)
    assert counted(reader, CHECKPOINT_OFFSETS.name, "twinlog.source.cluster", "twinlog.outcome") == {
        ("A", "exact"): 2,
        ("A", "floor"): 1,
    }
    provider.shutdown()
