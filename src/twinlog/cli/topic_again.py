"""Deletes a topic and recreates it, empty, with the same settings."""

import asyncio
from dataclasses import dataclass

from twinlog.errors import KafkaError, TransientKafkaError
from twinlog.kafka.ports import ConfigSource, KafkaCluster, NewTopic
from twinlog.service.waiting import wait_or_stop

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
