"""The actions of a plan, each with the rule that caused it. Values without behaviour, except for their
wording."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from twinlog.acl_rights import acl_text
from twinlog.errors import KafkaError
from twinlog.kafka.ports import AclBinding, QuotaEntity
from twinlog_configsync.model.observation import World
from twinlog_configsync.model.schedule import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfTopic:
    source_topic: str
    target_topic: str
    rule: str
    """Why it is done, or is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfConfig(_OfTopic):
    name: str
    before: str | None
    """The target's present value; None when it is not known."""
    drift: bool = False
    """Twinlog had set it before, and somebody else changed it on the target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfAcl:
    binding: AclBinding
    rule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfQuota:
    entity: QuotaEntity
    key: str
    """The limit, by Kafka's name."""
    rule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopic(_OfTopic):
    partition_count: int
    replication_factor: int
    """-1 = the target's default."""
    configs: Mapping[str, str] = field(default_factory=dict)
    rule: str = "selected on the source, absent on the target"

    def __str__(self) -> str:
        return (
            f"CREATE {self.target_topic} partitions={self.partition_count} "
            f"replication.factor={self.replication_factor}: {self.rule}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowPartitions(_OfTopic):
    from_count: int
    to_count: int
    rule: str = "the source has more partitions"

    def __str__(self) -> str:
        return f"GROW {self.target_topic} partitions {self.from_count} → {self.to_count}: {self.rule}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopic(_OfTopic):
    target_topic_id: str
    """The topic to delete; another one with the same name stays."""

    def __str__(self) -> str:
        return f"DELETE {self.target_topic}: {self.rule}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetConfig(_OfConfig):
    value: str

    def __str__(self) -> str:
        return f"SET {self.target_topic} {self.name} {self.before} → {self.value}: {self.rule}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteConfig(_OfConfig):
    def __str__(self) -> str:
        return f"DELETE {self.target_topic} {self.name} {self.before} → default: {self.rule}"


_EXACT: Final = 2**53
"""Whole numbers up to this are exact as a float."""

WHAT_TOPIC: Final = "topic"
WHAT_DELETION: Final = "deletion"


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip(_OfTopic):
    """Nothing is done, on purpose; shown so that a plan explains it."""

    what: str
    """The name of a config, or WHAT_TOPIC, or WHAT_DELETION."""
    reason: str = ""
    """Set when it keeps the topic from being copied; watchers get this reason."""

    def __str__(self) -> str:
        return f"SKIP {self.target_topic} {self.what}: {self.rule}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateAcl(_OfAcl):
    """Creates this ACL on the target."""

    drift: bool = False
    """Twinlog had created it before, and somebody else removed it."""

    def __str__(self) -> str:
        return f"CREATE ACL {acl_text(self.binding)}: {self.rule}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAcl(_OfAcl):
    """Deletes this ACL on the target, which Twinlog created."""

    def __str__(self) -> str:
        return f"DELETE ACL {acl_text(self.binding)}: {self.rule}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipAcl(_OfAcl):
    """An ACL of the source that is not copied, or one on the target that stays although the source no longer
    has it."""

    def __str__(self) -> str:
        return f"SKIP ACL {acl_text(self.binding)}: {self.rule}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipUser:
    """A user of the source that the target lacks: passwords cannot be read, so users cannot be copied."""

    user: str
    mechanism: str
    rule: str = "SCRAM passwords cannot be read: create the user on the target by hand"

    def __str__(self) -> str:
        return f"SKIP USER {self.user} ({self.mechanism}): {self.rule}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetQuota(_OfQuota):
    before: float | None
    value: float
    drift: bool = False

    def __str__(self) -> str:
        before = "none" if self.before is None else number_text(self.before)
        quota = f"{entity_text(self.entity)} {self.key}"
        return f"SET QUOTA {quota} {before} → {number_text(self.value)}: {self.rule}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteQuota(_OfQuota):
    before: float

    def __str__(self) -> str:
        before = number_text(self.before)
        return f"DELETE QUOTA {entity_text(self.entity)} {self.key} {before}: {self.rule}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipQuota(_OfQuota):
    def __str__(self) -> str:
        return f"SKIP QUOTA {entity_text(self.entity)} {self.key}: {self.rule}"


TopicAction = CreateTopic | GrowPartitions | DeleteTopic
ConfigAction = SetConfig | DeleteConfig
AclAction = CreateAcl | DeleteAcl
QuotaAction = SetQuota | DeleteQuota
Change = TopicAction | ConfigAction | AclAction | QuotaAction
Omission = Skip | SkipAcl | SkipUser | SkipQuota
"""Nothing is done, on purpose."""
Action = Change | Omission


def scope_of(action: Action) -> Scope:
    """The part of a flow that an action belongs to."""
    match action:
        case CreateTopic() | GrowPartitions() | DeleteTopic():
            return Scope.TOPICS
        case SetConfig() | DeleteConfig():
            return Scope.CONFIGS
        case CreateAcl() | DeleteAcl() | SkipAcl() | SkipUser():
            return Scope.ACLS
        case SetQuota() | DeleteQuota() | SkipQuota():
            return Scope.QUOTAS
        case Skip():
            return Scope.TOPICS if action.what in (WHAT_TOPIC, WHAT_DELETION) else Scope.CONFIGS


def is_drift(action: Action) -> bool:
    """Whether it reverts somebody else's change on the target."""
    return isinstance(action, SetConfig | DeleteConfig | CreateAcl | SetQuota) and action.drift


def entity_text(entity: QuotaEntity) -> str:
    """`user alice, client-id <default>`: the user first, as in Kafka's own tools."""
    parts = sorted(entity.parts, key=lambda part: part[0], reverse=True)
    return ", ".join(f"{kind} {'<default>' if name is None else name}" for kind, name in parts)


def number_text(value: float) -> str:
    """With all significant digits: 1234567, 42.5."""
    return str(int(value)) if value.is_integer() and abs(value) < _EXACT else repr(value)


# The outcome of a plan that was carried out.


_Kind = TypeVar("_Kind", bound=Change, covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal(Generic[_Kind]):
    action: _Kind
    error: KafkaError


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """The outcome of a plan."""

    applied: Sequence[Change] = ()
    refused: Sequence[Refusal[Change]] = ()
    world: World
    """The observation of the plan, with every changed target topic read again."""
