"""A back-off over several tasks: it is over when it would have been in one, whatever clocks they have."""

from dataclasses import replace

import pytest

from twinlog.testing.virtual_time import FakeClock
from twinlog_source.partitions.events import Reported
from twinlog_source.partitions.orders import PartitionState, PriorFailure, Start
from twinlog_source.task.partition import LONGEST_RETRY_SECONDS
from unit.source.flow_rig import FlowRig, P
from unit.source.task.writing.writer_rig import WriterRig

QUARTER_SECONDS = 900.0


@pytest.mark.parametrize("ahead_seconds", [-QUARTER_SECONDS, 0.0, QUARTER_SECONDS])
async def test_the_wait_for_the_next_try_goes_on_from_task_to_task(
    rig: FlowRig, ahead_seconds: float
) -> None:
    driver = await rig.owner()
    left_seconds = LONGEST_RETRY_SECONDS
    for has_failed in (False, True, True, True):
        ahead_ms = int(ahead_seconds * 1000)
        task = WriterRig(clock=FakeClock(now_ms=rig.clock.now_ms() + ahead_ms, monotonic=7.0))
        task.copies.clear()
        copier = task.copier()
        order = replace(driver.assignment(P), preserved=None)
        copier.assign(Start(assignments=(order,)))
        copy, now = task.copies[P], task.clock.monotonic()
        if not has_failed:
            copy.fail(reason="X", message="", retriable=True, now=now, wait_seconds=left_seconds)
        assert (copy.state, copy.failures) == (PartitionState.BACKOFF, 1)
        assert copy.retry_at == pytest.approx(now + left_seconds)
        told = copier.reporter.report(everything=True)
        driver.table.apply(Reported(slot=0, report=told, now_ms=rig.clock.now_ms()), rig.clock.monotonic())
        rig.clock.advance(25)
        left_seconds = max(0.0, left_seconds - 25)


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
