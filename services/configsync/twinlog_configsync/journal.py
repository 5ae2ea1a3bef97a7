"""What a flow's loop tells people: log lines and counters, each change once."""

from dataclasses import dataclass, field

import structlog
from opentelemetry.metrics import Counter

from twinlog.clock import Clock
from twinlog.errors import TwinlogError
from twinlog.model import Flow
from twinlog.telemetry.metrics import flow_attributes
from twinlog.telemetry.repeats import RepeatLimiter
from twinlog_configsync.actions import Action, CreateTopic, DeleteConfig, GrowPartitions, SetConfig
from twinlog_configsync.apply import Outcome
from twinlog_configsync.flow_status import FlowStatus
from twinlog_configsync.registry import Entries

_log = structlog.stdlib.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class Journal:
    flow: Flow
    changes: Counter
    clock: Clock
    _limiter: RepeatLimiter = field(default_factory=lambda: RepeatLimiter(interval_seconds=60.0))

    def loaded(self, *, topics: int, settled: bool) -> None:
        _log.info("registry_loaded", flow=str(self.flow), topics=topics, settled=settled)

    def outcome(self, outcome: Outcome) -> None:
        for action in outcome.applied:
            self._count(action, "drift_reverted" if _is_drift(action) else "applied")
            _log.info("target_changed", flow=str(self.flow), action=str(action), drift=_is_drift(action))
        for refusal in outcome.refused:
            self._count(refusal.action, "refused")
            self._warn(
                "target_refused",
                key=(str(refusal.action), refusal.error.reason),
                action=str(refusal.action),
                reason=refusal.error.reason,
                message=str(refusal.error),
            )

    def entries(self, before: Entries, after: Entries) -> None:
        """Say which topics have come, and which came out of step."""
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
        """Say that the flow is in step, or has nothing to do, when it was not so before."""
        if (before.state, before.reason) != (after.state, after.reason):
            _log.info(
                "flow_settled",
                flow=str(self.flow),
                topics=topics,
                reason=after.reason,
                message=after.message,
            )

    def failed(self, error: TwinlogError) -> None:
        self._warn("sync_failed", key=error.reason, reason=error.reason, message=str(error))

    def _warn(self, event: str, *, key: object, **fields: str) -> None:
        left_out = self._limiter.admit((event, key), now=self.clock.monotonic())
        if left_out is not None:
            _log.warning(event, flow=str(self.flow), left_out=left_out, **fields)

    def _count(self, action: Action, outcome: str) -> None:
        self.changes.add(
            1,
            {
                **flow_attributes(self.flow.source, self.flow.target),
                "twinlog.resource.type": _resource_type(action),
                "twinlog.outcome": outcome,
            },
        )


def _resource_type(action: Action) -> str:
    match action:
        case CreateTopic():
            return "topic"
        case GrowPartitions():
            return "partitions"
        case _:
            return "config"


def _is_drift(action: Action) -> bool:
    return isinstance(action, SetConfig | DeleteConfig) and action.drift
