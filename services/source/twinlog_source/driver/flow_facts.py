"""The facts from which the states of a flow's partitions are derived."""

from twinlog_source.driver.state import FlowState
from twinlog_source.partitions.standing import END_VALID_SECONDS, UNANSWERED, FlowFacts
from twinlog_source.reasons import PartitionReason


def flow_facts(state: FlowState, idle: tuple[str, str], *, is_owned: bool) -> FlowFacts:
    """Of this moment. May be called from any thread. `idle`: reason and message why nothing is copied, empty
    while the flow is copied."""
    table, control, now = state.table, state.control, state.clock.monotonic()
    followed_at = table.followed_at
    is_followed = followed_at is not None and now - followed_at <= END_VALID_SECONDS
    return FlowFacts(
        now=now,
        now_ms=state.clock.now_ms(),
        idle_reason=idle[0],
        idle_message=idle[1],
        positions_known=is_owned or is_followed,
        is_owned=is_owned,
        stalled_seconds=state.flow.settings.stalled_seconds,
        delay_seconds=state.flow.settings.delay_seconds,
        source=state.flow.flow.source,
        is_paused=control.is_paused,
        is_limited=lambda partition: None in control.throttles or partition.topic in control.throttles,
        heard_at=table.heard_at.get,
        source_throttled_at=table.source_throttled_at.get,
        target_throttled_at=table.target_throttled_at.get,
        slow_slots=frozenset(
            row.slot
            for row in list(table.rows.values())
            if row.slot is not None
            and (
                row.task_reason == PartitionReason.TARGET_SLOW
                or (row.task_reason in UNANSWERED and row.copy is not None and not row.copy.preserved)
            )
        ),
    )
