"""What a binding of the source becomes on the target, in each mode. Pure.

| | mm2 (default) | read-only | full |
|---|---|---|---|
| topics | literal | literal, prefixed | literal, prefixed |
| groups | no | all patterns | all patterns |
| transactional ids | no | no | all patterns |
| ALLOW ALL | READ | READ | ALL |
| ALLOW WRITE | left out | left out | copied |
| other ALLOW | copied | READ, DESCRIBE, DESCRIBE_CONFIGS | copied |
| DENY | copied | copied | copied |
| fence of a failover | left out | left out | left out |
| removals | never | followed | followed |

`mm2` is MirrorMaker 2's rule (reference §5.4), with one exception: an ALLOW that a DENY limits on the
source is left out when the mode does not carry that DENY over, because the copy would give more than the
original. A fence (DENY WRITE for everybody, `twinlog.fences`) is a rule of its own cluster: on the copies it
would stop the replication, and the applications that moved.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from twinlog.fences import is_fence
from twinlog.kafka.ports import AclBinding
from twinlog.policy.replication import ReplicationPolicy
from twinlog_configsync.acl_rights import (
    ALL,
    ALLOW,
    DENY,
    LITERAL,
    PREFIXED,
    WILDCARD,
    acl_text,
    covers,
    limits,
)


class AclMode(StrEnum):
    """Value of `twinlog.sync.topic.acls.mode`."""

    MM2 = "mm2"
    READ_ONLY = "read-only"
    FULL = "full"


TOPIC: Final = "TOPIC"
GROUP: Final = "GROUP"
TRANSACTIONAL_ID: Final = "TRANSACTIONAL_ID"

_READING: Final = frozenset({"READ", "DESCRIBE", "DESCRIBE_CONFIGS"})
_TYPES: Final = {
    AclMode.MM2: frozenset({TOPIC}),
    AclMode.READ_ONLY: frozenset({TOPIC, GROUP}),
    AclMode.FULL: frozenset({TOPIC, GROUP, TRANSACTIONAL_ID}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AclRules:
    mode: AclMode
    source: str
    """Alias of the source cluster."""
    policy: ReplicationPolicy
    selects_topic: Callable[[str], bool]
    selects_group: Callable[[str], bool]

    @property
    def follows_removals(self) -> bool:
        return self.mode is not AclMode.MM2


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """What becomes of one binding of the source, and by which rule."""

    source: AclBinding
    targets: tuple[AclBinding, ...]
    """None when it is left out, or matches nothing that is replicated."""
    rule: str
    effective: bool = True
    """Whether the targets say of the copies all that the source says of the originals."""


def translate_acls(
    bindings: Collection[AclBinding], rules: AclRules, *, topics: Collection[str]
) -> list[Translation]:
    """Every binding of the source, sorted, with what it becomes.

    `topics` are the source topics that the flow replicates: under a policy that keeps names, patterns are
    written out for these, since on the target the pattern would also match topics of its own.
    """
    literal = {b.resource_name for b in bindings if b.resource_type == TOPIC and b.pattern_type == LITERAL}
    known = sorted({*topics, *(name for name in literal - {WILDCARD} if rules.selects_topic(name))})
    translated = [_translate(binding, rules, known) for binding in sorted(bindings)]
    lost = [each.source for each in translated if each.source.permission == DENY and not each.effective]
    return [_without_gain(each, lost) for each in translated]


def _translate(binding: AclBinding, rules: AclRules, topics: Collection[str]) -> Translation:
    if is_fence(binding):
        fence = _left_out(binding, "a fence: it keeps writers out of its own cluster only")
        return replace(fence, effective=True)
    if binding.resource_type not in _TYPES[rules.mode]:
        kind = binding.resource_type.lower().replace("_", " ")
        return _left_out(binding, f"mode {rules.mode} does not copy ACLs of {kind}s")
    if rules.mode is AclMode.MM2 and binding.pattern_type != LITERAL:
        return _left_out(binding, "mode mm2 copies literal names only")
    operation = _operation(binding, rules.mode)
    if operation is None:
        return _left_out(binding, f"mode {rules.mode} grants no {binding.operation}")
    wanted = replace(binding, operation=operation)
    rule = f"mode {rules.mode}"
    if operation != binding.operation:
        rule += f", {binding.operation} becomes {operation}"
    if binding.resource_type == TOPIC:
        return _translate_topic(binding, wanted, rules, topics, rule)
    if binding.resource_type == GROUP and not _group_wanted(binding, rules):
        return _left_out(binding, "the group is not selected (groups, groups.exclude)")
    return Translation(source=binding, targets=(wanted,), rule=rule)


def _operation(binding: AclBinding, mode: AclMode) -> str | None:
    """The operation on the target; None when the mode does not grant it."""
    if binding.permission != ALLOW or mode is AclMode.FULL:
        return binding.operation
    if binding.operation == ALL:
        return "READ"
    if mode is AclMode.MM2:
        return None if binding.operation == "WRITE" else binding.operation
    return binding.operation if binding.operation in _READING else None


def _group_wanted(binding: AclBinding, rules: AclRules) -> bool:
    """A DENY, and a pattern that may match selected groups, are always taken."""
    is_name = binding.pattern_type == LITERAL and binding.resource_name != WILDCARD
    return binding.permission == DENY or not is_name or rules.selects_group(binding.resource_name)


def _translate_topic(
    binding: AclBinding, wanted: AclBinding, rules: AclRules, topics: Collection[str], rule: str
) -> Translation:
    name = binding.resource_name
    if rules.mode is AclMode.MM2 or (binding.pattern_type == LITERAL and name != WILDCARD):
        return _translate_name(binding, wanted, rules, rule)
    if rules.policy.tracks_topic_sources:
        prefix = rules.policy.format_remote_topic(rules.source, "" if name == WILDCARD else name)
        target = replace(wanted, resource_name=prefix, pattern_type=PREFIXED)
        return Translation(source=binding, targets=(target,), rule=rule)
    targets = tuple(
        replace(
            wanted,
            resource_name=rules.policy.format_remote_topic(rules.source, topic),
            pattern_type=LITERAL,
        )
        for topic in topics
        if covers(binding, topic)
    )
    return Translation(source=binding, targets=targets, rule=f"{rule}, written out for each replicated topic")


def _translate_name(binding: AclBinding, wanted: AclBinding, rules: AclRules, rule: str) -> Translation:
    """A literal name, the wildcard included in mode mm2, which gives it the prefix as if it were a name."""
    name, renames = binding.resource_name, rules.policy.tracks_topic_sources
    # Elsewhere a denied topic may be one that an allowed pattern covers, whether or not it is replicated yet.
    keeps_denial = binding.permission == DENY and renames and rules.mode is not AclMode.MM2
    if not (rules.selects_topic(name) or keeps_denial):
        left_out = _left_out(binding, "the topic is not selected (topics, topics.exclude)")
        # Patterns that are written out for replicated topics never meet it.
        return left_out if renames or rules.mode is AclMode.MM2 else replace(left_out, effective=True)
    remote = rules.policy.format_remote_topic(rules.source, name)
    return Translation(
        source=binding,
        targets=(replace(wanted, resource_name=remote),),
        rule=rule,
        effective=not (name == WILDCARD and renames),
    )


def _without_gain(translation: Translation, lost: Collection[AclBinding]) -> Translation:
    """An ALLOW that a DENY without counterpart limits on the source is left out."""
    binding = translation.source
    if binding.permission != ALLOW or not translation.targets:
        return translation
    denial = next((each for each in lost if limits(each, binding)), None)
    if denial is None:
        return translation
    return _left_out(
        binding, f"the source limits it by a DENY that is not copied ({acl_text(denial)}): it would give more"
    )


def _left_out(binding: AclBinding, rule: str) -> Translation:
    return Translation(source=binding, targets=(), rule=rule, effective=False)
