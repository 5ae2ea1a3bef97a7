"""Whether the flow's applications work on the target now, according to the checkpoint service's record of
moves.

`mm2-failover.<A>.internal` belongs to the checkpoint service. Only these fields of its record are read: the
kind, the state, whether the run was given up, whether groups may work on the target, and the fences. While
groups move, and until they have moved back, a topic that is missing on the source is no reason to delete the
copy with which they work. A run that was given up before it committed an offset holds nothing.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from twinlog.errors import KafkaError, WireFormatError
from twinlog.kafka.ports import AclBinding, KafkaCluster
from twinlog.kafka.whole_logs import committed_records
from twinlog.model import Flow, TopicPartition
from twinlog.policy.internal_topics import failover_topic
from twinlog.write_blocks import fence_of
from twinlog_configsync.model.observation import is_absent


@dataclass(frozen=True, slots=True, kw_only=True)
class Failover:
    """What the record of moves says now."""

    words: str = ""
    """Which failover is running or in effect; "" when there is none."""
    fences: frozenset[AclBinding] = frozenset()
    """The ACLs by which moves block writers, on either cluster."""


async def failover_in_effect(target: KafkaCluster, flow: Flow) -> Failover:
    """Raises KafkaError, WireFormatError."""
    topic = failover_topic(flow.source)
    found = (await target.describe_topics([topic]))[topic]
    if isinstance(found, KafkaError):
        if is_absent(found):
            return Failover()
        raise found
    record, parts = await _newest(target, flow, TopicPartition(topic, 0))
    return Failover(words=words(flow, record), fences=fences(record, parts))


def words(flow: Flow, record: bytes | None) -> str:
    """Which failover is running or in effect by this record. Pure. Raises WireFormatError."""
    if record is None:
        return ""
    try:
        fields = json.loads(record)
        kind, state = str(fields["kind"]), str(fields["state"])
        aborted = fields.get("aborted", False) is True
        # Earlier releases did not record it.
        on_target = fields.get("on_target", kind != "failback" or aborted) is True
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise WireFormatError(f"the record of the last move is damaged: {error!r}") from error
    if state != "DONE":
        return (
            f"a {kind} is running or was interrupted ({state}): `twinlog {kind} run '{flow}'` continues it,"
            f" `twinlog {kind} abort '{flow}'` gives it up"
        )
    if not on_target:
        return ""
    given_up = f" (the last {kind} was given up)" if aborted else ""
    back = f"`twinlog failback run '{flow}'` moves them back"
    return f"groups were moved to {flow.target} and not back{given_up}: {back}"


def fences(record: bytes | None, parts: Mapping[str, bytes]) -> frozenset[AclBinding]:
    """The fences that a record names: in full, or as parts with the topics. Pure. Raises WireFormatError."""
    if record is None:
        return frozenset()
    topics: set[str] = set()
    try:
        fields = json.loads(record)
        for each in (*fields.get("fences", ()), *fields.get("former_fences", ())):
            if isinstance(each, dict):
                topics.add(str(each["resource_name"]))
            else:
                topics.update(map(str, json.loads(parts[each])["items"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise WireFormatError(f"the fences of the last move are damaged: {error!r}") from error
    return frozenset(map(fence_of, topics))


async def _newest(
    target: KafkaCluster, flow: Flow, partition: TopicPartition
) -> tuple[bytes | None, Mapping[str, bytes]]:
    """The newest record of the flow's move, and the parts that it may name."""
    newest: bytes | None = None
    parts: dict[str, bytes] = {}
    async with target.reader() as reader:
        async for record in committed_records(target, reader, partition):
            kind, place = _key(record.key)
            if place.get("flow") != str(flow):
                continue
            if kind == "TwinlogMove":
                newest = record.value
            elif kind == "TwinlogMovePart" and record.value is not None:
                parts[str(place.get("part"))] = record.value
    return newest, parts


def _key(key: bytes | None) -> tuple[str, Mapping[str, object]]:
    """The kind of a record and where it belongs. Each moved group, and the source, has a record of its own
    besides that of the move."""
    try:
        name, place = json.loads(key or b"")
    except (ValueError, TypeError, RecursionError):
        return "", {}
    return (name, place) if isinstance(name, str) and isinstance(place, dict) else ("", {})
