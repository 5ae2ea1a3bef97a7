"""A back-off over several tasks: it is over when it would have been in one, whatever clocks they have."""

from dataclasses import replace

from twinlog_source.partitions.orders import PartitionState, PriorFailure, Start
from twinlog_source.task.partition import LONGEST_RETRY_SECONDS
from unit.source.flow_rig import FlowRig, P
from unit.source.task.writing.writer_rig import WriterRig


async def test_a_task_waits_no_longer_than_for_its_own_longest_back_off(rig: FlowRig) -> None:
    """Whatever its driver says."""
    driver, task = await rig.owner(), WriterRig()
    task.copies.clear()
    order = driver.assignment(P)
    failure = PriorFailure(
        state=PartitionState.FAULTED, reason="X", message="", retry_in_seconds=10_000.0, failures=2
    )
    task.copier().assign(Start(assignments=(replace(order, preserved=None, prior_failure=failure),)))
    assert task.copies[P].retry_at == task.clock.monotonic() + LONGEST_RETRY_SECONDS
