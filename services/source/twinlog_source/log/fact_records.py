"""Facts as records of the positions topic: keys and values, and back."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeGuard, get_type_hints

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
from twinlog_source.log.facts import (
    MOST_SLOTS,
    CheckedEnd,
    ClaimFact,
    CopyFact,
    EpochStart,
    Fact,
    ForeignFact,
    LeaderEpochsFact,
    OriginFact,
    OwnerFact,
    PauseFact,
    ProducerFact,
    ProofFact,
    RestoreFact,
    TargetFact,
    ThrottleFact,
    TopicFact,
    TransformsFact,
    TransformStart,
    WriterFact,
    ZeroFact,
)

_INT64_LIMIT = 1 << 63
_FOREIGN_WRITE_FIELDS = 6


@dataclass(frozen=True, slots=True)
class _Stored:
    """How one kind of fact is stored: its fields under their names, but for these."""

    fact: type[Any]
    subject: tuple[str, ...] = ()
    """The fields that are in the key."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """By field: its name in the document."""


_PARTITION = ("partition",)
_KINDS: Mapping[str, _Stored] = {
    "claim": _Stored(ClaimFact),
    "owner": _Stored(OwnerFact),
    "topic": _Stored(TopicFact, ("topic",)),
    "pause": _Stored(PauseFact, ("topic", "partition")),
    "throttle": _Stored(ThrottleFact, ("topic",)),
    "restore": _Stored(RestoreFact, renamed={"import_id": "import"}),
    "writer": _Stored(WriterFact, renamed={"producer_id": "id", "producer_epoch": "epoch"}),
    "producer": _Stored(ProducerFact, renamed={"producer_id": "id"}),
    "zero": _Stored(ZeroFact, _PARTITION),
    "epochs": _Stored(LeaderEpochsFact, _PARTITION),
    "target": _Stored(TargetFact, _PARTITION, {"end_offset": "end"}),
    "copy": _Stored(
        CopyFact, _PARTITION, {"preserved": "offsets", "target_topic_id": "topic_id", "skip_from": "skip"}
    ),
    "origin": _Stored(OriginFact, _PARTITION),
    "transforms": _Stored(TransformsFact, _PARTITION),
    "proof": _Stored(ProofFact, _PARTITION),
    "foreign": _Stored(ForeignFact, _PARTITION),
}
KINDS = frozenset(_KINDS)
"""The kinds of facts that this release knows."""
KIND_OF = {stored.fact: kind for kind, stored in _KINDS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlRecord:
    """One record: a fact and its value (None = withdrawn)."""

    kind: str
    topic: str | None
    partition: int | None
    fact: Fact | None


def fact_record(source_alias: str, fact: Fact) -> tuple[bytes, bytes]:
    """Key and value of a fact's record."""
    kind = KIND_OF[type(fact)]
    stored = _KINDS[kind]
    document = {
        stored.renamed.get(each.name, each.name): _told(getattr(fact, each.name))
        for each in fields(fact)
        if each.name not in stored.subject
    }
    if isinstance(fact, ZeroFact):
        document = {"offset": 0}
    elif isinstance(fact, CopyFact):
        document["offsets"] = "preserved" if fact.preserved else "translated"
        document["skip"] = [fact.skip_from, document.pop("skip_to")]
    elif isinstance(fact, TargetFact) and fact.checked is None:
        del document["checked"]
    elif isinstance(fact, TopicFact) and not fact.since_ms:
        del document["since_ms"]
    elif isinstance(fact, ForeignFact) and not fact.acknowledged_by:
        del document["acknowledged_by"], document["acknowledged_at_ms"]
    elif isinstance(fact, OwnerFact) and not fact.former_topics:
        del document["former_topics"]
    place = getattr(fact, "partition", None)
    topic, partition = (
        (place.topic, place.partition)
        if isinstance(place, TopicPartition)
        else (getattr(fact, "topic", None), place)
    )
    producer_id = fact.producer_id if isinstance(fact, ProducerFact) else None
    return control_key(source_alias, kind, topic, partition, producer_id), encode_document(document)


def _told(value: Any) -> JsonValue:
    match value:
        case None:
            return -1
        case EpochStart():
            return [value.leader_epoch, value.offset]
        case tuple():
            return [_told(each) for each in value]
        case dict():
            return dict(value)
        case _:
            return value  # type: ignore[no-any-return]  # a number, a text or a truth


def partition_key(source_alias: str, kind: str, partition: TopicPartition) -> bytes:
    """The key of a fact about one partition."""
    return control_key(source_alias, kind, partition.topic, partition.partition)


def control_key(
    source_alias: str,
    kind: str,
    topic: str | None = None,
    partition: int | None = None,
    producer_id: int | None = None,
) -> bytes:
    """The key of a fact, also for its tombstone."""
    subject: dict[str, JsonValue] = {"cluster": source_alias, "kind": kind}
    if topic is not None:
        subject["topic"] = topic
    if partition is not None:
        subject["partition"] = partition
    if producer_id is not None:
        subject["producer"] = producer_id
    return encode_connect_key(ConnectKey(connector=CONTROL_CONNECTOR, partition=subject))


def parse_control(source_alias: str, key: bytes | None, value: bytes | None) -> ControlRecord | None:
    """Parse a fact of a source cluster; None for every other record. Raises WireFormatError for a damaged
    value, with the reason WIRE_VERSION for one of a later format."""
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
    if kind not in KINDS:
        return None  # A fact of a later release.
    fact = None if value is None else _fact(kind, topic, partition, decode_document(value) or {})
    if value is not None and fact is None:
        return None
    return ControlRecord(kind=kind, topic=topic, partition=partition, fact=fact)


def is_about_ids(source_alias: str, key: bytes | None) -> bool:
    """Whether a record says which batches on the target are the flow's own (docs/adr/0017)."""
    decoded = decode_connect_key(key)
    return (
        decoded is not None
        and decoded.connector == CONTROL_CONNECTOR
        and decoded.partition.get("cluster") == source_alias
        and decoded.partition.get("kind") in ("producer", "origin")
    )


def kind_of(key: bytes | None) -> str | None:
    """The kind of a fact, also of one that this version does not know; None for every other record."""
    decoded = decode_connect_key(key)
    if decoded is None or decoded.connector != CONTROL_CONNECTOR:
        return None
    kind = decoded.partition.get("kind")
    return kind if isinstance(kind, str) else None


def _fact(kind: str, topic: str | None, partition: int | None, document: dict[str, object]) -> Fact | None:
    """None for a fact that this version does not know, and for numbers that Twinlog never writes."""
    stored = _KINDS[kind]
    found = _subject(kind, topic, partition)
    if found is None or not _has_sound_numbers(document):
        return None
    match document:
        case {"offsets": "preserved" | "translated" as offsets, "skip": [int(first), int(end)]}:
            document = document | {"offsets": offsets == "preserved", "skip": first, "skip_to": end}
        case _ if kind == "copy":
            return None
    for each in fields(stored.fact):
        if each.name in found:
            continue
        value = _READERS[_HINTS[kind][each.name]](document.get(stored.renamed.get(each.name, each.name)))
        if value is not _WRONG:
            found[each.name] = value
        elif kind == "proof" or (each.default is MISSING and each.default_factory is MISSING):
            return None  # A part of a proof proves nothing.
    if kind == "owner":
        # Each slot means ids to fence: a forged fact must not keep an owner busy for ever.
        found["slots"] = min(max(found["slots"], 0), MOST_SLOTS)
    if kind == "copy":
        found["common_until"] = max(found.get("common_until", 0), 0)
    fact: Fact = stored.fact(**found)
    return fact


def _subject(kind: str, topic: str | None, partition: int | None) -> dict[str, Any] | None:
    """The fields that are in the key; None if Twinlog writes no such key."""
    subject = _KINDS[kind].subject
    if subject == _PARTITION:
        if topic is None or partition is None:
            return None
        return {"partition": TopicPartition(topic, partition)}
    if (kind == "topic" and topic is None) or (topic is not None and not subject):
        return None
    return {name: topic if name == "topic" else partition for name in subject}


_WRONG = object()
"""Read where a value is missing or of another kind: the field has its default, or the fact is unknown."""
_HINTS = {kind: get_type_hints(stored.fact) for kind, stored in _KINDS.items()}


def _of(kind: type[Any]) -> Callable[[object], object]:
    return lambda value: value if isinstance(value, kind) else _WRONG


def _list_of(kind: type[Any]) -> Callable[[object], object]:
    def read(value: object) -> object:
        if isinstance(value, list) and all(isinstance(each, kind) for each in value):
            return tuple(value)
        return _WRONG

    return read


def _epochs(value: object) -> object:
    pairs = value if isinstance(value, list) else [None]
    found = [EpochStart(*pair) for pair in pairs if _are_ints(pair, 2)]
    return tuple(found) if len(found) == len(pairs) else _WRONG


def _starts(value: object) -> object:
    found: list[TransformStart] = []
    for each in value if isinstance(value, list) else [None]:
        match each:
            case [str(digest), int(offset)]:
                found.append(TransformStart(digest, offset))
            case _:
                return _WRONG
    return tuple(found)


def _writes(value: object) -> object:
    are_all = isinstance(value, list) and all(_are_ints(each, _FOREIGN_WRITE_FIELDS) for each in value)
    return tuple(map(tuple, value)) if isinstance(value, list) and are_all else _WRONG


def _are_ints(value: object, count: int) -> TypeGuard[list[int]]:
    return isinstance(value, list) and len(value) == count and all(isinstance(each, int) for each in value)


_READERS: Mapping[Any, Callable[[object], object]] = {
    str: _of(str),
    int: _of(int),
    bool: lambda value: value is True,
    int | None: lambda value: value if isinstance(value, int) and value >= 0 else None,
    tuple[int, ...]: _list_of(int),
    tuple[str, ...]: _list_of(str),
    tuple[EpochStart, ...]: _epochs,
    tuple[TransformStart, ...]: _starts,
    tuple[tuple[int, ...], ...]: _writes,
    CheckedEnd | None: lambda value: CheckedEnd(*value) if _are_ints(value, 3) else None,
    Mapping[str, int]: lambda value: (
        {kind: count for kind, count in value.items() if isinstance(count, int)}
        if isinstance(value, dict)
        else _WRONG
    ),
}


def _has_sound_numbers(document: object) -> bool:
    """Whether all integers in it fit into 64 bits."""
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
