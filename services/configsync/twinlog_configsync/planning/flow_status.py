"""The status of a flow in configsync, as ListFlows shows it, apart from the topics. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from twinlog.errors import TwinlogError
from twinlog.service.owner.name import STANDS_BY
from twinlog_configsync.model.actions import Applied, is_drift, scope_of
from twinlog_configsync.model.hold import Hold
from twinlog_configsync.model.observation import Problem
from twinlog_configsync.model.reasons import SyncReason
from twinlog_configsync.model.schedule import Scope
from twinlog_configsync.planning.plan import Plan

_AS_IT_SHOULD_BE: Final = frozenset({"", SyncReason.PLAN_PENDING, SyncReason.NO_AUTHORIZER})


class SyncState(StrEnum):
    STARTING = "STARTING"
    """The first refresh has not succeeded yet."""
    SETTLED = "SETTLED"
    """Topics are decided and kept in sync."""
    DEGRADED = "DEGRADED"
    """Was settled before; the last refresh failed and is retried. The known topics stay valid."""
    REFUSED = "REFUSED"
    """The flow is invalid (SAME_CLUSTER). Nothing is changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeStatus:
    """One part of a flow."""

    last_synced_ms: int | None = None
    """When a pass last left it in sync."""
    reason: str = ""
    """Why it is not in sync; empty when it is."""
    message: str = ""
    pending_changes: int = 0
    """Changes that were planned and not carried out: in manual mode, or refused by the target."""
    drift_reverted: int = 0
    """How many changes that others made on the target Twinlog has reverted since the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowStatus:
    state: SyncState = SyncState.STARTING
    reason: str = SyncReason.STARTING
    message: str = "both clusters are being read for the first time"
    last_refresh_ms: int | None = None
    """When the last successful refresh ended, by the wall clock."""
    scopes: Mapping[Scope, ScopeStatus] = field(default_factory=dict)

    def failed(self, scope: Scope) -> bool:
        """Whether the last pass over this part left something that a retry may heal."""
        return self.scopes.get(scope, ScopeStatus()).reason not in _AS_IT_SHOULD_BE


def after_success(
    before: FlowStatus,
    plan: Plan,
    outcome: Applied,
    *,
    topic_count: int,
    now_ms: int,
    hold: Hold | None = None,
) -> FlowStatus:
    """`hold` tells why nothing may be deleted on the target. `outcome.applied` and `.refused` are empty when
    the plan was not carried out."""
    scopes = {
        **before.scopes,
        **{
            scope: _scope_after(before.scopes.get(scope, ScopeStatus()), scope, plan, outcome, now_ms=now_ms)
            for scope in plan.scopes
        },
    }
    reason, message = "", ""
    if hold is not None:
        reason, message = hold.reason, hold.message
    elif not topic_count:
        reason = SyncReason.NO_TOPICS_SELECTED
        message = "no topic of the source passes the flow's rules: check topics and topics.exclude"
    return FlowStatus(
        state=SyncState.SETTLED, reason=reason, message=message, last_refresh_ms=now_ms, scopes=scopes
    )


def after_failure(before: FlowStatus, error: TwinlogError, *, settled: bool) -> FlowStatus:
    """`settled`: the flow's topics were decided before, by this process or an earlier one."""
    if error.reason == SyncReason.SAME_CLUSTER:
        state = SyncState.REFUSED
    else:
        state = SyncState.DEGRADED if settled else SyncState.STARTING
    return FlowStatus(
        state=state,
        reason=error.reason,
        message=str(error),
        last_refresh_ms=before.last_refresh_ms,
        scopes=before.scopes,
    )


def standing_by(before: FlowStatus, refusal: TwinlogError, *, settled: bool) -> FlowStatus:
    """The status in a process that does not own the flow, and may not know the owner yet."""
    if refusal.reason == SyncReason.STARTING:
        return before
    if refusal.reason not in STANDS_BY:
        return after_failure(before, refusal, settled=settled)
    return FlowStatus(
        state=SyncState.SETTLED if settled else SyncState.STARTING,
        reason=refusal.reason,
        message=str(refusal),
        last_refresh_ms=before.last_refresh_ms,
    )


def _scope_after(
    before: ScopeStatus, scope: Scope, plan: Plan, outcome: Applied, *, now_ms: int
) -> ScopeStatus:
    planned = [action for action in plan.changes if scope_of(action) is scope]
    applied = [action for action in outcome.applied if scope_of(action) is scope]
    pending = len(planned) - len(applied)
    refused = [refusal for refusal in outcome.refused if scope_of(refusal.action) is scope]
    problem = outcome.world.problem(scope)
    reason, message = _words(problem, [str(refusal.error) for refusal in refused], pending)
    return ScopeStatus(
        last_synced_ms=before.last_synced_ms if reason else now_ms,
        reason=reason,
        message=message,
        pending_changes=pending,
        drift_reverted=before.drift_reverted + sum(is_drift(action) for action in applied),
    )


def _words(problem: Problem | None, refusals: Sequence[str], pending: int) -> tuple[str, str]:
    if problem is not None:
        return problem.reason, problem.message
    if refusals:
        more = f" (and {len(refusals) - 1} more)" if len(refusals) > 1 else ""
        return SyncReason.CHANGES_REFUSED, refusals[0] + more
    if pending:
        return SyncReason.PLAN_PENDING, f"{pending} changes wait for `twinlog apply`"
    return "", ""
