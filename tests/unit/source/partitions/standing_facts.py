"""What is known of a flow whose tasks are well, at 100 s."""

from twinlog_source.partitions.standing import FlowFacts

FACTS = FlowFacts(
    now=100.0,
    now_ms=1_000_000,
    idle_reason="",
    idle_message="",
    positions_known=True,
    delay_seconds=0.0,
    stalled_seconds=30.0,
    source="A",
    is_paused=lambda _: False,
    is_limited=lambda _: False,
    heard_at=lambda _: 99.0,
    source_throttled_at=lambda _: None,
    target_throttled_at=lambda _: None,
    slow_slots=frozenset(),
    is_owned=True,
)
