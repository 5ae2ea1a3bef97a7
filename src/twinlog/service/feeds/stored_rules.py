"""Reads the rules of a flow that configsync stored, for a service that starts while configsync is away.

They are the record `["rules"]` of `mm2-configsync.<A>.internal`, which only configsync writes.
"""

import json
from collections.abc import Mapping

from twinlog.errors import KafkaError, WireFormatError
from twinlog.kafka.ports import KafkaCluster, OffsetSpec
from twinlog.kafka.reasons import KafkaReason
from twinlog.kafka.whole_logs import log_bounds, records_to
from twinlog.model import TopicPartition
from twinlog.policy.internal_topics import configsync_topic

_KEY = b'["rules"]'
_VERSION = 1


async def stored_rules(cluster: KafkaCluster, source: str) -> Mapping[str, str]:
    """Configuration keys that differ from the file, as written; empty without changes.

    `cluster` is the flow's target. Raises KafkaError (retriable if a new leader shows less than the log has),
    WireFormatError for a record of a newer version.
    """
    partition = TopicPartition(configsync_topic(source), 0)
    try:
        start, end = await log_bounds(cluster, partition, OffsetSpec.LATEST)
    except KafkaError as error:
        if error.reason == KafkaReason.TOPIC_UNKNOWN:
            return {}
        raise
    newest: bytes | None = None
    async with cluster.reader() as reader:
        async for record in records_to(reader, partition, start, end):
            if record.key == _KEY:
                newest = record.value
    return {} if newest is None else _values(newest)


def _values(raw: bytes) -> Mapping[str, str]:
    """Raises WireFormatError."""
    try:
        document = json.loads(raw)
        version = document["version"]
        values = {str(key): str(value) for key, value in document["values"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise WireFormatError("the stored rules are not a record of configsync") from error
    if version != _VERSION:
        raise WireFormatError(
            f"the stored rules are of version {version}, this Twinlog knows {_VERSION}", reason="WIRE_VERSION"
        )
    return values
