"""Creates the compacted topics in which MM2 and Twinlog keep their records, and keeps those small that are
read whole."""

import logging
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Final

from twinlog.errors import KafkaError, required
from twinlog.kafka.ports import ConfigAdmin, ConfigChange, ConfigEntry, ConfigSource, NewTopic, TopicAdmin
from twinlog.kafka.reasons import KafkaReason

COMPACTED_SOON: Final[Mapping[str, str]] = {
    "segment.bytes": str(16 << 20),
    "segment.ms": "600000",
    "min.cleanable.dirty.ratio": "0.2",
    "delete.retention.ms": "3600000",
}
"""With these, a topic has what was written in the last minutes besides the newest record of each key. The
newest segment is never compacted, and has a gigabyte or a week by Kafka's defaults. Tombstones and the
markers of transactions stay for a day by default, and those of a flow with many rounds are many."""

_ASSUME_THERE = frozenset({"UNSUPPORTED_VERSION", "TOPIC_UNAUTHORIZED", "CLUSTER_UNAUTHORIZED"})
"""Reasons after which MM2 continues: somebody else created the topic, or the broker will."""
_SETTING_REFUSED = frozenset({"CONFIG_REFUSED", "POLICY_VIOLATION"})

_log = logging.getLogger(__name__)


class TopicMaking(StrEnum):
    CREATED = "CREATED"
    EXISTED = "EXISTED"
    """It existed, and was not changed, whatever its settings."""
    ASSUMED = "ASSUMED"
    """No right to create it; its use will show whether it exists."""


async def ensure_compacted_topic(
    admin: TopicAdmin,
    name: str,
    *,
    replication_factor: int,
    partition_count: int = 1,
    configs: Mapping[str, str] | None = None,
    is_read_whole: bool = False,
) -> TopicMaking:
    """Create `name` with cleanup.policy=compact unless it exists; never change an existing one.

    `replication_factor` -1 = the broker's default. `is_read_whole`: it gets the settings of `COMPACTED_SOON`
    where neither `configs` nor the cluster stands against it. Raises KafkaError except for the refusals that
    MM2 tolerates (no right to create, old broker).
    """

    def topic(settings: Mapping[str, str]) -> NewTopic:
        return NewTopic(
            name=name,
            partition_count=partition_count,
            replication_factor=replication_factor,
            configs={"cleanup.policy": "compact", **settings, **(configs or {})},
        )

    described = (await admin.describe_topics([name]))[name]
    if not isinstance(described, KafkaError):
        return TopicMaking.EXISTED
    error = (await admin.create_topics([topic(COMPACTED_SOON if is_read_whole else {})]))[name]
    if is_read_whole and error is not None and error.reason in _SETTING_REFUSED:
        error = (await admin.create_topics([topic({})]))[name]
    if error is None:
        return TopicMaking.CREATED
    if error.reason == KafkaReason.TOPIC_EXISTS:
        return TopicMaking.EXISTED
    if error.reason in _ASSUME_THERE:
        return TopicMaking.ASSUMED
    raise error


def missing_settings(entries: Sequence[ConfigEntry]) -> dict[str, str]:
    """The settings by which an existing topic is compacted soon, and that it has not: neither of its own,
    which somebody chose, nor by the brokers' defaults. Pure."""
    found = {entry.name: entry for entry in entries}
    return {
        name: text
        for name, text in COMPACTED_SOON.items()
        if (entry := found.get(name)) is not None
        and entry.source is not ConfigSource.TOPIC
        and not _is_at_most(entry.value, float(text))
    }


async def compact_soon(admin: ConfigAdmin, name: str, *, leave: Collection[str] = ()) -> None:
    """Give an existing topic of ours, which MirrorMaker 2 or an earlier release has created, the settings
    that it has not, except for those of `leave`. Without the right, or where the cluster refuses one, it
    stays as it is: that is a warning in the log, and never an error."""
    try:
        entries = (await admin.describe_topic_configs([name], keys=list(COMPACTED_SOON)))[name]
        for key, value in missing_settings(required(entries)).items():
            if key not in leave:
                changes = {name: [ConfigChange(name=key, value=value)]}
                refused = (await admin.alter_topic_configs(changes))[name]
                # One by one: a cluster may refuse one value and take the others.
                if refused is not None and refused.reason not in _SETTING_REFUSED:
                    raise refused
    except KafkaError as error:
        words = "topic %s may be compacted late, and every start reads all of it: %s: %s"
        _log.warning(words, name, error.reason, error)


def _is_at_most(value: str | None, most: float) -> bool:
    """Unknown values count as right."""
    try:
        return value is None or float(value) <= most
    except ValueError:
        return True
