"""Copies that lose what was written."""

from twinlog.model import TopicPartition
from twinlog_source.driver.state import FlowState
from unit.source.flow_rig import FlowRig, P, reported

COPY = TopicPartition("A.t", 0)
AUTO, PRESERVED, TRANSLATED = (f"twinlog.offsets = {mode}" for mode in ("auto", "preserved", "translated"))


async def copied(rig: FlowRig, *, source_end: int) -> FlowState:
    """An owner whose task has copied ten records, the last of which lies below offset 12 of the copy."""
    await rig.write(rig.target, "A.t", 12)
    state = await rig.owner()
    await state.journal.position(P, 10)
    reported(state, position=10, source_end=source_end, target_end=12)
    return state
