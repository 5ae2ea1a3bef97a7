"""`twinlog.copy.until`: where a finite copy ends, as source offsets by topic and partition."""

import json
from collections.abc import Mapping

from twinlog.model import TopicPartition


def until_json(until: Mapping[TopicPartition, int]) -> str:
    """The form in the file and in the tasks: `{"orders": {"0": 120}}`."""
    told: dict[str, dict[str, int]] = {}
    for partition, offset in sorted(until.items()):
        told.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return json.dumps(told, separators=(",", ":"))


def parse_until(text: str) -> dict[TopicPartition, int] | None:
    """None for an empty text. Raises ValueError."""
    if not text:
        return None
    try:
        return {
            TopicPartition(topic, int(number)): int(offset)
            for topic, partitions in json.loads(text).items()
            for number, offset in partitions.items()
        }
    except (AttributeError, TypeError) as error:
        raise ValueError(str(error)) from error
