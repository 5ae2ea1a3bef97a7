"""The plan for a flow as one value: actions in the order in which they are carried out. Pure."""

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from twinlog.errors import KafkaError
from twinlog.kafka.ports import AclBinding, QuotaEntity
from twinlog.model import Flow
from twinlog.service.feeds.replicated_topics import ReplicatedTopic
from twinlog_configsync.access.acl_plan import plan_acls
from twinlog_configsync.access.acl_rules import TOPIC, TranslatedAcl
from twinlog_configsync.access.quota_plan import plan_quotas
from twinlog_configsync.model.actions import (
    Action,
    Change,
    ConfigAction,
    CreateAcl,
    DeleteTopic,
    Omission,
    SetQuota,
    Skip,
    SkipUser,
)
from twinlog_configsync.model.hold import Hold
from twinlog_configsync.model.memory import Memory
from twinlog_configsync.model.observation import (
    AclObservation,
    Observation,
    QuotaObservation,
    TopicPair,
    World,
    is_absent,
)
from twinlog_configsync.model.reasons import SyncReason
from twinlog_configsync.model.schedule import Scope
from twinlog_configsync.planning.config_rules import plan_configs
from twinlog_configsync.planning.desired import DesiredBindings
from twinlog_configsync.planning.rules import FlowRules
from twinlog_configsync.planning.source_loss import kept_copies, source_loss
from twinlog_configsync.planning.topic_plan import plan_deletes, plan_topics


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    flow: Flow
    scopes: frozenset[Scope]
    actions: tuple[Action, ...]

    plan_id: str = field(init=False, compare=False)
    """Two plans have the same id exactly when their actions are equal: operation, object, old value and
    rule."""

    def __post_init__(self) -> None:
        content = [str(self.flow), *sorted(self.scopes), *map(repr, self.actions)]
        plan_id = hashlib.sha256("\n".join(content).encode()).hexdigest()[:32]
        object.__setattr__(self, "plan_id", plan_id)

    @property
    def changes(self) -> tuple[Change, ...]:
        """The actions without those that do nothing on purpose."""
        return tuple(action for action in self.actions if not isinstance(action, Omission))

    @property
    def new_acls(self) -> frozenset[AclBinding]:
        return frozenset(action.binding for action in self.actions if isinstance(action, CreateAcl))

    @property
    def deletion_count(self) -> int:
        """How many topics are deleted."""
        return sum(isinstance(action, DeleteTopic) for action in self.actions)

    @property
    def new_quotas(self) -> dict[QuotaEntity, dict[str, float]]:
        quotas: dict[QuotaEntity, dict[str, float]] = {}
        for action in self.actions:
            if isinstance(action, SetQuota):
                quotas.setdefault(action.entity, {})[action.key] = action.value
        return quotas


def make_plan(
    world: World,
    rules: FlowRules,
    memory: Memory,
    *,
    scopes: Collection[Scope],
    now_ms: int,
    claims: DesiredBindings,
    acls: Sequence[TranslatedAcl] = (),
) -> Plan:
    """Plan everything that is due in these scopes. The order of the input makes no difference.

    `acls` are the translated ACLs of the source.
    """
    actions: list[Action] = []
    loss = source_loss(
        memory.entries,
        world.topics,
        known_cluster_id=memory.source_cluster_id,
        is_heartbeats=rules.selector.policy.is_heartbeats_topic,
    )
    failover = _failed_over(world)
    if Scope.TOPICS in scopes:
        actions += plan_topics(world.topics, rules.topics, memory.entries)
        actions += plan_deletes(
            world.topics,
            # A topic that is copied both ways is created again from the other side.
            {name: each for name, each in memory.entries.items() if rules.copies_back(name) is None},
            rules.deletes,
            deleted_at_ms=memory.deleted_at_ms,
            now_ms=now_ms,
            hold=loss or failover,
        )
    hold = loss or kept_copies(memory.entries) or failover
    if Scope.ACLS in scopes and isinstance(world.acls, AclObservation):
        actions += plan_acls(
            world.acls,
            acls,
            rules.acls,
            made=memory.made_acls,
            wanted_elsewhere=claims.acls_wanted_elsewhere(rules.flow),
            hold=hold,
        )
        actions += [SkipUser(user=user, mechanism=each) for user, each in world.acls.users_missing]
    if Scope.QUOTAS in scopes and isinstance(world.quotas, QuotaObservation):
        actions += plan_quotas(
            world.quotas,
            made=memory.made_quotas,
            owner=lambda quota: claims.quota_owner(rules.flow, quota),
            wanted_elsewhere=claims.quotas_wanted_elsewhere(rules.flow),
            hold=hold,
        )
    if Scope.CONFIGS in scopes:
        for _, pair in sorted(world.topics.pairs.items()):
            planned = _plan_configs(pair, world.topics, rules, memory)
            actions += planned if failover is None else [_held(each, failover) for each in planned]
    return Plan(flow=rules.flow, scopes=frozenset(scopes), actions=tuple(actions))


def _failed_over(world: World) -> Hold | None:
    return Hold(reason=SyncReason.FAILED_OVER, message=world.failover) if world.failover else None


def _held(action: ConfigAction | Skip, hold: Hold) -> Skip:
    """The applications work with the copy now: what happens to the abandoned source must not reach it."""
    if isinstance(action, Skip):
        return action
    return Skip(
        source_topic=action.source_topic,
        target_topic=action.target_topic,
        what=action.name,
        rule=f"{hold.reason}: {hold.message}",
    )


def replicated_topics(observation: Observation, memory: Memory) -> frozenset[str]:
    """Selected source topics whose copies have the rights that the source grants.

    A topic counts while it exists, and while the source does not report whether it still exists (time-out, no
    rights). A deleted topic counts as long as its copy exists, because applications may have moved to the
    copy. A name that the source never had does not count, because under a policy that keeps names the
    target's topic of this name is another one.
    """
    granted = {binding.resource_name for binding in memory.made_acls if binding.resource_type == TOPIC}
    return frozenset(
        name
        for name, pair in observation.pairs.items()
        if _is_replicated(pair, memory.entries.get(name), is_granted=pair.target_topic in granted)
    )


def _is_replicated(pair: TopicPair, entry: ReplicatedTopic | None, *, is_granted: bool) -> bool:
    """`is_granted`: Twinlog created ACLs for the copy."""
    if not isinstance(pair.source, KafkaError):
        return not pair.stays_away(entry)
    if entry is None or not entry.partition_count:
        return False
    if not is_absent(pair.source):
        return True
    if isinstance(pair.target, KafkaError):
        # Another topic may have taken the place of the copy. Its ACLs would have been deleted then.
        return is_granted and not is_absent(pair.target)
    return pair.target.topic_id == entry.target_topic_id


def _plan_configs(
    pair: TopicPair, observation: Observation, rules: FlowRules, memory: Memory
) -> list[ConfigAction | Skip]:
    """Nothing for a topic that exists on one side only, or whose configs cannot be read."""
    if isinstance(pair.source, KafkaError) or isinstance(pair.target, KafkaError):
        return []
    if isinstance(pair.source_configs, KafkaError) or isinstance(pair.target_configs, KafkaError):
        return []
    if not rules.leads(pair.source_topic):
        return [
            Skip(
                source_topic=pair.source_topic,
                target_topic=pair.target_topic,
                what="configs",
                rule=f"copied both ways: configs come from {rules.flow.target}, which clusters names first",
            )
        ]
    return [
        *plan_configs(
            pair.source_topic,
            pair.target_topic,
            source=pair.source_configs,
            target=pair.target_configs,
            rules=rules.topics.configs_of(pair.source_topic, observation.target_cluster),
            replication_factor=pair.target.replication_factor,
            last_set=memory.last_set.get(pair.source_topic),
        )
    ]
