"""Recreates the copy of a topic: deletes it, creates it with the same settings, and copies it from the start.

Invariant: from the deletion on, the topic stays paused until its copy begins from the start. If a step fails,
the error says what is left to do.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from twinlog.cli.common.pasteable import pasteable
from twinlog.errors import KafkaError, TransientKafkaError, TwinlogError
from twinlog.kafka.ports import ConfigSource, KafkaCluster, NewTopic
from twinlog.kafka.reasons import KafkaReason
from twinlog.service.waiting import wait_or_stop
from twinlog.verify.repair import Remedy

# Deletes a topic and recreates it, empty, with the same settings.

_PATIENCE_SECONDS = 120.0
"""How long brokers may take to carry a deletion out."""
_POLL_SECONDS = 0.2
_UNKNOWN, _EXISTS = "TOPIC_UNKNOWN", "TOPIC_EXISTS"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicAgain:
    """A topic and its settings, for recreating it."""

    topic: NewTopic
    topic_id: str


async def topic_as_it_is(cluster: KafkaCluster, name: str) -> TopicAgain:
    """Raises KafkaError."""
    found = (await cluster.describe_topics([name]))[name]
    if isinstance(found, KafkaError):
        raise found
    entries = (await cluster.describe_topic_configs([name]))[name]
    if isinstance(entries, KafkaError):
        raise entries
    configs = {
        entry.name: entry.value
        for entry in entries
        if entry.source is ConfigSource.TOPIC and entry.value is not None
    }
    topic = NewTopic(
        name=name,
        partition_count=found.partition_count,
        replication_factor=found.replication_factor,
        configs=configs,
    )
    return TopicAgain(topic=topic, topic_id=found.topic_id)


async def create_again(cluster: KafkaCluster, again: TopicAgain) -> str:
    """Create it after its deletion; return the id of the new topic once it exists. Raises KafkaError, whose
    message has the settings."""
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            return await _create(cluster, again.topic, again.topic_id)
    except (KafkaError, TimeoutError) as error:
        reason = error.reason if isinstance(error, KafkaError) else "KAFKA_TIMEOUT"
        settings = ", ".join(f"{name}={value}" for name, value in sorted(again.topic.configs.items()))
        raise TransientKafkaError(
            f"topic {again.topic.name} was deleted, but could not be created again"
            f" ({reason}): create it with {again.topic.partition_count} partitions, replication factor"
            f" {again.topic.replication_factor}{' and ' + settings if settings else ''}",
            reason=reason,
            metadata={"topic": again.topic.name},
        ) from error


async def _create(cluster: KafkaCluster, new: NewTopic, old_id: str) -> str:
    """While the old topic is being deleted its name is taken; configsync may be faster than this."""
    while True:
        found = (await cluster.describe_topics([new.name]))[new.name]
        if not isinstance(found, KafkaError) and found.topic_id != old_id:
            return found.topic_id
        if isinstance(found, KafkaError) and found.reason == _UNKNOWN:
            refusal = (await cluster.create_topics([new]))[new.name]
            if refusal is not None and refusal.reason != _EXISTS:
                raise refusal
        await wait_or_stop(asyncio.Event(), _POLL_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """The outcome of one remedy."""

    applied: bool
    is_outdated: bool = False
    """The copy has changed since the report, so nothing is known about it."""
    reason: str = ""
    message: str = ""


@dataclass(slots=True)
class Pause:
    """The pause of a topic while it is repaired."""

    left_to_do: Sequence[str] = ()
    """Commands that have to run before the topic may be copied again: the pause stays while there are any."""


async def make_again(
    target: KafkaCluster, remedy: Remedy, pause: Pause, set_to_start: Callable[[str], Awaitable[None]]
) -> Repaired:
    """Call it while the topic is paused. `set_to_start` gets the id of the new topic, and returns when the
    service copies it from the start. Raises KafkaError as long as nothing is changed."""
    again = await topic_as_it_is(target, remedy.target_topic)
    pause.left_to_do = remedy.commands[-2:]
    try:
        refusal = await _delete(target, remedy.target_topic)
        if refusal is not None and not refusal.retriable:
            pause.left_to_do = ()  # It was not deleted.
            return Repaired(applied=False, reason=refusal.reason, message=str(refusal))
        await set_to_start(await create_again(target, again))
    except TwinlogError as error:
        message = f"{error}. {_what_is_left(remedy, pause)}"
        return Repaired(applied=False, reason=error.reason, message=message)
    except BaseException:
        sys.stderr.write(f"{_what_is_left(remedy, pause)}\n")
        raise
    pause.left_to_do = ()
    return Repaired(applied=True)


async def _delete(target: KafkaCluster, topic: str) -> KafkaError | None:
    """Return why the topic was not deleted; a retriable error means that it may have been, or will be
    soon."""
    try:
        refusal = (await target.delete_topics([topic]))[topic]
    except KafkaError as error:
        return error
    return None if refusal is not None and refusal.reason == KafkaReason.TOPIC_UNKNOWN else refusal


def _what_is_left(remedy: Remedy, pause: Pause) -> str:
    return (
        f"{remedy.target_topic} was not fully recreated, and {remedy.topic} stays paused. Once the copy"
        f" exists and is empty, run {', then '.join(map(pasteable, pause.left_to_do))}"
    )
