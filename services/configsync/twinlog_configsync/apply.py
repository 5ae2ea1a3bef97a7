"""Carries a plan out, each action on its own: what one topic is refused never stops another."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from twinlog.clock import Clock
from twinlog.errors import KafkaError
from twinlog.kafka.ports import KafkaCluster, NewTopic
from twinlog.service.runtime import wait_or_stop
from twinlog_configsync.actions import (
    Action,
    ConfigAction,
    CreateTopic,
    DeleteConfig,
    GrowPartitions,
    SetConfig,
    TopicAction,
)
from twinlog_configsync.config_rules import change_of
from twinlog_configsync.observation import Observation
from twinlog_configsync.observe import Observer
from twinlog_configsync.plan import Plan

_TOPIC_EXISTS: Final = "TOPIC_EXISTS"
_CONFIRM_SECONDS: Final = 10.0
_CONFIRM_POLL_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    action: Action
    error: KafkaError


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a plan."""

    applied: Sequence[Action] = ()
    refused: Sequence[Refusal] = ()
    observation: Observation
    """As planned on, with a fresh look at every target topic that was touched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Applier:
    target: KafkaCluster
    observer: Observer
    clock: Clock

    async def carry_out(self, plan: Plan, observation: Observation, stop: asyncio.Event) -> Outcome:
        """Topics first, then their configs; returns when the target shows the topics, or after 10 s.

        Raises KafkaError when the target as a whole does not answer; then any of the actions may have been
        done, and the next plan holds what is left.
        """
        topics = [action for action in plan.actions if isinstance(action, CreateTopic | GrowPartitions)]
        configs = [action for action in plan.actions if isinstance(action, SetConfig | DeleteConfig)]
        refused = await self._topics(topics)
        if topics:
            observation = await self._confirm(observation, _without(topics, refused), stop)
        if configs:
            refused += await self._configs(configs)
            altered = {action.source_topic for action in configs}
            observation = await self.observer.targets_again(observation, altered)
        return Outcome(applied=_without(plan.changes, refused), refused=refused, observation=observation)

    async def _topics(self, actions: Sequence[TopicAction]) -> list[Refusal]:
        """A topic that exists already was created by somebody else in the meantime: that is what was
        wanted.
        """
        creations = {action.target_topic: action for action in actions if isinstance(action, CreateTopic)}
        growths = {action.target_topic: action for action in actions if isinstance(action, GrowPartitions)}
        created = await self.target.create_topics([_new_topic(action) for action in creations.values()])
        grown = await self.target.create_partitions(
            {name: action.to_count for name, action in growths.items()}
        )
        by_target: dict[str, TopicAction] = {**creations, **growths}
        return [
            Refusal(action=by_target[name], error=error)
            for name, error in {**created, **grown}.items()
            if error is not None and error.reason != _TOPIC_EXISTS
        ]

    async def _configs(self, actions: Sequence[ConfigAction]) -> list[Refusal]:
        """Kafka takes or refuses all changes of a topic together: after a refusal they are tried one by
        one.
        """
        by_topic: dict[str, list[ConfigAction]] = {}
        for action in actions:
            by_topic.setdefault(action.target_topic, []).append(action)
        answers = await self.target.alter_topic_configs(
            {topic: [change_of(action) for action in group] for topic, group in by_topic.items()}
        )
        refused: list[Refusal] = []
        for topic, group in by_topic.items():
            error = answers[topic]
            if error is None:
                continue
            if error.retriable or len(group) == 1:
                refused += [Refusal(action=action, error=error) for action in group]
            else:
                refused += await self._configs_one_by_one(topic, group)
        return refused

    async def _configs_one_by_one(self, topic: str, actions: Sequence[ConfigAction]) -> list[Refusal]:
        refused: list[Refusal] = []
        for action in actions:
            error = (await self.target.alter_topic_configs({topic: [change_of(action)]}))[topic]
            if error is not None:
                refused.append(Refusal(action=action, error=error))
        return refused

    async def _confirm(
        self, observation: Observation, done: Collection[TopicAction], stop: asyncio.Event
    ) -> Observation:
        """Look again until the target shows all that was done, for 10 s at most."""
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
    if isinstance(target, KafkaError):
        return False
    wanted = action.to_count if isinstance(action, GrowPartitions) else 1
    return target.partition_count >= wanted


_Kind = TypeVar("_Kind", bound=Action)


def _without(actions: Sequence[_Kind], refused: Collection[Refusal]) -> list[_Kind]:
    return [action for action in actions if not any(refusal.action is action for refusal in refused)]
