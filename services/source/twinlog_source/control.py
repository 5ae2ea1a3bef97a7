"""The flow's own state beside the positions: who owns it, how many slots it ever used, what its topics were.

Records of `mm2-offsets.<A>.internal` under a connector name of our own, which Connect leaves alone. Each
key names one fact, so compaction keeps the newest of every fact; a tombstone takes it back.
"""

from dataclasses import dataclass, field

from twinlog.wire.connect_json import JsonValue
from twinlog.wire.source_offset import (
    CONTROL_CONNECTOR,
    ConnectKey,
    decode_connect_key,
    decode_document,
    encode_connect_key,
    encode_document,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerMark:
    """The process that copies the flow now."""

    instance: str
    slots: int
    """The most slots that any owner used: their transactional ids are fenced by the next one."""
    renewed_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMark:
    """A source topic as it was when its positions began."""

    topic: str
    topic_id: str
    """Kafka's id: another one means that the positions are of a topic that is gone."""
    known_partitions: int
    """Partitions it had when the flow first saw it: later ones are copied from their earliest record."""
    target_topic_id: str = ""
    """Id of the copy: another one means that what was copied is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseMark:
    """An operator's pause of a flow (no topic), a topic (no partition) or a partition."""

    topic: str | None
    partition: int | None
    by: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottleMark:
    """A limit of a flow (no topic) or a topic."""

    topic: str | None
    bytes_per_second: int


Fact = OwnerMark | TopicMark | PauseMark | ThrottleMark


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlRecord:
    """One record: which fact, and what it says now (None = taken back)."""

    kind: str
    topic: str | None
    partition: int | None
    fact: Fact | None


@dataclass(slots=True, kw_only=True)
class ControlState:
    """All facts as read so far, newest of each."""

    owner: OwnerMark | None = None
    topics: dict[str, TopicMark] = field(default_factory=dict)
    pauses: dict[tuple[str | None, int | None], PauseMark] = field(default_factory=dict)
    throttles: dict[str | None, int] = field(default_factory=dict)

    def apply(self, record: ControlRecord) -> None:
        match record.fact:
            case OwnerMark() as owner:
                self.owner = owner
            case TopicMark() as mark:
                self.topics[mark.topic] = mark
            case PauseMark() as pause:
                self.pauses[pause.topic, pause.partition] = pause
            case ThrottleMark() as throttle:
                self.throttles[throttle.topic] = throttle.bytes_per_second
            case None if record.kind == "pause":
                self.pauses.pop((record.topic, record.partition), None)
            case None if record.kind == "throttle":
                self.throttles.pop(record.topic, None)
            case None:
                pass


def fact_record(source_alias: str, fact: Fact) -> tuple[bytes, bytes]:
    """Key and value that state a fact."""
    match fact:
        case OwnerMark():
            key = control_key(source_alias, "owner")
            value: dict[str, JsonValue] = {
                "instance": fact.instance,
                "slots": fact.slots,
                "renewed_at_ms": fact.renewed_at_ms,
            }
        case TopicMark():
            key = control_key(source_alias, "topic", fact.topic)
            value = {
                "topic_id": fact.topic_id,
                "known_partitions": fact.known_partitions,
                "target_topic_id": fact.target_topic_id,
            }
        case PauseMark():
            key = control_key(source_alias, "pause", fact.topic, fact.partition)
            value = {"by": fact.by, "at_ms": fact.at_ms}
        case ThrottleMark():
            key = control_key(source_alias, "throttle", fact.topic)
            value = {"bytes_per_second": fact.bytes_per_second}
    return key, encode_document(value)


def control_key(
    source_alias: str, kind: str, topic: str | None = None, partition: int | None = None
) -> bytes:
    """The key of a fact, also for its tombstone."""
    subject: dict[str, JsonValue] = {"cluster": source_alias, "kind": kind}
    if topic is not None:
        subject["topic"] = topic
    if partition is not None:
        subject["partition"] = partition
    return encode_connect_key(ConnectKey(connector=CONTROL_CONNECTOR, partition=subject))


def parse_control(source_alias: str, key: bytes | None, value: bytes | None) -> ControlRecord | None:
    """Read a fact of a source cluster; None for every other record. Raises WireFormatError for a broken
    value."""
    decoded = decode_connect_key(key)
    if decoded is None or decoded.connector != CONTROL_CONNECTOR:
        return None
    subject = decoded.partition
    kind, topic, partition = subject.get("kind"), subject.get("topic"), subject.get("partition")
    if subject.get("cluster") != source_alias or not isinstance(kind, str):
        return None
    if not isinstance(topic, str | None) or not isinstance(partition, int | None):
        return None
    fact = None if value is None else _fact(kind, topic, partition, decode_document(value) or {})
    if value is not None and fact is None:
        return None
    return ControlRecord(kind=kind, topic=topic, partition=partition, fact=fact)


def _fact(kind: str, topic: str | None, partition: int | None, document: dict[str, object]) -> Fact | None:
    """None for a fact that this version does not know."""
    match kind, topic, document:
        case "owner", None, {"instance": str(instance), "slots": int(slots), "renewed_at_ms": int(at)}:
            return OwnerMark(instance=instance, slots=slots, renewed_at_ms=at)
        case "topic", str(), {"topic_id": str(topic_id), "known_partitions": int(count)}:
            target_id = document.get("target_topic_id")
            return TopicMark(
                topic=topic,
                topic_id=topic_id,
                known_partitions=count,
                target_topic_id=target_id if isinstance(target_id, str) else "",
            )
        case "pause", _, {"by": str(by), "at_ms": int(at)}:
            return PauseMark(topic=topic, partition=partition, by=by, at_ms=at)
        case "throttle", _, {"bytes_per_second": int(limit)}:
            return ThrottleMark(topic=topic, bytes_per_second=limit)
        case _:
            return None
