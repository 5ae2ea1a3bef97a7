"""Deletes a topic and creates it again, empty, with its own settings."""

import asyncio

from twinlog.errors import KafkaError, TransientKafkaError
from twinlog.kafka.ports import ConfigSource, KafkaCluster, NewTopic
from twinlog.service.waiting import wait_or_stop

_PATIENCE_SECONDS = 120.0
"""For brokers to carry a deletion out."""
_POLL_SECONDS = 0.2
_UNKNOWN, _EXISTS = "TOPIC_UNKNOWN", "TOPIC_EXISTS"


async def recreate_topic(cluster: KafkaCluster, name: str) -> None:
    """Returns when the new one is there. Raises KafkaError; after KAFKA_TIMEOUT the topic may be gone."""
    before = (await cluster.describe_topics([name]))[name]
    if isinstance(before, KafkaError):
        raise before
    entries = (await cluster.describe_topic_configs([name]))[name]
    if isinstance(entries, KafkaError):
        raise entries
    configs = {
        entry.name: entry.value
        for entry in entries
        if entry.source is ConfigSource.TOPIC and entry.value is not None
    }
    new = NewTopic(
        name=name,
        partition_count=before.partition_count,
        replication_factor=before.replication_factor,
        configs=configs,
    )
    _require((await cluster.delete_topics([name]))[name])
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await _create(cluster, new, before.topic_id)
    except TimeoutError:
        raise TransientKafkaError(
            f"topic {name} was deleted, and is not there again after {_PATIENCE_SECONDS:g} s",
            reason="KAFKA_TIMEOUT",
            metadata={"topic": name},
        ) from None


async def _create(cluster: KafkaCluster, new: NewTopic, old_id: str) -> None:
    """While the old one is being deleted its name is taken; configsync may be faster than this."""
    while True:
        found = (await cluster.describe_topics([new.name]))[new.name]
        if not isinstance(found, KafkaError) and found.topic_id != old_id:
            return
        if isinstance(found, KafkaError) and found.reason == _UNKNOWN:
            refusal = (await cluster.create_topics([new]))[new.name]
            if refusal is not None and refusal.reason != _EXISTS:
                raise refusal
        await wait_or_stop(asyncio.Event(), _POLL_SECONDS)


def _require(refusal: KafkaError | None) -> None:
    if refusal is not None:
        raise refusal
