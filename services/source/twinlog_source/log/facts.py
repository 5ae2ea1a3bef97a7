"""The flow's own state next to the positions: who claimed it, who owns it, how many slots it ever used, what
its topics were, and of each partition what MM2's format cannot express: a position of 0, and what the copied
records prove.

Records of `mm2-offsets.<A>.internal` under a connector name of our own, which Connect leaves alone. Each
key names one fact, so compaction keeps the newest of every fact; a tombstone deletes it.
"""

from dataclasses import dataclass, field

from twinlog.model import TopicPartition
from twinlog.wire.connect_json import JsonValue
from twinlog.wire.source_offset import (
    CONTROL_CONNECTOR,
    ConnectKey,
    decode_connect_key,
    decode_document,
    encode_connect_key,
    encode_document,
)

MOST_SLOTS = 1_024
"""Of a flow, whatever the file says. Each is some transactional ids, which every new owner fences."""
_INT64_LIMIT = 1 << 63


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimFact:
    """Who took the flow over last. Written before the ids of all earlier owners are fenced."""

    instance: str
    at_ms: int
    rules: str = ""
    """Fingerprint of what its file selects (`selection_fingerprint`); empty = not told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerFact:
    """The process that copies the flow now."""

    instance: str
    slots: int
    """The most slots that any owner used: their transactional ids are fenced by the next one."""
    renewed_at_ms: int
    keeps_offsets: bool = True
    """It writes preserved copies as such; a version that does not know of them continues them as
    translated ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFact:
    """A source topic as it was when its positions began."""

    topic: str
    topic_id: str
    """Kafka's id: another one means that the positions are of a topic that is gone."""
    known_partitions: int
    """Partitions it had when the flow first saw it: later ones are copied from their earliest record."""
    target_topic_id: str = ""
    """Id of the copy: another one means that what was copied is gone."""
    left: bool = False
    """configsync said that no rule selects it any more. While configsync is away that still holds: the rule
    may be newer than the file.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseFact:
    """An operator's pause of a flow (no topic), a topic (no partition) or a partition."""

    topic: str | None
    partition: int | None
    by: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottleFact:
    """A limit of a flow (no topic) or a topic."""

    topic: str | None
    bytes_per_second: int
    by: str = ""
    at_ms: int = 0
    """0 and no name: set by a version that did not note them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroFact:
    """A partition that is copied from offset 0. MM2's format has no value for that: without a record its
    reset policy decides. It stands until the first position above 0 takes it back."""

    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class EpochStart:
    """From `offset` on, what was copied had been written under `leader_epoch`."""

    leader_epoch: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderEpochsFact:
    """The leader epochs of what was copied, oldest first. The last one is always that of the record before
    the position: both are written in one transaction."""

    partition: TopicPartition
    epochs: tuple[EpochStart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFact:
    """How far the copy reached when this was written: a target log that ends earlier has lost records."""

    partition: TopicPartition
    topic_id: str
    end_offset: int
    """Target offset after the last record written."""
    position: int
    """The source position at that moment."""
    held_from: int | None = None
    """Source offset at or before the first record that the copy held then, if the source has no holes there;
    None = not known, -1 on the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyFact:
    """Whether a copy keeps its source's offsets. Decided once for a target topic; a preserved copy may become
    translated, never the other way round."""

    partition: TopicPartition
    preserved: bool
    since: int
    """Source offset from which on that holds."""
    reason: str
    """Stable reason why it is translated; empty while it is preserved."""
    target_topic_id: str
    """Id of the copy it speaks of: for another one it is decided anew."""
    skip_from: int = 0
    """First source offset of the newest range that a preserved copy does not hold."""
    skip_to: int = 0
    """First one after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterFact:
    """The idempotent producer that writes all preserved copies of the flow, under every owner."""

    producer_id: int
    producer_epoch: int


Fact = (
    ClaimFact
    | OwnerFact
    | TopicFact
    | PauseFact
    | ThrottleFact
    | ZeroFact
    | LeaderEpochsFact
    | TargetFact
    | CopyFact
    | WriterFact
)


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

    claim: ClaimFact | None = None
    owner: OwnerFact | None = None
    topics: dict[str, TopicFact] = field(default_factory=dict)
    pauses: dict[tuple[str | None, int | None], PauseFact] = field(default_factory=dict)
    throttles: dict[str | None, ThrottleFact] = field(default_factory=dict)
    zeros: set[TopicPartition] = field(default_factory=set)
    epochs: dict[TopicPartition, tuple[EpochStart, ...]] = field(default_factory=dict)
    targets: dict[TopicPartition, TargetFact] = field(default_factory=dict)
    copies: dict[TopicPartition, CopyFact] = field(default_factory=dict)
    writer: WriterFact | None = None

    def pause_of(self, partition: TopicPartition) -> PauseFact | None:
        """The widest pause that an operator has put a partition under: its flow's, its topic's, its own."""
        scopes = ((None, None), (partition.topic, None), (partition.topic, partition.partition))
        return next((self.pauses[scope] for scope in scopes if scope in self.pauses), None)

    def is_paused(self, partition: TopicPartition) -> bool:
        return self.pause_of(partition) is not None

    def command_in_force(
        self, kind: str, topic: str | None, partition: int | None
    ) -> PauseFact | ThrottleFact | None:
        """What operators have ordered for exactly this subject."""
        return self.pauses.get((topic, partition)) if kind == "pause" else self.throttles.get(topic)

    def apply(self, record: ControlRecord) -> None:
        match record.fact:
            case ClaimFact() as claim:
                self.claim = claim
            case OwnerFact() as owner:
                self.owner = owner
            case TopicFact() as mark:
                self.topics[mark.topic] = mark
            case PauseFact() as pause:
                self.pauses[pause.topic, pause.partition] = pause
            case ThrottleFact() as throttle:
                self.throttles[throttle.topic] = throttle
            case WriterFact() as writer:
                self.writer = writer
            case None if record.kind == "pause":
                self.pauses.pop((record.topic, record.partition), None)
            case None if record.kind == "throttle":
                self.throttles.pop(record.topic, None)
            case None:
                self._take_back(record)
            case fact:
                self._apply_to_partition(fact)

    def _apply_to_partition(self, fact: ZeroFact | LeaderEpochsFact | TargetFact | CopyFact) -> None:
        match fact:
            case ZeroFact() as zero:
                self.zeros.add(zero.partition)
            case LeaderEpochsFact() as mark:
                self.epochs[mark.partition] = mark.epochs
            case TargetFact() as mark:
                self.targets[mark.partition] = mark
            case CopyFact() as copy:
                self.copies[copy.partition] = copy

    def _take_back(self, record: ControlRecord) -> None:
        if record.topic is None or record.partition is None:
            return
        partition = TopicPartition(record.topic, record.partition)
        match record.kind:
            case "zero":
                self.zeros.discard(partition)
            case "epochs":
                self.epochs.pop(partition, None)
            case "target":
                self.targets.pop(partition, None)
            case "copy":
                self.copies.pop(partition, None)
            case _:
                pass


def fact_record(source_alias: str, fact: Fact) -> tuple[bytes, bytes]:
    """Key and value that state a fact."""
    match fact:
        case ClaimFact():
            key = control_key(source_alias, "claim")
            value: dict[str, JsonValue] = {
                "instance": fact.instance,
                "at_ms": fact.at_ms,
                "rules": fact.rules,
            }
        case OwnerFact():
            key = control_key(source_alias, "owner")
            value = {
                "instance": fact.instance,
                "slots": fact.slots,
                "renewed_at_ms": fact.renewed_at_ms,
                "keeps_offsets": fact.keeps_offsets,
            }
        case TopicFact():
            key = control_key(source_alias, "topic", fact.topic)
            value = {
                "topic_id": fact.topic_id,
                "known_partitions": fact.known_partitions,
                "target_topic_id": fact.target_topic_id,
                "left": fact.left,
            }
        case PauseFact():
            key = control_key(source_alias, "pause", fact.topic, fact.partition)
            value = {"by": fact.by, "at_ms": fact.at_ms}
        case ThrottleFact():
            key = control_key(source_alias, "throttle", fact.topic)
            value = {"bytes_per_second": fact.bytes_per_second, "by": fact.by, "at_ms": fact.at_ms}
        case ZeroFact():
            key, value = partition_key(source_alias, "zero", fact.partition), {"offset": 0}
        case LeaderEpochsFact():
            key = partition_key(source_alias, "epochs", fact.partition)
            value = {"epochs": [[each.leader_epoch, each.offset] for each in fact.epochs]}
        case TargetFact():
            key = partition_key(source_alias, "target", fact.partition)
            value = {
                "topic_id": fact.topic_id,
                "end": fact.end_offset,
                "position": fact.position,
                "held_from": -1 if fact.held_from is None else fact.held_from,
            }
        case CopyFact():
            key = partition_key(source_alias, "copy", fact.partition)
            value = {
                "offsets": "preserved" if fact.preserved else "translated",
                "since": fact.since,
                "reason": fact.reason,
                "topic_id": fact.target_topic_id,
                "skip": [fact.skip_from, fact.skip_to],
            }
        case WriterFact():
            key = control_key(source_alias, "writer")
            value = {"id": fact.producer_id, "epoch": fact.producer_epoch}
    return key, encode_document(value)


def partition_key(source_alias: str, kind: str, partition: TopicPartition) -> bytes:
    """The key of a fact about one partition."""
    return control_key(source_alias, kind, partition.topic, partition.partition)


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
    if not _has_sound_numbers(partition):
        return None
    fact = None if value is None else _fact(kind, topic, partition, decode_document(value) or {})
    if value is not None and fact is None:
        return None
    return ControlRecord(kind=kind, topic=topic, partition=partition, fact=fact)


def _fact(kind: str, topic: str | None, partition: int | None, document: dict[str, object]) -> Fact | None:
    """None for a fact that this version does not know, and for numbers that no process of ours writes."""
    if not _has_sound_numbers(document):
        return None
    match kind, topic, document:
        case "claim", None, {"instance": str(instance), "at_ms": int(at)}:
            rules = document.get("rules")
            return ClaimFact(instance=instance, at_ms=at, rules=rules if isinstance(rules, str) else "")
        case "owner", None, {"instance": str(instance), "slots": int(slots), "renewed_at_ms": int(at)}:
            # Each slot is some ids to fence: a forged mark must not keep an owner at that for ever.
            return OwnerFact(
                instance=instance,
                slots=min(max(slots, 0), MOST_SLOTS),
                renewed_at_ms=at,
                keeps_offsets=document.get("keeps_offsets") is True,
            )
        case "topic", str(), {"topic_id": str(topic_id), "known_partitions": int(count)}:
            target_id = document.get("target_topic_id")
            return TopicFact(
                topic=topic,
                topic_id=topic_id,
                known_partitions=count,
                target_topic_id=target_id if isinstance(target_id, str) else "",
                left=document.get("left") is True,
            )
        case "writer", None, {"id": int(producer_id), "epoch": int(epoch)}:
            return WriterFact(producer_id=producer_id, producer_epoch=epoch)
        case "pause", _, {"by": str(by), "at_ms": int(at)}:
            return PauseFact(topic=topic, partition=partition, by=by, at_ms=at)
        case "throttle", _, {"bytes_per_second": int(limit)}:
            who, since = document.get("by"), document.get("at_ms")
            return ThrottleFact(
                topic=topic,
                bytes_per_second=limit,
                by=who if isinstance(who, str) else "",
                at_ms=since if isinstance(since, int) else 0,
            )
        case _ if topic is not None and partition is not None:
            return _partition_fact(kind, TopicPartition(topic, partition), document)
        case _:
            return None


def _partition_fact(kind: str, partition: TopicPartition, document: dict[str, object]) -> Fact | None:
    match kind, document:
        case "zero", _:
            return ZeroFact(partition=partition)
        case "epochs", {"epochs": list(pairs)}:
            epochs = [EpochStart(*pair) for pair in pairs if _is_pair_of_ints(pair)]
            return (
                LeaderEpochsFact(partition=partition, epochs=tuple(epochs))
                if len(epochs) == len(pairs)
                else None
            )
        case "target", {"topic_id": str(topic_id), "end": int(end), "position": int(position), **more}:
            held_from = more.get("held_from")
            return TargetFact(
                partition=partition,
                topic_id=topic_id,
                end_offset=end,
                position=position,
                held_from=held_from if isinstance(held_from, int) and held_from >= 0 else None,
            )
        case "copy", {
            "offsets": "preserved" | "translated" as offsets,
            "since": int(since),
            "reason": str(reason),
            "topic_id": str(topic_id),
            "skip": [int(skip_from), int(skip_to)],
        }:
            return CopyFact(
                partition=partition,
                preserved=offsets == "preserved",
                since=since,
                reason=reason,
                target_topic_id=topic_id,
                skip_from=skip_from,
                skip_to=skip_to,
            )
        case _:
            return None


def _is_pair_of_ints(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(each, int) for each in value)


def _has_sound_numbers(document: object) -> bool:
    """Whether all integers in it have 64 bits."""
    waiting = [document]
    while waiting:
        match waiting.pop():
            case int(number) if not -_INT64_LIMIT <= number < _INT64_LIMIT:
                return False
            case list(items):
                waiting += items
            case dict(items):
                waiting += items.values()
            case _:
                pass
    return True
