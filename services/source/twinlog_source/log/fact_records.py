"""Facts as records of the positions topic: keys and values, and back."""

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
from twinlog_source.log.control import ControlRecord
from twinlog_source.log.facts import (
    MOST_SLOTS,
    CheckedEnd,
    ClaimFact,
    CopyFact,
    EpochStart,
    Fact,
    LeaderEpochsFact,
    OwnerFact,
    PauseFact,
    ProducerFact,
    ProofFact,
    RestoreFact,
    TargetFact,
    ThrottleFact,
    TopicFact,
    WriterFact,
    ZeroFact,
)

KINDS = frozenset(
    {"claim", "owner", "topic", "pause", "throttle", "restore", "writer", "producer"}
    | {"zero", "epochs", "target", "copy", "proof"}
)
"""The kinds of facts that this release knows."""

_INT64_LIMIT = 1 << 63


def fact_record(source_alias: str, fact: Fact) -> tuple[bytes, bytes]:
    """Key and value of a fact's record."""
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
                "names_producers": fact.names_producers,
                "left_at": list(fact.left_at),
                "left_at_rest": fact.left_at_rest,
            }
        case TopicFact():
            key = control_key(source_alias, "topic", fact.topic)
            value = {
                "topic_id": fact.topic_id,
                "known_partitions": fact.known_partitions,
                "target_topic_id": fact.target_topic_id,
                "left": fact.left,
                "former_ids": list(fact.former_ids),
            }
        case PauseFact():
            key = control_key(source_alias, "pause", fact.topic, fact.partition)
            value = {"by": fact.by, "at_ms": fact.at_ms}
        case ThrottleFact():
            key = control_key(source_alias, "throttle", fact.topic)
            value = {"bytes_per_second": fact.bytes_per_second, "by": fact.by, "at_ms": fact.at_ms}
        case RestoreFact():
            key = control_key(source_alias, "restore")
            value = {"import": fact.import_id, "at_ms": fact.at_ms}
        case WriterFact():
            key = control_key(source_alias, "writer")
            value = {"id": fact.producer_id, "epoch": fact.producer_epoch}
        case ProducerFact():
            key = control_key(source_alias, "producer", producer_id=fact.producer_id)
            value = {
                "id": fact.producer_id,
                "name": fact.name,
                "cluster_id": fact.cluster_id,
                "source_cluster_id": fact.source_cluster_id,
                "at_ms": fact.at_ms,
            }
        case _:
            return _partition_record(source_alias, fact)
    return key, encode_document(value)


def _partition_record(
    source_alias: str, fact: ZeroFact | LeaderEpochsFact | TargetFact | CopyFact | ProofFact
) -> tuple[bytes, bytes]:
    match fact:
        case ZeroFact():
            kind = "zero"
            value: dict[str, JsonValue] = {"offset": 0}
        case LeaderEpochsFact():
            kind = "epochs"
            value = {"epochs": [[each.leader_epoch, each.offset] for each in fact.epochs]}
        case TargetFact():
            kind = "target"
            value = {
                "topic_id": fact.topic_id,
                "end": fact.end_offset,
                "position": fact.position,
                "held_from": -1 if fact.held_from is None else fact.held_from,
                "noted_at_ms": -1 if fact.noted_at_ms is None else fact.noted_at_ms,
            }
            if fact.checked is not None:
                value["checked"] = list(fact.checked)
        case CopyFact():
            kind = "copy"
            value = {
                "offsets": "preserved" if fact.preserved else "translated",
                "since": fact.since,
                "reason": fact.reason,
                "topic_id": fact.target_topic_id,
                "skip": [fact.skip_from, fact.skip_to],
                "leader_epoch": -1 if fact.leader_epoch is None else fact.leader_epoch,
                "common_until": fact.common_until,
            }
        case ProofFact():
            kind = "proof"
            value = {
                "verdict": fact.verdict,
                "proven_until": fact.proven_until,
                "proven_at_ms": fact.proven_at_ms,
                "checked_at_ms": fact.checked_at_ms,
                "differences": dict(fact.differences),
                "reason": fact.reason,
                "ranges": fact.ranges,
            }
    return partition_key(source_alias, kind, fact.partition), encode_document(value)


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


def kind_of(key: bytes | None) -> str | None:
    """The kind of a fact, also of one that this version does not know; None for every other record."""
    decoded = decode_connect_key(key)
    if decoded is None or decoded.connector != CONTROL_CONNECTOR:
        return None
    kind = decoded.partition.get("kind")
    return kind if isinstance(kind, str) else None


def _fact(kind: str, topic: str | None, partition: int | None, document: dict[str, object]) -> Fact | None:
    """None for a fact that this version does not know, and for numbers that Twinlog never writes."""
    if not _has_sound_numbers(document):
        return None
    match kind, topic, document:
        case "claim", None, {"instance": str(instance), "at_ms": int(at)}:
            rules = document.get("rules")
            return ClaimFact(instance=instance, at_ms=at, rules=rules if isinstance(rules, str) else "")
        case "owner", None, {"instance": str(instance), "slots": int(slots), "renewed_at_ms": int(at)}:
            left_at = document.get("left_at")
            ends = left_at if isinstance(left_at, list) else []
            # Each slot means ids to fence: a forged fact must not keep an owner busy for ever.
            return OwnerFact(
                instance=instance,
                slots=min(max(slots, 0), MOST_SLOTS),
                renewed_at_ms=at,
                keeps_offsets=document.get("keeps_offsets") is True,
                names_producers=document.get("names_producers") is True,
                left_at=tuple(ends) if all(type(end) is int for end in ends) else (),
                left_at_rest=document.get("left_at_rest") is True,
            )
        case "topic", str(), {"topic_id": str(topic_id), "known_partitions": int(count)}:
            target_id, former_ids = document.get("target_topic_id"), document.get("former_ids")
            return TopicFact(
                topic=topic,
                topic_id=topic_id,
                known_partitions=count,
                target_topic_id=target_id if isinstance(target_id, str) else "",
                left=document.get("left") is True,
                former_ids=tuple(
                    each
                    for each in (former_ids if isinstance(former_ids, list) else ())
                    if isinstance(each, str)
                ),
            )
        case "restore", None, {"import": str(import_id), "at_ms": int(at)}:
            return RestoreFact(import_id=import_id, at_ms=at)
        case "writer", None, {"id": int(producer_id), "epoch": int(epoch)}:
            return WriterFact(producer_id=producer_id, producer_epoch=epoch)
        case "producer", None, {
            "id": int(producer_id),
            "name": str(name),
            "cluster_id": str(cluster_id),
            "source_cluster_id": str(source_cluster_id),
            "at_ms": int(at),
        }:
            return ProducerFact(
                producer_id=producer_id,
                name=name,
                cluster_id=cluster_id,
                source_cluster_id=source_cluster_id,
                at_ms=at,
            )
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
            held_from, noted_at_ms = more.get("held_from"), more.get("noted_at_ms")
            return TargetFact(
                partition=partition,
                topic_id=topic_id,
                end_offset=end,
                position=position,
                held_from=held_from if isinstance(held_from, int) and held_from >= 0 else None,
                noted_at_ms=noted_at_ms if isinstance(noted_at_ms, int) and noted_at_ms >= 0 else None,
                checked=_checked_end(more.get("checked")),
            )
        case "copy", {
            "offsets": "preserved" | "translated" as offsets,
            "since": int(since),
            "reason": str(reason),
            "topic_id": str(topic_id),
            "skip": [int(skip_from), int(skip_to)],
            **more,
        }:
            epoch, common_until = more.get("leader_epoch"), more.get("common_until")
            return CopyFact(
                partition=partition,
                preserved=offsets == "preserved",
                since=since,
                reason=reason,
                target_topic_id=topic_id,
                skip_from=skip_from,
                skip_to=skip_to,
                leader_epoch=epoch if isinstance(epoch, int) and epoch >= 0 else None,
                common_until=common_until if isinstance(common_until, int) and common_until >= 0 else 0,
            )
        case "proof", _:
            return _proof(partition, document)
        case _:
            return None


def _proof(partition: TopicPartition, document: dict[str, object]) -> ProofFact | None:
    match document:
        case {
            "verdict": str(verdict),
            "proven_until": int(proven_until),
            "proven_at_ms": int(proven_at_ms),
            "checked_at_ms": int(checked_at_ms),
            "differences": dict(differences),
            "reason": str(reason),
            "ranges": str(ranges),
        }:
            return ProofFact(
                partition=partition,
                verdict=verdict,
                proven_until=proven_until,
                proven_at_ms=proven_at_ms,
                checked_at_ms=checked_at_ms,
                differences={kind: count for kind, count in differences.items() if isinstance(count, int)},
                reason=reason,
                ranges=ranges,
            )
        case _:
            return None


def _checked_end(value: object) -> CheckedEnd | None:
    match value:
        case [int(leader_epoch), int(end_offset), int(position)]:
            return CheckedEnd(leader_epoch, end_offset, position)
        case _:
            return None


def _is_pair_of_ints(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(each, int) for each in value)


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
