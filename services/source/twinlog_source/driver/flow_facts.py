"""The facts from which the states of a flow's partitions are derived."""

from twinlog_source.driver.state import FlowState
from twinlog_source.partitions.standing import END_VALID_SECONDS, UNANSWERED, FlowFacts
from twinlog_source.reasons import PartitionReason


def flow_facts(
    state: FlowState, *, now: float, now_ms: int, is_owned: bool, idle_reason: str, idle_message: str
) -> FlowFacts:
    """Of this moment. May be called from any thread. `idle_reason` and `idle_message` say why nothing is
    copied, and are empty while the flow is copied."""
    table, control = state.table, state.control
    followed_at = table.followed_at
    is_followed = followed_at is not None and now - followed_at <= END_VALID_SECONDS
    return FlowFacts(
        now=now,
        now_ms=now_ms,
        idle_reason=idle_reason,
        idle_message=idle_message,
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
