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


async def stored_whole(rig: FlowRig, mode: str) -> None:
    """An owner has stored that it copied all of 20 records."""
    await rig.write(rig.source, "t", 20)
    await rig.write(rig.target, "A.t", 20)
    await (await rig.owner(mode)).journal.position(P, 20)


async def copied_whole(rig: FlowRig, mode: str, *, then: str = "") -> FlowState:
    """The next owner after `stored_whole`, whose task has said that nothing is left."""
    await stored_whole(rig, mode)
    state = await rig.owner(then or mode)
    reported(state, position=20, source_end=20, target_end=20)
    return state
