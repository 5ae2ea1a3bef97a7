"""Combines what was known, read and done into a flow's memory after a pass. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from twinlog.errors import KafkaError
from twinlog.kafka.ports import AclBinding, ConfigSource, QuotaEntity
from twinlog.service.feeds.replicated_topics import ReplicatedTopic
from twinlog_configsync.model.actions import (
    WHAT_TOPIC,
    Applied,
    Change,
    CreateAcl,
    CreateTopic,
    DeleteAcl,
    DeleteConfig,
    DeleteQuota,
    DeleteTopic,
    GrowPartitions,
    Refusal,
    SetConfig,
    SetQuota,
    Skip,
    scope_of,
)
from twinlog_configsync.model.memory import Memory, topic_id
from twinlog_configsync.model.observation import AclObservation, Observation, QuotaObservation, TopicPair
from twinlog_configsync.model.reasons import SyncReason
from twinlog_configsync.model.schedule import Scope
from twinlog_configsync.planning.config_rules import creation_configs
from twinlog_configsync.planning.plan import Plan
from twinlog_configsync.planning.registry import Blocker, fold
from twinlog_configsync.planning.rules import FlowRules
from twinlog_configsync.planning.source_loss import source_loss
from twinlog_configsync.planning.topic_plan import HOUR_MS

# What blocks single topics; kept for each scope until that scope is synced again. Pure.

_WAITS = "it is planned and waits for `twinlog apply`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Blockers:
    topics: Mapping[str, Blocker] = field(default_factory=dict)
    """By source topic: why its copy is not created, or gets no partitions."""
    configs: Mapping[str, Blocker] = field(default_factory=dict)
    """By source topic: why its configs are not synced."""
    refused: Mapping[Scope, Mapping[str, KafkaError]] = field(default_factory=dict)
    """By the text of an action: why the target refused it when the scope was last carried out."""

    def by_topic(self) -> dict[str, Blocker]:
        return {**self.configs, **self.topics}

    def after(self, plan: Plan, refused: Collection[Refusal[Change]], *, applied: bool) -> "Blockers":
        """`applied` tells whether the plan was carried out."""
        told: dict[Scope, dict[str, KafkaError]] = {scope: {} for scope in plan.scopes if applied}
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
            told[scope_of(refusal.action)] |= {str(refusal.action): refusal.error}
            match refusal.action:
                case CreateTopic() | GrowPartitions():
                    topics[refusal.action.source_topic] = refusal.error
                case SetConfig() | DeleteConfig():
                    configs[refusal.action.source_topic] = refusal.error
        return Blockers(
            topics=topics if Scope.TOPICS in plan.scopes else self.topics,
            configs=configs if Scope.CONFIGS in plan.scopes else self.configs,
            refused={**self.refused, **told},
        )


def _waiting(action: CreateTopic | GrowPartitions) -> Skip:
    return Skip(
        source_topic=action.source_topic,
        target_topic=action.target_topic,
        what=WHAT_TOPIC,
        rule=_WAITS,
        reason=SyncReason.PLAN_PENDING,
    )


def learn(
    before: Memory, plan: Plan, outcome: Applied, blockers: Blockers, rules: FlowRules, *, now_ms: int
) -> Memory:
    """`blockers` are the present blockers of all topics, including those from earlier passes over other
    scopes."""
    settled_at_ms = before.settled_at_ms
    if settled_at_ms is None and Scope.TOPICS in plan.scopes:
        settled_at_ms = now_ms
    entries = fold(
        before.entries,
        outcome.world.topics,
        blockers.by_topic(),
        created_after_start=lambda name: before.settled and topic_id(name) not in (before.were_there or ()),
        now_ms=now_ms,
        loss=source_loss(
            before.entries,
            outcome.world.topics,
            known_cluster_id=before.source_cluster_id,
            is_heartbeats=rules.selector.policy.is_heartbeats_topic,
        ),
        forgotten_generation=before.forgotten_generation,
    )
    forgotten = before.entries.keys() - entries.keys()
    last_set = _last_set(before, plan, outcome, rules)
    return Memory(
        entries=entries,
        forgotten_generation=max(
            before.forgotten_generation, *(before.entries[name].generation for name in forgotten), 0
        ),
        last_set={name: values for name, values in last_set.items() if name not in forgotten},
        made_acls=_made_acls(before, plan, outcome),
        made_quotas=_made_quotas(before, outcome),
        wanted_acls=before.wanted_acls,
        wanted_quotas=before.wanted_quotas,
        deleted_at_ms=_deleted_at_ms(before, outcome, now_ms=now_ms),
        source_cluster_id=outcome.world.topics.source_cluster_id or before.source_cluster_id,
        rules=before.rules,
        were_there=_were_there(before, outcome.world.topics, entries),
        last_plan=before.last_plan,
        changes=before.changes,
        settled_at_ms=settled_at_ms,
    )


def _were_there(
    before: Memory, observation: Observation, entries: Mapping[str, ReplicatedTopic]
) -> frozenset[str] | None:
    """One that is deleted and created again is new."""
    if not observation.listed:
        return before.were_there
    present = frozenset(map(topic_id, observation.listed - entries.keys()))
    return present if before.were_there is None else present & before.were_there


def _last_set(before: Memory, plan: Plan, outcome: Applied, rules: FlowRules) -> dict[str, Mapping[str, str]]:
    known = dict(before.last_set)
    for action in outcome.applied:
        if isinstance(action, CreateTopic):
            pair = outcome.world.topics.pairs[action.source_topic]
            known[action.source_topic] = _shown(pair, action.configs)
    if Scope.CONFIGS in plan.scopes:
        waiting = _not_done(plan, outcome)
        not_done = {each.source_topic for each in waiting if isinstance(each, SetConfig | DeleteConfig)}
        for name, pair in outcome.world.topics.pairs.items():
            wanted = _overrides(pair, outcome.world.topics, rules)
            if wanted is not None and name not in not_done:
                known[name] = _shown(pair, wanted)
    return known


def _shown(pair: TopicPair, values: Mapping[str, str]) -> dict[str, str]:
    """Those of the values that the copy shows. A value that a broker does not show yet, or that the copy was
    created without, is no drift when the next pass sets it."""
    if isinstance(pair.target_configs, KafkaError):
        return dict(values)
    overrides = {
        entry.name: entry.value for entry in pair.target_configs if entry.source is ConfigSource.TOPIC
    }
    return {name: value for name, value in values.items() if overrides.get(name) == value}


def _not_done(plan: Plan, outcome: Applied) -> list[Change]:
    """What the target refused, or what waits for `twinlog apply`."""
    done = {id(action) for action in outcome.applied}
    return [action for action in plan.changes if id(action) not in done]


def _overrides(pair: TopicPair, observation: Observation, rules: FlowRules) -> dict[str, str] | None:
    """The overrides of the copy after a sync; None when there was nothing to sync."""
    if isinstance(pair.target, KafkaError) or isinstance(pair.source_configs, KafkaError):
        return None
    return creation_configs(
        pair.source_configs,
        rules.topics.configs_of(pair.source_topic, observation.target_cluster),
        replication_factor=pair.target.replication_factor,
    )


def _made_acls(before: Memory, plan: Plan, outcome: Applied) -> frozenset[AclBinding]:
    """ACLs that Twinlog created and that exist, or wait to be created again. An ACL that somebody else
    removed, and that the source does not need, is no longer Twinlog's."""
    if not isinstance(outcome.world.acls, AclObservation):
        return before.made_acls
    created = {action.binding for action in outcome.applied if isinstance(action, CreateAcl)}
    deleted = {action.binding for action in outcome.applied if isinstance(action, DeleteAcl)}
    missed = {each.binding for each in _not_done(plan, outcome) if isinstance(each, CreateAcl)}
    present = (outcome.world.acls.target | created | missed) - deleted
    return frozenset((before.made_acls | created) & present)


def _made_quotas(before: Memory, outcome: Applied) -> dict[QuotaEntity, dict[str, float]]:
    """Quotas that Twinlog set, without those that it removed or that are gone from the target."""
    made = {entity: dict(values) for entity, values in before.made_quotas.items()}
    if not isinstance(outcome.world.quotas, QuotaObservation):
        return made
    target = outcome.world.quotas.target
    made = {
        entity: {key: value for key, value in values.items() if key in target.get(entity, {})}
        for entity, values in made.items()
    }
    for action in outcome.applied:
        match action:
            case SetQuota():
                made.setdefault(action.entity, {})[action.key] = action.value
            case DeleteQuota():
                made.get(action.entity, {}).pop(action.key, None)
    return {entity: values for entity, values in made.items() if values}


def _deleted_at_ms(before: Memory, outcome: Applied, *, now_ms: int) -> tuple[int, ...]:
    recent = [at_ms for at_ms in before.deleted_at_ms if now_ms - at_ms < HOUR_MS]
    return (*recent, *(now_ms for action in outcome.applied if isinstance(action, DeleteTopic)))
