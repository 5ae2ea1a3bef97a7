"""What the checkpoint service counts, and that it stays bounded."""

from dataclasses import dataclass, replace

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from twinlog.errors import StateError, TwinlogError
from twinlog.model import Flow, TopicPartition
from twinlog.telemetry.metrics.services import (
    CHECKPOINT_AGE,
    CHECKPOINT_GROUPS,
    CHECKPOINT_OFFSETS,
    CHECKPOINT_OVERDUE,
    CHECKPOINT_PARTITIONS,
    GROUP_LAG,
)
from twinlog_checkpoint.flow.gauges import observe_flows
from twinlog_checkpoint.groups.instruments import CheckpointInstruments
from twinlog_checkpoint.translation.translation import Verdict
from unit.checkpoint.checkpoint_rig import CheckpointFlowRig, set_settings
from unit.checkpoint.owners import AlwaysOwner
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


@dataclass(slots=True)
class LosableLease(AlwaysOwner):
    """A lease that a test takes away."""

    lost: bool = False

    def refusal(self) -> TwinlogError | None:
        if not self.lost:
            return None
        return StateError("another process owns the flow", reason="OWNED_ELSEWHERE")


async def test_a_process_that_lost_the_flow_publishes_nothing_about_its_groups() -> None:
    """What it knew would stay as it was for ever, beside what the owner publishes."""
    rig, orders = CheckpointFlowRig(), TopicPartition("orders", 0)
    rig.source.add_topic("orders")
    rig.target.add_topic("A.orders")
    async with rig.source.writer() as writer:
        for _ in range(10):
            await writer.append(orders, key=None, value=b"")
    await rig.write_sync("orders", 0, 0)
    rig.source.set_group("g", {orders: 1})
    of_groups = {each.name for each in (CHECKPOINT_AGE, CHECKPOINT_GROUPS, CHECKPOINT_PARTITIONS, GROUP_LAG)}
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])

    def told() -> set[str]:
        return {name for name in of_groups if counted(reader, name)}

    async with rig.running() as parts:
        lease = LosableLease()
        observe_flows(provider.get_meter("test"), [replace(parts, duty=lease.lease)], clock=rig.clock)
        await rig.do_pass(parts.checkpointer)
        assert told() == of_groups
        lease.lost = True
        assert told() == set()
        lease.lost = False
        assert told() == of_groups
    provider.shutdown()


async def test_a_pass_is_overdue_by_what_the_interval_does_not_allow() -> None:
    rig = CheckpointFlowRig()
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    async with rig.running() as parts:
        observe_flows(provider.get_meter("test"), [parts], clock=rig.clock)
        set_settings(parts, emit_interval_seconds=3600.0)
        assert counted(reader, CHECKPOINT_OVERDUE.name) == {}
        await rig.do_pass(parts.checkpointer)
        rig.clock.advance(3600.0)
        assert counted(reader, CHECKPOINT_OVERDUE.name) == {(): 0.0}
        rig.clock.advance(25.0)
        assert counted(reader, CHECKPOINT_OVERDUE.name) == {(): 25.0}
    provider.shutdown()
