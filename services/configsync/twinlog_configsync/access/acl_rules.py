"""Translates the ACLs of the source for the target, in each mode. Pure.

| | mm2 (default) | read-only | full |
|---|---|---|---|
| topics | literal | literal, prefixed | literal, prefixed |
| groups | no | all patterns | all patterns |
| transactional ids | no | no | literal |
| ALLOW ALL | READ | READ | ALL |
| ALLOW WRITE | left out | left out | copied |
| other ALLOW | copied | READ, DESCRIBE, DESCRIBE_CONFIGS | copied |
| DENY | copied | copied | copied |
| DENY WRITE for everybody | left out | left out | left out |
| removals | never | followed | followed |

Invariant (a property test checks it against Kafka's rules of evaluation): an ACL on the target never gives a
principal a right on a copy, a group or a transactional id that it lacks on the original, nor any right on
something else on the target.

Patterns are therefore expanded to single names: on the target `orders*`, `*` or `A.*` would also match the
target's own topics and Twinlog's internal ones. `mm2` is MirrorMaker 2's rule with two
exceptions: an ALLOW that a DENY limits on the source is left out if the mode does not copy that DENY, because
the copy would allow more than the original; and under a policy that keeps names only topics that the flow
replicates are included, also for `*`. DENY WRITE for everybody would stop the replication on the copies. The
fence of a failover (`twinlog.write_blocks`) concerns its own cluster only, where the applications no longer
work; another one limits what is copied, as every DENY that is left out does.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from twinlog.acl_rights import (
    ALL,
    ALLOW,
    DENY,
    LITERAL,
    WILDCARD,
    acl_text,
    covers,
    limits,
)
from twinlog.config import AclSyncMode
from twinlog.kafka.ports import AclBinding
from twinlog.policy.replication import ReplicationPolicy
from twinlog.write_blocks import held_fences, is_fence, is_holder

TOPIC: Final = "TOPIC"
GROUP: Final = "GROUP"
TRANSACTIONAL_ID: Final = "TRANSACTIONAL_ID"

_OWN_PREFIX: Final = "twinlog-"
_COUNTERPARTS: Final = {
    TOPIC: "each replicated topic",
    GROUP: "each selected group that the source has",
    TRANSACTIONAL_ID: "each transactional id that the source's ACLs name",
}

_READING: Final = frozenset({"READ", "DESCRIBE", "DESCRIBE_CONFIGS"})
_TYPES: Final = {
    AclSyncMode.MM2: frozenset({TOPIC}),
    AclSyncMode.READ_ONLY: frozenset({TOPIC, GROUP}),
    AclSyncMode.FULL: frozenset({TOPIC, GROUP, TRANSACTIONAL_ID}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AclRules:
    mode: AclSyncMode
    source: str
    """Alias of the source cluster."""
    policy: ReplicationPolicy
    selects_topic: Callable[[str], bool]
    selects_group: Callable[[str], bool]

    @property
    def follows_removals(self) -> bool:
        return self.mode is not AclSyncMode.MM2

    @property
    def writes_patterns_out(self) -> bool:
        """Whether a new topic or group may need ACLs for a pattern of the source."""
        return self.mode is not AclSyncMode.MM2 or not self.policy.tracks_topic_sources


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslatedAcl:
    """One ACL of the source with its translation, and the rule for it."""

    source: AclBinding
    targets: tuple[AclBinding, ...]
    """None when the ACL is left out, or matches nothing that is replicated."""
    rule: str
    effective: bool = True
    """Whether the translation has the same effect on the copies as the ACL has on the originals."""


def translate_acls(
    bindings: Collection[AclBinding],
    rules: AclRules,
    *,
    topics: Collection[str],
    groups: Collection[str] = (),
    fences: Collection[AclBinding] = (),
    routes: Mapping[str, str] = MappingProxyType({}),
) -> list[TranslatedAcl]:
    """Translate every ACL of the source, sorted.

    `topics` are the source topics that the flow replicates; `groups` are the groups of the source, selected
    or not; `fences` are those of the flow's own moves, besides those that a move of any flow holds; `routes`
    are those of the topics that get the rights of another one, whose records go there.
    """
    names = _names(bindings, rules, topics, groups)
    fences = {*fences, *held_fences(bindings)}
    translated = [
        _without_everybody(binding, is_own=binding in fences or is_holder(binding))
        if is_fence(replace(binding, pattern_type=LITERAL)) or is_holder(binding)
        else _translate(binding, rules, names, routes)
        for binding in sorted(bindings)
    ]
    lost = [each.source for each in translated if each.source.permission == DENY and not each.effective]
    return [_without_gain(each, lost) for each in translated]


_Names = Mapping[str, Collection[str]]
"""By type: the names of the source that have a counterpart on the target; patterns are expanded to these."""


def _names(
    bindings: Collection[AclBinding], rules: AclRules, topics: Collection[str], groups: Collection[str]
) -> _Names:
    """The name in a literal ACL need not exist yet. With a policy that keeps names the flow must replicate
    the topic, because the target's topic of this name may be a different one."""
    spelled: dict[str, set[str]] = {TOPIC: set(), GROUP: set(), TRANSACTIONAL_ID: set()}
    for each in bindings:
        if each.pattern_type == LITERAL and each.resource_name != WILDCARD:
            spelled.get(each.resource_type, set()).add(each.resource_name)
    future = filter(rules.selects_topic, spelled[TOPIC] if rules.policy.tracks_topic_sources else ())
    return {
        TOPIC: sorted({*topics, *future}),
        GROUP: sorted(
            name for name in {*groups, *spelled[GROUP]} if rules.selects_group(name) and not is_own_name(name)
        ),
        TRANSACTIONAL_ID: sorted(name for name in spelled[TRANSACTIONAL_ID] if not is_own_name(name)),
    }


def is_own_name(name: str) -> bool:
    """Whether a group or a transactional id belongs to Twinlog's services."""
    return name.startswith(_OWN_PREFIX)


def _translate(
    binding: AclBinding, rules: AclRules, names: _Names, routes: Mapping[str, str]
) -> TranslatedAcl:
    if binding.resource_type not in _TYPES[rules.mode]:
        kind = binding.resource_type.lower().replace("_", " ")
        return _left_out(binding, f"mode {rules.mode} does not copy ACLs of {kind}s")
    if rules.mode is AclSyncMode.MM2 and binding.pattern_type != LITERAL:
        return _left_out(binding, "mode mm2 copies literal names only")
    operation = _operation(binding, rules.mode)
    if operation is None:
        return _left_out(binding, f"mode {rules.mode} grants no {binding.operation}")
    wanted = replace(binding, operation=operation)
    rule = f"mode {rules.mode}"
    if operation != binding.operation:
        rule += f", {binding.operation} becomes {operation}"
    if binding.resource_name in routes and binding.pattern_type == LITERAL and binding.resource_type == TOPIC:
        return _left_out(binding, f"records of {routes[binding.resource_name]} go to a topic of this name")
    if rules.mode is AclSyncMode.MM2 and rules.policy.tracks_topic_sources:
        taken = [name for name in names[TOPIC] if routes.get(name) == binding.resource_name]
        return _translate_as_mm2(binding, wanted, rules, rule, taken)
    targets = tuple(
        replace(wanted, resource_name=_counterpart(binding.resource_type, name, rules), pattern_type=LITERAL)
        for name in names[binding.resource_type]
        if covers(binding, routes.get(name, name) if binding.resource_type == TOPIC else name)
    )
    is_pattern = binding.pattern_type != LITERAL or binding.resource_name == WILDCARD
    if not targets:
        # A DENY for rights that no copied ALLOW grants changes nothing.
        return _left_out(binding, _why_nothing(binding, rules, is_pattern=is_pattern), effective=True)
    if is_pattern:
        rule += f", expanded to {_COUNTERPARTS[binding.resource_type]}"
    return TranslatedAcl(source=binding, targets=targets, rule=rule)


def _without_everybody(binding: AclBinding, *, is_own: bool) -> TranslatedAcl:
    if is_own:
        return _left_out(binding, "a fence concerns its own cluster only", effective=True)
    return _left_out(binding, "on a copy it would stop the replication; no copied ALLOW goes beyond it")


def _operation(binding: AclBinding, mode: AclSyncMode) -> str | None:
    """The operation on the target; None when the mode does not grant it."""
    if binding.permission != ALLOW or mode is AclSyncMode.FULL:
        return binding.operation
    if binding.operation == ALL:
        return "READ"
    if mode is AclSyncMode.MM2:
        return None if binding.operation == "WRITE" else binding.operation
    return binding.operation if binding.operation in _READING else None


def _counterpart(resource_type: str, name: str, rules: AclRules) -> str:
    return rules.policy.format_remote_topic(rules.source, name) if resource_type == TOPIC else name


def _why_nothing(binding: AclBinding, rules: AclRules, *, is_pattern: bool) -> str:
    match binding.resource_type:
        case "TRANSACTIONAL_ID" if is_pattern:
            return (
                "a pattern of transactional ids would also match ids of the target's own applications: name "
                "the ids in ACLs of the source, or grant it on the target"
            )
        case "GROUP" | "TRANSACTIONAL_ID" if not is_pattern and is_own_name(binding.resource_name):
            return f"names with {_OWN_PREFIX} belong to Twinlog's own services"
        case "GROUP":
            return (
                "it matches no group that the source has and the flow selects"
                if is_pattern
                else "the group is not selected (groups, groups.exclude)"
            )
        case _ if is_pattern:
            return "it matches no replicated topic"
        case _ if rules.selects_topic(binding.resource_name):
            return "the source has no such topic: where names are kept, the target's may be another one"
        case _:
            return "the topic is not selected (topics, topics.exclude)"


def _translate_as_mm2(
    binding: AclBinding, wanted: AclBinding, rules: AclRules, rule: str, routes: Collection[str]
) -> TranslatedAcl:
    """Literal names are translated whether or not they exist. The wildcard gets the prefix like a name, and
    then matches nothing."""
    name = binding.resource_name
    if not rules.selects_topic(name):
        return _left_out(binding, "the topic is not selected (topics, topics.exclude)")
    targets = tuple(
        replace(wanted, resource_name=_counterpart(TOPIC, each, rules)) for each in (name, *routes)
    )
    return TranslatedAcl(source=binding, targets=targets, rule=rule, effective=name != WILDCARD)


def _without_gain(translation: TranslatedAcl, lost: Collection[AclBinding]) -> TranslatedAcl:
    """An ALLOW that is limited by a DENY of the source without a counterpart is left out."""
    binding = translation.source
    if binding.permission != ALLOW or not translation.targets:
        return translation
    # Compare the right that the copy would grant: in mode mm2, ALL becomes READ.
    given = replace(binding, operation=translation.targets[0].operation)
    denial = next((each for each in lost if limits(each, given)), None)
    if denial is None:
        return translation
    return _left_out(
        binding,
        f"the source limits it by a DENY that is not copied ({acl_text(denial)}): the copy would allow more",
    )


def _left_out(binding: AclBinding, rule: str, *, effective: bool = False) -> TranslatedAcl:
    return TranslatedAcl(source=binding, targets=(), rule=rule, effective=effective)
