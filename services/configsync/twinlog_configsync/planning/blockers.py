"""What blocks single topics; kept for each scope until that scope is synced again. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from twinlog_configsync.model.actions import (
    WHAT_TOPIC,
    Change,
    CreateTopic,
    DeleteConfig,
    GrowPartitions,
    SetConfig,
    Skip,
)
from twinlog_configsync.model.reasons import Reason
from twinlog_configsync.model.schedule import Scope
from twinlog_configsync.planning.outcome import Refusal
from twinlog_configsync.planning.plan import Plan
from twinlog_configsync.planning.registry import Blocker

_WAITS = "it is planned and waits for `twinlog apply`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Blockers:
    topics: Mapping[str, Blocker] = field(default_factory=dict)
    """By source topic: why its copy is not created, or gets no partitions."""
    configs: Mapping[str, Blocker] = field(default_factory=dict)
    """By source topic: why its configs are not synced."""

    def by_topic(self) -> dict[str, Blocker]:
        return {**self.configs, **self.topics}

    def after(self, plan: Plan, refused: Collection[Refusal[Change]], *, applied: bool) -> "Blockers":
        """`applied` tells whether the plan was carried out."""
        topics: dict[str, Blocker] = {
            action.source_topic: action
            for action in plan.actions
            if isinstance(action, Skip) and action.reason
        }
        configs: dict[str, Blocker] = {}
        if not applied:
            topics |= {
                action.source_topic: _waiting(action)
                for action in plan.actions
                if isinstance(action, CreateTopic | GrowPartitions)
            }
        for refusal in refused:
            match refusal.action:
                case CreateTopic() | GrowPartitions():
                    topics[refusal.action.source_topic] = refusal.error
                case SetConfig() | DeleteConfig():
                    configs[refusal.action.source_topic] = refusal.error
        return Blockers(
            topics=topics if Scope.TOPICS in plan.scopes else self.topics,
            configs=configs if Scope.CONFIGS in plan.scopes else self.configs,
        )


def _waiting(action: CreateTopic | GrowPartitions) -> Skip:
    return Skip(
        source_topic=action.source_topic,
        target_topic=action.target_topic,
        what=WHAT_TOPIC,
        rule=_WAITS,
        reason=Reason.PLAN_PENDING,
    )
