"""How far configsync is with a flow: what ListFlows tells, apart from the topics themselves."""

from dataclasses import dataclass
from enum import StrEnum

from twinlog.errors import TwinlogError
from twinlog_configsync.reasons import Reason


class FlowState(StrEnum):
    STARTING = "STARTING"
    """The first refresh has not succeeded yet."""
    SETTLED = "SETTLED"
    """Topics are decided and kept in sync."""
    DEGRADED = "DEGRADED"
    """Decided before; the last refresh failed and is tried again. The known topics stay valid."""
    REFUSED = "REFUSED"
    """The flow cannot be (SAME_CLUSTER). Nothing is touched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowStatus:
    state: FlowState = FlowState.STARTING
    reason: str = Reason.STARTING
    message: str = "the first look at both clusters is under way"
    last_refresh_ms: int | None = None
    """Wall clock of the end of the last successful refresh."""


def after_success(topic_count: int, *, now_ms: int) -> FlowStatus:
    if topic_count:
        return FlowStatus(state=FlowState.SETTLED, reason="", message="", last_refresh_ms=now_ms)
    return FlowStatus(
        state=FlowState.SETTLED,
        reason=Reason.NO_TOPICS_SELECTED,
        message="no topic of the source passes the flow's rules: check topics and topics.exclude",
        last_refresh_ms=now_ms,
    )


def after_failure(before: FlowStatus, error: TwinlogError, *, settled: bool) -> FlowStatus:
    """`settled`: the flow's topics have been decided before, by this process or an earlier one."""
    if error.reason == Reason.SAME_CLUSTER:
        state = FlowState.REFUSED
    else:
        state = FlowState.DEGRADED if settled else FlowState.STARTING
    return FlowStatus(
        state=state, reason=error.reason, message=str(error), last_refresh_ms=before.last_refresh_ms
    )
