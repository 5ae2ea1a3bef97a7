"""Reads about groups in which a single failed answer is an error."""

from collections.abc import Collection, Mapping

from twinlog.errors import KafkaError
from twinlog.kafka.ports import CommittedOffset, GroupAdmin
from twinlog.model import TopicPartition


async def group_states(admin: GroupAdmin, groups: Collection[str]) -> dict[str, str]:
    """Return the state of each group. Raises KafkaError if one of them cannot be read."""
    states: dict[str, str] = {}
    for group, description in (await admin.describe_groups(groups) if groups else {}).items():
        if isinstance(description, KafkaError):
            raise description
        states[group] = description.state
    return states


async def readable_offsets(
    admin: GroupAdmin, groups: Collection[str]
) -> dict[str, Mapping[TopicPartition, CommittedOffset]]:
    """Return all committed offsets of each group. Raises KafkaError if those of one group cannot be read."""
    held: dict[str, Mapping[TopicPartition, CommittedOffset]] = {}
    for group, offsets in (await admin.group_offsets(groups) if groups else {}).items():
        if isinstance(offsets, KafkaError):
            raise offsets
        held[group] = offsets
    return held
