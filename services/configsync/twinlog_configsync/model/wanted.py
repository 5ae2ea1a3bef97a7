"""Large sets in a flow's registry, as ids: the ACLs and quotas that it wants on its target, for other
processes, and the topics that were there when the flow began. Pure.

A flow wants more than it made: what another flow into the same target created first, or what was there
before. Such a set may have many thousands of members, and readers only ask whether one is in it, so it is
stored as short hashes. Two members with the same hash would only keep something for longer.
"""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Final

from twinlog.kafka.ports import AclBinding, QuotaEntity
from twinlog_configsync.model.records import (
    Kind,
    RecordKey,
    RecordValue,
    WantedRecord,
    acl_key,
    quota_key,
)

ACLS: Final = "acls"
QUOTAS: Final = "quotas"
WERE_THERE: Final = "were_there"

_ID_DIGITS: Final = 16
_MOST_IDS: Final = 10_000
"""The size of a part on average: 190 kB, far below the limit of a record."""


def acl_id(binding: AclBinding) -> str:
    return _id(acl_key(binding).name)


def acl_ids(bindings: Iterable[AclBinding]) -> frozenset[str]:
    return frozenset(map(acl_id, bindings))


def quota_id(entity: QuotaEntity, key: str) -> str:
    return _id(f"{quota_key(entity).name}: {key}")


def quota_ids(quotas: Iterable[tuple[QuotaEntity, str]]) -> frozenset[str]:
    return frozenset(quota_id(entity, key) for entity, key in quotas)


def topic_id(name: str) -> str:
    return _id(name)


def wanted_records(what: str, ids: frozenset[str]) -> dict[RecordKey, RecordValue]:
    """The set in parts that fit into records; one part also for the empty set."""
    count = 1 + max(0, len(ids) - 1) // _MOST_IDS
    parts: list[list[str]] = [[] for _ in range(count)]
    for each in sorted(ids):
        parts[int(each, 16) % count].append(each)
    return {
        RecordKey(Kind.WANTED, f"{what} {number}"): WantedRecord(
            part=number, part_count=count, ids=tuple(part)
        )
        for number, part in enumerate(parts)
    }


def wanted_ids(what: str, records: Mapping[RecordKey, RecordValue]) -> frozenset[str] | None:
    """The set; None if it is unknown: nobody has stored it, or a part of it is from another time."""
    parts = {
        value.part: value
        for key, value in records.items()
        if isinstance(value, WantedRecord) and key.name == f"{what} {value.part}"
    }
    counts = {part.part_count for part in parts.values()}
    if counts != {len(parts)} or parts.keys() != set(range(len(parts))):
        return None
    return frozenset().union(*(part.ids for part in parts.values()))


def _id(name: str) -> str:
    return sha256(name.encode()).hexdigest()[:_ID_DIGITS]
