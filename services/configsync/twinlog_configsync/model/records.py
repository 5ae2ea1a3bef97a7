"""The records of `mm2-configsync.<A>.internal`: compact UTF-8 JSON, one kind per key, every value
versioned.

| key | value |
|---|---|
| `["flow"]` | FlowRecord: when the selection was first complete, recent deletions |
| `["topic","orders"]` | ReplicatedTopic |
| `["configs","orders"]` | ConfigsRecord: the configs that Twinlog last set on the copy |
| `["acl","TOPIC A.orders …"]` | AclRecord: an ACL on the target that Twinlog creates or has created |
| `["quota","user alice"]` | QuotaRecord: the quotas of an entity that Twinlog sets or has set |
| `["wanted","acls 0"]` | WantedRecord: ids of ACLs (or quotas) that a flow with a shared target wants |
| `["wanted","were_there 0"]` | WantedRecord: ids of topics that are older than the flow and not selected |
| `["rules"]` | RulesRecord: the rules that were changed while the flow ran |
| `["plan"]` | PlanRecord: the plan that was last requested |
| `["audit","017"]` | AuditRecord: who changed what; the newest 200 changes stay |

A tombstone removes a record. Kinds that this version does not know are kept (a newer one wrote them). A known
kind with a newer version is an error, because overwriting it would lose its meaning. Unknown fields are
dropped, so a field may be added without a new version.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from dataclasses import fields as dataclass_fields
from enum import StrEnum
from typing import Any, Final

from twinlog.errors import WireFormatError
from twinlog.kafka.ports import AclBinding, QuotaEntity
from twinlog.service.feeds.replicated_topics import ReplicatedTopic, decode_topic
from twinlog.service.feeds.rules_record import RULES_VERSION, RulesRecord, decode_rules
from twinlog.wire.stored_json import read_fields
from twinlog_configsync.model.reasons import SyncReason

Fields = Mapping[str, Any]


class StoredKind(StrEnum):
    FLOW = "flow"
    TOPIC = "topic"
    CONFIGS = "configs"
    ACL = "acl"
    QUOTA = "quota"
    WANTED = "wanted"
    RULES = "rules"
    PLAN = "plan"
    AUDIT = "audit"


@dataclass(frozen=True, slots=True, order=True)
class RecordKey:
    kind: StoredKind
    name: str = ""
    """"" where a flow has one record of the kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowRecord:
    settled_at_ms: int
    """When the selection was first complete, by the wall clock."""
    deleted_at_ms: tuple[int, ...] = ()
    """When copies of deleted topics were deleted, within the last hour."""
    source_cluster_id: str = ""
    """The id of the source cluster at the last read."""
    forgotten_generation: int = 0
    """The highest generation of the topics that were removed from the registry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigsRecord:
    values: Mapping[str, str]
    """Every override that Twinlog wants on the target topic, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AclRecord:
    binding: AclBinding
    """Written before the ACL is created, so that no created ACL is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaRecord:
    entity: QuotaEntity
    values: Mapping[str, float]
    """Written before they are set, as in AclRecord."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedRecord:
    """A part of the set of ACLs or quotas that the flow wants, which another flow must not remove."""

    part: int
    """From 0."""
    part_count: int
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRecord:
    """The actions are not stored: `apply` plans again, and compares the ids."""

    plan_id: str
    scopes: tuple[str, ...]
    made_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """One change by an operator, as it was carried out."""

    number: int
    """From 0, increases by one with each change."""
    at_ms: int
    """By the owner's wall clock."""
    by: str
    """The authenticated caller if the service authenticates, otherwise the name that the caller gave."""
    peer: str
    """Where the call came from."""
    method: str
    """The RPC: UpdateRules, ApplySync; PutRulesAside for what the owner did by itself."""
    before: Mapping[str, str]
    after: Mapping[str, str]


RecordValue = (
    FlowRecord
    | ReplicatedTopic
    | ConfigsRecord
    | AclRecord
    | QuotaRecord
    | WantedRecord
    | RulesRecord
    | PlanRecord
    | AuditRecord
)

AUDIT_PLACES: Final = 200
"""How many changes of a flow are kept: the topic is compacted, and a new record takes the key of the
oldest."""


def audit_key(number: int) -> RecordKey:
    return RecordKey(StoredKind.AUDIT, f"{number % AUDIT_PLACES:03}")


_BINDING_FIELDS: Final = tuple(field.name for field in dataclass_fields(AclBinding))


def acl_key(binding: AclBinding) -> RecordKey:
    """One record per ACL: the ACL itself is its name."""
    return RecordKey(StoredKind.ACL, " ".join(getattr(binding, name) for name in _BINDING_FIELDS))


def quota_key(entity: QuotaEntity) -> RecordKey:
    parts = (f"{kind} {'<default>' if name is None else name}" for kind, name in entity.parts)
    return RecordKey(StoredKind.QUOTA, ", ".join(parts))


def encode_key(key: RecordKey) -> bytes:
    return _json([key.kind.value, key.name] if key.name else [key.kind.value])


def decode_key(raw: bytes | None) -> RecordKey | None:
    """None for a kind that this version does not know. Raises WireFormatError for an invalid key."""
    parts = _parse(raw, "key")
    if not (
        isinstance(parts, list) and 1 <= len(parts) <= 2 and all(isinstance(part, str) for part in parts)
    ):
        raise WireFormatError(f"registry key {(raw or b'')[:_SHOWN_BYTES]!r} is not [kind] or [kind, name]")
    if parts[0] not in _KINDS:
        return None
    return RecordKey(StoredKind(parts[0]), *parts[1:])


def encode_value(value: RecordValue) -> bytes:
    fields = asdict(value)
    if not fields.get("routed_from", True):
        del fields["routed_from"]  # Of almost all topics: registries stay as they are.
    return _json({"version": _CODECS[_KIND_OF[type(value)]].version, **fields})


def decode_value(key: RecordKey, raw: bytes) -> RecordValue:
    """Raises WireFormatError when the value has a newer version, or lacks a field."""
    codec = _CODECS[key.kind]
    fields = _parse(raw, "value")
    if not isinstance(fields, dict):
        raise WireFormatError(f"registry value of {key.kind} {key.name!r} is not an object")
    version = fields.get("version")
    if version != codec.version:
        raise WireFormatError(
            f"registry value of {key.kind} {key.name!r} has version {version!r}; "
            f"this Twinlog reads {codec.version}",
            metadata={"kind": key.kind, "name": key.name, "version": str(version)},
        )
    try:
        return codec.decode(fields)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise WireFormatError(f"registry value of {key.kind} {key.name!r} is damaged: {error!r}") from error


class RegistryCodec:
    """The rows of the table. Only configsync writes them; a decision about a flow is stored there before
    anybody is told, so that a restart continues with it."""

    def decode_key(self, key: bytes) -> RecordKey | None:
        with _unreadable():
            return decode_key(key)

    def decode_value(self, key: RecordKey, value: bytes) -> RecordValue:
        with _unreadable():
            return decode_value(key, value)

    def encode(self, key: RecordKey, value: RecordValue | None) -> tuple[bytes, bytes | None]:
        return encode_key(key), None if value is None else encode_value(value)


@contextmanager
def _unreadable() -> Iterator[None]:
    try:
        yield
    except WireFormatError as error:
        raise WireFormatError(
            str(error), reason=SyncReason.REGISTRY_UNREADABLE, metadata=error.metadata
        ) from error


@dataclass(frozen=True, slots=True)
class _Codec:
    version: int
    record: type[RecordValue]
    decode: Callable[[Fields], RecordValue]


def _plain(record: type[RecordValue]) -> _Codec:
    return _Codec(1, record, lambda fields: read_fields(record, fields))


_CODECS: Final[Mapping[StoredKind, _Codec]] = {
    StoredKind.FLOW: _plain(FlowRecord),
    StoredKind.TOPIC: _Codec(1, ReplicatedTopic, decode_topic),
    StoredKind.CONFIGS: _plain(ConfigsRecord),
    StoredKind.ACL: _plain(AclRecord),
    StoredKind.QUOTA: _plain(QuotaRecord),
    StoredKind.WANTED: _plain(WantedRecord),
    StoredKind.RULES: _Codec(RULES_VERSION, RulesRecord, decode_rules),
    StoredKind.PLAN: _plain(PlanRecord),
    StoredKind.AUDIT: _plain(AuditRecord),
}
_KIND_OF: Final = {codec.record: kind for kind, codec in _CODECS.items()}


_SHOWN_BYTES: Final = 200
_KINDS: Final = frozenset(kind.value for kind in StoredKind)


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _parse(raw: bytes | None, part: str) -> object:
    try:
        return json.loads(raw or b"")
    except (ValueError, RecursionError) as error:
        shown = (raw or b"")[:_SHOWN_BYTES]
        raise WireFormatError(f"registry {part} {shown!r} is not JSON") from error
