"""What there is to do for a flow, as one value: actions in the order in which they are carried out. Pure."""

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass

from twinlog.errors import KafkaError
from twinlog.model import Flow
from twinlog_configsync.actions import Action, Skip
from twinlog_configsync.config_rules import plan_configs
from twinlog_configsync.observation import Observation, TopicPair
from twinlog_configsync.schedule import Scope
from twinlog_configsync.topic_plan import TopicRules, plan_topics

LastSet = Mapping[str, Mapping[str, str]]
"""By source topic: the configs that Twinlog last brought its counterpart to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    flow: Flow
    scopes: frozenset[Scope]
    actions: tuple[Action, ...]

    @property
    def plan_id(self) -> str:
        """Equal exactly when the actions are: what they do, to what, from which value, by which rule."""
        content = [[type(action).__name__, asdict(action)] for action in self.actions]
        text = json.dumps([str(self.flow), sorted(self.scopes), content], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    @property
    def changes(self) -> tuple[Action, ...]:
        """Without what is left out on purpose."""
        return tuple(action for action in self.actions if not isinstance(action, Skip))


def make_plan(
    flow: Flow,
    observation: Observation,
    rules: TopicRules,
    *,
    scopes: Collection[Scope],
    last_set: LastSet,
) -> Plan:
    """Everything that is due. The order of what was seen makes no difference."""
    actions: list[Action] = []
    if Scope.TOPICS in scopes:
        actions += plan_topics(observation, rules)
    if Scope.CONFIGS in scopes:
        for _, pair in sorted(observation.pairs.items()):
            actions += _plan_configs(pair, observation, rules, last_set)
    return Plan(flow=flow, scopes=frozenset(scopes), actions=tuple(actions))


def _plan_configs(
    pair: TopicPair, observation: Observation, rules: TopicRules, last_set: LastSet
) -> list[Action]:
    """Nothing for a topic that is on one side only, or whose configs cannot be read."""
    if isinstance(pair.source, KafkaError) or isinstance(pair.target, KafkaError):
        return []
    if isinstance(pair.source_configs, KafkaError) or isinstance(pair.target_configs, KafkaError):
        return []
    return [
        *plan_configs(
            pair.source_topic,
            pair.target_topic,
            source=pair.source_configs,
            target=pair.target_configs,
            rules=rules.configs_on(observation.target_cluster),
            replication_factor=pair.target.replication_factor,
            last_set=last_set.get(pair.source_topic),
        )
    ]
