"""Carries out a plan. Each action is independent: a refusal for one topic never stops another."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final, TypeVar

from twinlog.acl_rights import DENY, limits
from twinlog.clock import Clock
from twinlog.errors import KafkaError
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.errors import from_code
from twinlog.kafka.ports import AclAdmin, AclBinding, KafkaCluster, NewTopic, QuotaEntity
from twinlog.service.waiting import wait_or_stop
from twinlog_configsync.clusters.observe import Observer
from twinlog_configsync.model.actions import (
    AclAction,
    Applied,
    Change,
    ConfigAction,
    CreateAcl,
    CreateTopic,
    DeleteAcl,
    DeleteConfig,
    DeleteQuota,
    DeleteTopic,
    GrowPartitions,
    QuotaAction,
    Refusal,
    SetConfig,
    SetQuota,
    TopicAction,
)
from twinlog_configsync.model.observation import TOPIC_UNKNOWN, Observation, World, is_absent
from twinlog_configsync.planning.config_rules import change_of
from twinlog_configsync.planning.plan import Plan

# Carries out the ACL part of a plan. A refused DENY holds back every ALLOW that it limits.


async def apply_acls(target: AclAdmin, actions: Sequence[AclAction]) -> list[tuple[AclAction, KafkaError]]:
    """Create and delete in the plan's order; return what was refused or held back.

    Raises KafkaError when the target as a whole does not answer.
    """
    refused: list[tuple[AclAction, KafkaError]] = []
    for (creates, denies), run in groupby(actions, key=_phase):
        batch: list[AclAction] = []
        for action in run:
            blocker = _blocker(action.binding, refused) if creates != denies else None
            if blocker is None:
                batch.append(action)
            else:
                refused.append((action, blocker))
        bindings = [action.binding for action in batch]
        answers = await (target.create_acls(bindings) if creates else target.delete_acls(bindings))
        for action in batch:
            error = answers[action.binding]
            if error is not None:
                refused.append((action, error))
    return refused


def _phase(action: AclAction) -> tuple[bool, bool]:
    """Whether the action creates, and whether it is about a DENY: creating ALLOW and deleting DENY widen
    rights."""
    return isinstance(action, CreateAcl), action.binding.permission == DENY


def _blocker(binding: AclBinding, refused: Sequence[tuple[AclAction, KafkaError]]) -> KafkaError | None:
    """The refusal because of which this ACL must not widen rights."""
    for action, error in refused:
        other = action.binding
        denial, allowance = (other, binding) if other.permission == DENY else (binding, other)
        if denial.permission != allowance.permission and limits(denial, allowance):
            return error
    return None


_AS_WANTED: Final = {CreateTopic: "TOPIC_EXISTS", DeleteTopic: TOPIC_UNKNOWN}
"""Refusals which mean that somebody else has already done it."""
_CONFIG_REFUSED: Final = "CONFIG_REFUSED"
_TIERED: Final = frozenset(
    {
        "remote.storage.enable",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "local.retention.ms",
        "local.retention.bytes",
    }
)
"""Properties that brokers without tiered storage know and refuse."""
_CONFIRM_SECONDS: Final = 10.0
_CONFIRM_POLL_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Applier:
    target: KafkaCluster
    observer: Observer
    clock: Clock

    async def carry_out(self, plan: Plan, world: World, stop: asyncio.Event) -> Applied:
        """Apply topics first, then ACLs, quotas and configs; return when the target shows the topics, or
        after 10 s.

        Raises KafkaError when the target as a whole does not answer. Then any of the actions may have been
        done, and the next plan has the rest.
        """
        topics = [
            action
            for action in plan.changes
            if isinstance(action, CreateTopic | GrowPartitions | DeleteTopic)
        ]
        acls = [action for action in plan.changes if isinstance(action, CreateAcl | DeleteAcl)]
        configs = [action for action in plan.changes if isinstance(action, SetConfig | DeleteConfig)]
        observation = world.topics
        refused: list[Refusal[Change]] = [*await self._topics(topics)]
        if topics:
            observation = await self._confirm(observation, _without(topics, refused), stop)
        refused += [
            Refusal(action=action, error=error) for action, error in await apply_acls(self.target, acls)
        ]
        refused += await self._quotas(
            [action for action in plan.changes if isinstance(action, SetQuota | DeleteQuota)]
        )
        if configs:
            refused += await self._configs(configs)
            altered = {action.source_topic for action in configs}
            observation = await self.observer.targets_again(observation, altered)
        return Applied(
            applied=_without(plan.changes, refused),
            refused=refused,
            world=replace(world, topics=observation),
        )

    async def _topics(self, actions: Sequence[TopicAction]) -> list[Refusal[TopicAction]]:
        """A topic that already exists was created by somebody else meanwhile, which counts as done; so does
        one that is already deleted."""
        by_target = {action.target_topic: action for action in actions}
        answers: dict[str, KafkaError | None] = {}
        answers |= await self._created([action for action in actions if isinstance(action, CreateTopic)])
        answers |= await self.target.create_partitions(
            {action.target_topic: action.to_count for action in actions if isinstance(action, GrowPartitions)}
        )
        answers |= await self._deleted([action for action in actions if isinstance(action, DeleteTopic)])
        return [
            Refusal(action=by_target[name], error=error)
            for name, error in answers.items()
            if error is not None and error.reason != _AS_WANTED.get(type(by_target[name]))
        ]

    async def _created(self, actions: Sequence[CreateTopic]) -> dict[str, KafkaError | None]:
        """A topic with tiered storage is created without it if the target has none; its records are copied
        all the same. The next sync of configs reports the missing property."""
        answers = dict(await self.target.create_topics([_new_topic(action) for action in actions]))
        refused = [
            action
            for action in actions
            if (error := answers[action.target_topic]) is not None
            and error.reason == _CONFIG_REFUSED
            and not _TIERED.isdisjoint(action.configs)
        ]
        without = [
            replace(
                action,
                configs={name: value for name, value in action.configs.items() if name not in _TIERED},
            )
            for action in refused
        ]
        return answers | dict(await self.target.create_topics([_new_topic(action) for action in without]))

    async def _deleted(self, actions: Sequence[DeleteTopic]) -> dict[str, KafkaError | None]:
        """Topics are deleted by name, and somebody may have created another one since the plan was made."""
        found = await self.target.describe_topics([action.target_topic for action in actions])
        answers: dict[str, KafkaError | None] = {}
        for action in actions:
            topic = found[action.target_topic]
            if isinstance(topic, KafkaError):
                answers[action.target_topic] = topic
            elif topic.topic_id != action.target_topic_id:
                error = from_code(ErrorCode.inconsistent_topic_id, f"delete {action.target_topic}")
                answers[action.target_topic] = error
        return answers | dict(await self.target.delete_topics(found.keys() - answers.keys()))

    async def _quotas(self, actions: Sequence[QuotaAction]) -> list[Refusal[QuotaAction]]:
        """Kafka accepts or refuses all changes of an entity together."""
        by_entity: dict[QuotaEntity, list[QuotaAction]] = {}
        for action in actions:
            by_entity.setdefault(action.entity, []).append(action)
        answers = await self.target.alter_client_quotas(
            {
                entity: {each.key: each.value if isinstance(each, SetQuota) else None for each in group}
                for entity, group in by_entity.items()
            }
        )
        return [
            Refusal(action=action, error=error)
            for entity, group in by_entity.items()
            if (error := answers[entity]) is not None
            for action in group
        ]

    async def _configs(self, actions: Sequence[ConfigAction]) -> list[Refusal[ConfigAction]]:
        """Kafka accepts or refuses all changes of a topic together; after a refusal they are tried one by
        one."""
        by_topic: dict[str, list[ConfigAction]] = {}
        for action in actions:
            by_topic.setdefault(action.target_topic, []).append(action)
        answers = await self.target.alter_topic_configs(
            {topic: [change_of(action) for action in group] for topic, group in by_topic.items()}
        )
        refused: list[Refusal[ConfigAction]] = []
        for topic, group in by_topic.items():
            error = answers[topic]
            if error is None:
                continue
            if error.retriable or len(group) == 1:
                refused += [Refusal(action=action, error=error) for action in group]
            else:
                refused += await self._configs_one_by_one(topic, group)
        return refused

    async def _configs_one_by_one(
        self, topic: str, actions: Sequence[ConfigAction]
    ) -> list[Refusal[ConfigAction]]:
        refused: list[Refusal[ConfigAction]] = []
        for action in actions:
            error = (await self.target.alter_topic_configs({topic: [change_of(action)]}))[topic]
            if error is not None:
                refused.append(Refusal(action=action, error=error))
        return refused

    async def _confirm(
        self, observation: Observation, done: Collection[TopicAction], stop: asyncio.Event
    ) -> Observation:
        """Read the target again until it shows everything that was done, for at most 10 s."""
        deadline = self.clock.monotonic() + _CONFIRM_SECONDS
        while True:
            observation = await self.observer.targets_again(
                observation, [action.source_topic for action in done]
            )
            if all(_is_visible(action, observation) for action in done):
                return observation
            if self.clock.monotonic() >= deadline or await wait_or_stop(stop, _CONFIRM_POLL_SECONDS):
                return observation


def _new_topic(action: CreateTopic) -> NewTopic:
    return NewTopic(
        name=action.target_topic,
        partition_count=action.partition_count,
        replication_factor=action.replication_factor,
        configs=action.configs,
    )


def _is_visible(action: TopicAction, observation: Observation) -> bool:
    target = observation.pairs[action.source_topic].target
    match action:
        case DeleteTopic():
            return is_absent(target)
        case GrowPartitions(to_count=wanted):
            return not isinstance(target, KafkaError) and target.partition_count >= wanted
        case CreateTopic():
            return not isinstance(target, KafkaError)


_Done = TypeVar("_Done", bound=Change)


def _without(actions: Sequence[_Done], refused: Collection[Refusal[Change]]) -> list[_Done]:
    not_done = {id(refusal.action) for refusal in refused}
    return [action for action in actions if id(action) not in not_done]
