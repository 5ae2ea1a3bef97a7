"""Ends an epoch: its tasks finish and hand over their positions, or they are fenced."""

from typing import Final

import structlog

from twinlog_source.driver.epoch import Epoch, SlotState
from twinlog_source.driver.state import FlowState
from twinlog_source.partitions.shares import LimitDebt

FINISH_TIMEOUT_SECONDS: Final = 20.0

log = structlog.get_logger(__name__)


async def end_epoch(epoch: Epoch, state: FlowState, reason: str) -> tuple[LimitDebt, ...]:
    """Wait until each task has handed over its positions; those of tasks that do not are read from the log
    once their ids are fenced. Return what the tasks owe to the flow's limits. Blocks for at most 20 seconds,
    and for as long as fencing takes. Raises TwinlogError if that fails: the flow has to be taken over again.
    """
    epoch.end(reason)
    await epoch.wait_until(
        lambda: epoch.are(SlotState.FINISHED, SlotState.LOST, SlotState.WAITING), FINISH_TIMEOUT_SECONDS
    )
    lost = [slot for slot in epoch.slots if not slot.ended_well]
    if lost:
        flow, slots = str(state.flow.flow), [slot.index for slot in lost]
        log.info("slots_fenced", flow=flow, epoch=epoch.number, slots=slots)
        await state.reclaim(epoch.number, lost)
    for slot in epoch.slots:
        if slot.ended_well:
            state.settled(slot.partitions)
    epoch.closed = True
    return tuple(slot.final.debt for slot in epoch.slots if slot.final is not None)
