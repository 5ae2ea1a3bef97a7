"""Decodes one record of an internal topic into MM2's line and a JSON document. Pure."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from operator import attrgetter
from typing import Any

from twinlog.errors import ConfigError, WireFormatError
from twinlog.model import Record
from twinlog.policy import ReplicationPolicy, record_kind
from twinlog.wire.checkpoint import decode_checkpoint
from twinlog.wire.formatters import format_checkpoint, format_heartbeat, format_offset_sync
from twinlog.wire.heartbeat import decode_heartbeat
from twinlog.wire.offset_sync import decode_offset_sync
from twinlog.wire.source_offset import decode_connect_key, decode_source_offset, decode_source_offset_key


class TopicKind(StrEnum):
    """The format of a topic: the three binary formats, Connect's offsets, and Twinlog's own JSON."""

    OFFSET_SYNC = "offset-sync"
    CHECKPOINT = "checkpoint"
    HEARTBEAT = "heartbeat"
    POSITION = "position"
    JSON = "json"
    """`mm2-configsync.<A>.internal` and `mm2-failover.<A>.internal`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    line: str
    fields: dict[str, Any]


def kind_of(topic: str, policies: Iterable[ReplicationPolicy]) -> TopicKind:
    """The format of a topic, by its name. Raises ConfigError when no policy knows it."""
    if topic.startswith("mm2-offsets."):
        return TopicKind.POSITION
    if topic.startswith(("mm2-configsync.", "mm2-failover.")):
        return TopicKind.JSON
    for policy in policies:
        found = record_kind(policy, topic)
        if found is not None:
            return TopicKind[found.name]
    raise ConfigError(
        f"{topic} is not the name of an internal topic (mm2-offset-syncs.*.internal, *.checkpoints.internal,"
        " heartbeats, mm2-offsets.*.internal, mm2-configsync.*.internal, mm2-failover.*.internal): say what"
        " it holds with --kind",
        metadata={"topic": topic},
    )


_PLACE = {"topic": "partition.topic", "partition": "partition.partition"}
_OFFSETS = {name: name for name in ("upstream_offset", "downstream_offset")}


def _fields(row: Any, paths: Mapping[str, str]) -> dict[str, Any]:
    return {name: attrgetter(path)(row) for name, path in paths.items()}


def decode(kind: TopicKind, record: Record) -> Decoded:
    """Raises WireFormatError when the record does not have that format."""
    match kind:
        case TopicKind.OFFSET_SYNC:
            sync = decode_offset_sync(record.key, record.value)
            return Decoded(line=format_offset_sync(sync), fields=_fields(sync, _PLACE | _OFFSETS))
        case TopicKind.CHECKPOINT:
            checkpoint = decode_checkpoint(record.key, record.value)
            paths = {"group": "group", **_PLACE, **_OFFSETS, "metadata": "metadata"}
            return Decoded(line=format_checkpoint(checkpoint), fields=_fields(checkpoint, paths))
        case TopicKind.HEARTBEAT:
            beat = decode_heartbeat(record.key, record.value)
            return Decoded(line=format_heartbeat(beat), fields=asdict(beat))
        case TopicKind.POSITION:
            return _position(record)
        case TopicKind.JSON:
            return _document(record)


def _position(record: Record) -> Decoded:
    """MM2 has no formatter for these: a line in the style of the others. The copy continues at
    `nextOffset`."""
    key = decode_source_offset_key(record.key)
    if key is not None:
        next_offset = decode_source_offset(record.value)
        where = f"cluster={key.cluster}, topicPartition={key.partition}"
        return Decoded(
            line=f"SourceOffset{{{where}, nextOffset={next_offset}}}",
            fields={
                "cluster": key.cluster,
                "topic": key.partition.topic,
                "partition": key.partition.partition,
                "next_offset": next_offset,
            },
        )
    other = decode_connect_key(record.key)
    if other is None:
        raise WireFormatError("the key is not one of Connect's offsets topic")
    value = None if record.value is None else record.value.decode("utf-8", "replace")
    whose = dict(other.partition)
    return Decoded(
        line=f"ConnectOffset{{connector={other.connector}, partition={json.dumps(whose)}, value={value}}}",
        fields={"connector": other.connector, "source_partition": whose, "value": value},
    )


def _document(record: Record) -> Decoded:
    """Twinlog's own records: keys and values are JSON; null removes the key."""
    fields = {"key": _parsed(record.key), "value": _parsed(record.value)}
    key, value = (json.dumps(each, ensure_ascii=False) for each in fields.values())
    return Decoded(line=f"Record{{key={key}, value={value}}}", fields=fields)


def _parsed(content: bytes | None) -> Any:
    if content is None:
        return None
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise WireFormatError(f"not JSON: {error}") from error
