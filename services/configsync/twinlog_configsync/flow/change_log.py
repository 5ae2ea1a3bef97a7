"""Logs and counts the changes of a flow, each change once."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog
from opentelemetry.metrics import Counter

from twinlog.clock import Clock
from twinlog.errors import TwinlogError
from twinlog.model import Flow
from twinlog.printable import listed
from twinlog.service.feeds.replicated_topics import TopicState
from twinlog.telemetry.logging import RepeatLimiter
from twinlog.telemetry.metrics.spec import flow_attributes
from twinlog_configsync.model.actions import (
    Action,
    Applied,
    CreateTopic,
    DeleteTopic,
    GrowPartitions,
    is_drift,
    scope_of,
)
from twinlog_configsync.model.observation import Problem
from twinlog_configsync.model.records import RecordKey
from twinlog_configsync.model.schedule import Scope
from twinlog_configsync.planning.flow_status import FlowStatus
from twinlog_configsync.planning.plan import Plan
from twinlog_configsync.planning.registry import Entries

_RESOURCE_TYPES: Final = {
    Scope.TOPICS: "topic",
    Scope.CONFIGS: "config",
    Scope.ACLS: "acl",
    Scope.QUOTAS: "quota",
}
_OUTCOMES: Final = ("applied", "drift_reverted", "refused")

_log = structlog.stdlib.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class ChangeLog:
    """Invariant: every series of `changes` exists from the beginning, because Prometheus sees no increase in
    the first value of a series."""

    flow: Flow
    changes: Counter
    clock: Clock
    _told: set[tuple[Scope, str]] = field(default_factory=set)
    _pending_plan: str = ""
    _other_file_revision: int = 0
    _limiter: RepeatLimiter = field(default_factory=lambda: RepeatLimiter(interval_seconds=60.0))

    def __post_init__(self) -> None:
        for resource_type in ("partitions", *_RESOURCE_TYPES.values()):
            for outcome in _OUTCOMES:
                self._count(resource_type, outcome, changes=0)

    def loaded(self, *, topics: int, settled: bool) -> None:
        _log.info("registry_loaded", flow=str(self.flow), topics=topics, settled=settled)

    def registry_written_again(self) -> None:
        _log.warning("registry_written_again", flow=str(self.flow))

    def outcome(self, outcome: Applied) -> None:
        for action in outcome.applied:
            self._count(_resource_type(action), "drift_reverted" if is_drift(action) else "applied")
            _log.info("target_changed", flow=str(self.flow), action=str(action), drift=is_drift(action))
        for refusal in outcome.refused:
            self._count(_resource_type(refusal.action), "refused")
            self._warn(
                "target_refused",
                key=(str(refusal.action), refusal.error.reason),
                action=str(refusal.action),
                reason=refusal.error.reason,
                message=str(refusal.error),
            )

    def entries(self, before: Entries, after: Entries) -> None:
        """Log topics that are no longer in sync, or that the rules leave out from now on."""
        stopped = sorted(
            name
            for name, known in before.items()
            if known.selected and not known.routed_from and (entry := after.get(name)) is not None
            if not entry.selected and entry.state is not TopicState.DELETED_AT_SOURCE
        )
        if stopped:
            _log.warning(
                "topics_no_longer_copied",
                flow=str(self.flow),
                topics=len(stopped),
                message=f"the rules leave out {listed(stopped)}",
            )
        for name, entry in after.items():
            known = before.get(name)
            if entry.reason and (known is None or known.reason != entry.reason):
                _log.warning(
                    "topic_not_in_step",
                    flow=str(self.flow),
                    topic=name,
                    state=entry.state.value,
                    reason=entry.reason,
                    message=entry.message,
                )
            if known is not None and known.generation != entry.generation:
                _log.warning(
                    "source_topic_recreated", flow=str(self.flow), topic=name, generation=entry.generation
                )

    def status(self, before: FlowStatus, after: FlowStatus, *, topics: int) -> None:
        """Log that the flow is in sync, or has nothing to do, if it was not so before."""
        if (before.state, before.reason) != (after.state, after.reason):
            _log.info(
                "flow_settled",
                flow=str(self.flow),
                topics=topics,
                reason=after.reason,
                message=after.message,
            )

    def problem(self, scope: Scope, problem: Problem) -> None:
        """Log a part of the flow that could not be read; a part that has nothing to do is logged once."""
        if problem.failed:
            self._warn(
                "part_not_synced",
                key=(scope, problem.reason),
                scope=scope,
                reason=problem.reason,
                message=problem.message,
            )
        elif (scope, problem.message) not in self._told:
            self._told.add((scope, problem.message))
            _log.info(
                "nothing_to_sync",
                flow=str(self.flow),
                scope=scope,
                reason=problem.reason,
                message=problem.message,
            )

    def pending(self, plan: Plan) -> None:
        """Manual mode: log once for each plan that it waits."""
        if plan.changes and plan.plan_id != self._pending_plan:
            _log.info("plan_waits", flow=str(self.flow), plan_id=plan.plan_id, changes=len(plan.changes))
        self._pending_plan = plan.plan_id

    def records_refused(self, refused: Mapping[RecordKey, str]) -> None:
        """Log records of the registry that this flow cannot have written."""
        for key, why in refused.items():
            self._warn("registry_record_refused", key=key, kind=key.kind, name=key.name, message=why)

    def rules_unusable(self, error: TwinlogError) -> None:
        """Log that changed rules no longer fit the file, so the file's rules apply."""
        self._warn("changed_rules_unusable", key=error.reason, reason=error.reason, message=str(error))

    def rules_in_force(self, sentences: Iterable[str]) -> None:
        """Log each rule that is not the file's."""
        for sentence in sentences:
            _log.warning("rule_differs_from_file", flow=str(self.flow), message=sentence)

    def rules_of_another_file(self, revision: int, keys: Sequence[str]) -> None:
        """Log, once for each revision, that this process's file would put rules aside that its owner's file
        does not."""
        if revision != self._other_file_revision:
            self._other_file_revision = revision
            _log.warning(
                "rules_of_another_file",
                flow=str(self.flow),
                keys=list(keys),
                message="the file of this process has other values than those that these rules replaced: it"
                " puts them aside once it owns the flow",
            )

    def failed(self, error: TwinlogError) -> None:
        self._warn("sync_failed", key=error.reason, reason=error.reason, message=str(error))

    def _warn(self, event: str, *, key: object, **fields: str) -> None:
        left_out = self._limiter.admit((event, key), now=self.clock.monotonic())
        if left_out is not None:
            _log.warning(event, flow=str(self.flow), left_out=left_out, **fields)

    def _count(self, resource_type: str, outcome: str, *, changes: int = 1) -> None:
        self.changes.add(
            changes,
            {
                **flow_attributes(self.flow.source, self.flow.target),
                "twinlog.resource.type": resource_type,
                "twinlog.outcome": outcome,
            },
        )


def _resource_type(action: Action) -> str:
    match action:
        case CreateTopic() | DeleteTopic():
            return "topic"
        case GrowPartitions():
            return "partitions"
        case _:
            return _RESOURCE_TYPES[scope_of(action)]
