"""Carries actions out, each on its own: what one topic is refused never stops another."""

from collections.abc import Collection, Mapping

from twinlog.errors import KafkaError
from twinlog.kafka.ports import KafkaCluster, NewTopic
from twinlog_configsync.actions import (
    CreateTopic,
    GrowPartitions,
    TopicAction,
)

_TOPIC_EXISTS = "TOPIC_EXISTS"


async def apply_topics(target: KafkaCluster, actions: Collection[TopicAction]) -> Mapping[str, KafkaError]:
    """Create and grow; return what was refused, by source topic.

    A topic that exists already was created by somebody else in the meantime: that is what was wanted. Raises
    KafkaError when the target as a whole does not answer; then any of the actions may have been done.
    """
    creations = {action.target_topic: action for action in actions if isinstance(action, CreateTopic)}
    growths = {action.target_topic: action for action in actions if isinstance(action, GrowPartitions)}
    refused: dict[str, KafkaError] = {}
    if creations:
        topics = [
            NewTopic(
                name=action.target_topic,
                partition_count=action.partition_count,
                replication_factor=action.replication_factor,
                configs=action.configs,
            )
            for action in creations.values()
        ]
        for name, error in (await target.create_topics(topics)).items():
            if error is not None and error.reason != _TOPIC_EXISTS:
                refused[creations[name].source_topic] = error
    if growths:
        counts = {name: action.to_count for name, action in growths.items()}
        for name, error in (await target.create_partitions(counts)).items():
            if error is not None:
                refused[growths[name].source_topic] = error
    return refused
