"""Reads the rules of a flow that configsync stored, for a service that starts while configsync is away.

They are the record `["rules"]` of `mm2-configsync.<A>.internal`, which only configsync writes.
"""

import json
from collections.abc import Mapping

from twinlog.errors import FatalKafkaError, KafkaError, TransientKafkaError, WireFormatError
from twinlog.kafka.ports import KafkaCluster, OffsetSpec
from twinlog.model import TopicPartition
from twinlog.policy.internal_topics import configsync_topic

_KEY = b'["rules"]'
_VERSION = 1
_FETCH_WAIT_SECONDS = 0.5
_UNKNOWN_TOPIC = "TOPIC_UNKNOWN"
_OUT_OF_RANGE = "OFFSET_OUT_OF_RANGE"


async def stored_rules(cluster: KafkaCluster, source: str) -> Mapping[str, str]:
    """Configuration keys that differ from the file, as written; empty without changes.

    `cluster` is the flow's target. Raises KafkaError (retriable if a new leader shows less than the log has),
    WireFormatError for a record of a newer version.
    """
    partition = TopicPartition(configsync_topic(source), 0)
    bounds: list[int] = []
    for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST):
        answer = (await cluster.list_offsets(spec, [partition]))[partition]
        if isinstance(answer, KafkaError):
            if answer.reason == _UNKNOWN_TOPIC:
                return {}
            raise answer
        bounds.append(answer)
    position, end = bounds
    newest: bytes | None = None
    async with cluster.reader() as reader:
        while position < end:
            try:
                fetched = await reader.fetch(partition, position, max_wait_seconds=_FETCH_WAIT_SECONDS)
            except FatalKafkaError as error:
                if error.reason == _OUT_OF_RANGE:
                    raise _shows_less(partition, position, end) from error
                raise
            for record in fetched.records:
                if record.key == _KEY:
                    newest = record.value
            if fetched.next_offset <= position:
                raise _shows_less(partition, position, end)
            position = fetched.next_offset
    return {} if newest is None else _values(newest)


def _shows_less(partition: TopicPartition, position: int, end: int) -> TransientKafkaError:
    return TransientKafkaError(
        f"{partition.topic} returned no records from offset {position} on, although it ends at {end}",
        metadata={"topic": partition.topic, "offset": str(position)},
    )


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
