"""What configsync knows of one flow, and its conversion into records. Values only."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Final

from twinlog.kafka.ports import AclBinding, QuotaEntity
from twinlog.service.feeds.replicated_topics import ReplicatedTopic
from twinlog.service.feeds.rules_record import RulesRecord
from twinlog_configsync.model.records import (
    AUDIT_PLACES,
    AclRecord,
    AuditRecord,
    ConfigsRecord,
    FlowRecord,
    PlanRecord,
    QuotaRecord,
    RecordKey,
    RecordValue,
    StoredKind,
    WantedRecord,
    acl_key,
    audit_key,
    quota_key,
)

# Large sets in a flow's registry, as ids: the ACLs and quotas that it wants on its target, for other
# processes, and the topics that were there when the flow began. Pure.
#
# A flow wants more than it made: what another flow into the same target created first, or what was there
# before. Such a set may have many thousands of members, and readers only ask whether one is in it, so it
# is stored as short hashes. Two members with the same hash would only keep something for longer.

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
        RecordKey(StoredKind.WANTED, f"{what} {number}"): WantedRecord(
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    entries: Mapping[str, ReplicatedTopic] = field(default_factory=dict)
    """By source topic; includes topics that no rule selects any more."""
    forgotten_generation: int = 0
    """The highest generation of the topics that were removed from the registry."""
    last_set: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By source topic: the overrides that Twinlog last set on its copy."""
    made_acls: frozenset[AclBinding] = frozenset()
    """ACLs on the target that Twinlog creates or has created."""
    made_quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)
    """Quotas on the target that Twinlog sets or has set."""
    wanted_acls: frozenset[str] | None = None
    """The ids of all ACLs that the flow wants on the target; None = unknown, or nobody needs to know."""
    wanted_quotas: frozenset[str] | None = None
    """As `wanted_acls`."""
    deleted_at_ms: tuple[int, ...] = ()
    """When copies of deleted topics were deleted, within the last hour."""
    source_cluster_id: str = ""
    """The id of the source cluster at the last read; "" before the first."""
    rules: RulesRecord | None = None
    """The changes to the flow's rules while it ran; None when there never were any."""
    were_there: frozenset[str] | None = None
    """The ids of the source's topics that were there when the selection was first complete, and that no rule
    has selected so far. An unknown topic that is not among them is newer than the flow. None = not known: an
    earlier release did not store them."""
    last_plan: PlanRecord | None = None
    """The plan that was last requested."""
    settled_at_ms: int | None = None
    """When the selection was first complete; None before."""
    changes: tuple[AuditRecord, ...] = ()
    """Changes by operators, oldest first; the newest AUDIT_PLACES."""

    def with_change(
        self,
        method: str,
        *,
        by: str,
        peer: str,
        at_ms: int,
        before: Mapping[str, str],
        after: Mapping[str, str],
    ) -> "Memory":
        """This memory, with an operator's change."""
        number = self.changes[-1].number + 1 if self.changes else 0
        record = AuditRecord(
            number=number, at_ms=at_ms, by=by, peer=peer, method=method, before=before, after=after
        )
        return replace(self, changes=(*self.changes, record)[-AUDIT_PLACES:])

    def intending(
        self,
        acls: Collection[AclBinding],
        quotas: Mapping[QuotaEntity, Mapping[str, float]],
        *,
        deleted_at_ms: Collection[int] = (),
    ) -> "Memory":
        """This memory, with what is about to be created and deleted."""
        made_quotas = {entity: {**self.made_quotas.get(entity, {}), **quotas[entity]} for entity in quotas}
        return replace(
            self,
            made_acls=self.made_acls | frozenset(acls),
            made_quotas={**self.made_quotas, **made_quotas},
            deleted_at_ms=(*self.deleted_at_ms, *deleted_at_ms),
        )

    @property
    def settled(self) -> bool:
        return self.settled_at_ms is not None

    @property
    def selected_count(self) -> int:
        return sum(entry.selected for entry in self.entries.values())

    def records(self) -> dict[RecordKey, RecordValue]:
        records: dict[RecordKey, RecordValue] = {
            RecordKey(StoredKind.TOPIC, name): entry for name, entry in self.entries.items()
        }
        for name, values in self.last_set.items():
            records[RecordKey(StoredKind.CONFIGS, name)] = ConfigsRecord(values=values)
        for binding in self.made_acls:
            records[acl_key(binding)] = AclRecord(binding=binding)
        for entity, quotas in self.made_quotas.items():
            records[quota_key(entity)] = QuotaRecord(entity=entity, values=quotas)
        if self.wanted_acls is not None:
            records |= wanted_records(ACLS, self.wanted_acls)
        if self.wanted_quotas is not None:
            records |= wanted_records(QUOTAS, self.wanted_quotas)
        if self.were_there is not None:
            records |= wanted_records(WERE_THERE, self.were_there)
        if self.rules is not None:
            records[RecordKey(StoredKind.RULES)] = self.rules
        if self.last_plan is not None:
            records[RecordKey(StoredKind.PLAN)] = self.last_plan
        for change in self.changes:
            records[audit_key(change.number)] = change
        if self.settled_at_ms is not None:
            records[RecordKey(StoredKind.FLOW)] = FlowRecord(
                settled_at_ms=self.settled_at_ms,
                deleted_at_ms=self.deleted_at_ms,
                source_cluster_id=self.source_cluster_id,
                forgotten_generation=self.forgotten_generation,
            )
        return records


def recall(records: Mapping[RecordKey, RecordValue]) -> Memory:
    """The memory that these records store."""
    entries: dict[str, ReplicatedTopic] = {}
    last_set: dict[str, Mapping[str, str]] = {}
    made_acls: set[AclBinding] = set()
    made_quotas: dict[QuotaEntity, Mapping[str, float]] = {}
    rules: RulesRecord | None = None
    last_plan: PlanRecord | None = None
    flow: FlowRecord | None = None
    changes: list[AuditRecord] = []
    for key, value in records.items():
        match value:
            case ReplicatedTopic():
                entries[key.name] = value
            case ConfigsRecord():
                last_set[key.name] = value.values
            case AclRecord():
                made_acls.add(value.binding)
            case QuotaRecord():
                made_quotas[value.entity] = value.values
            case RulesRecord():
                rules = value
            case FlowRecord():
                flow = value
            case PlanRecord():
                last_plan = value
            case AuditRecord():
                changes.append(value)
    return Memory(
        entries=entries,
        last_set=last_set,
        made_acls=frozenset(made_acls),
        made_quotas=made_quotas,
        wanted_acls=wanted_ids(ACLS, records),
        wanted_quotas=wanted_ids(QUOTAS, records),
        were_there=wanted_ids(WERE_THERE, records),
        deleted_at_ms=() if flow is None else flow.deleted_at_ms,
        source_cluster_id="" if flow is None else flow.source_cluster_id,
        forgotten_generation=0 if flow is None else flow.forgotten_generation,
        rules=rules,
        last_plan=last_plan,
        changes=tuple(sorted(changes, key=lambda change: change.number)),
        settled_at_ms=None if flow is None else flow.settled_at_ms,
    )
