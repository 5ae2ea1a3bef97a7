"""Compares wanted with present ACLs and plans what is created and deleted. Pure.

DENY ACLs are created first and deleted last, so that nobody has more rights in between than before or after.
Only differences are sent, and only ACLs that Twinlog created (according to its registry) are ever deleted.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from twinlog.acl_rights import DENY
from twinlog.kafka.ports import AclBinding
from twinlog_configsync.access.acl_rules import AclRules, TranslatedAcl
from twinlog_configsync.model.actions import AclAction, CreateAcl, DeleteAcl, SkipAcl
from twinlog_configsync.model.hold import Hold
from twinlog_configsync.model.memory import acl_id
from twinlog_configsync.model.observation import AclObservation

# Lists every ACL of a flow's two clusters, with what the flow does about it. Pure.


class AclState(StrEnum):
    IN_STEP = "IN_STEP"
    MISSING = "MISSING"
    LEFT_OUT = "LEFT_OUT"
    SURPLUS = "SURPLUS"
    """Twinlog created it, and the source no longer has it."""
    FOREIGN = "FOREIGN"
    """An ACL on the target that Twinlog did not create."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AclEntry:
    source: AclBinding | None = None
    target: AclBinding | None = None
    state: AclState
    rule: str = ""
    made_by_twinlog: bool = False


def list_acls(
    observation: AclObservation, translations: Iterable[TranslatedAcl], *, made: Collection[AclBinding]
) -> list[AclEntry]:
    """List the ACLs of the source, each with its counterparts; then those that only the target has."""
    entries: list[AclEntry] = []
    wanted: set[AclBinding] = set()
    for each in translations:
        if not each.targets:
            entries.append(AclEntry(source=each.source, state=AclState.LEFT_OUT, rule=each.rule))
        for target in each.targets:
            wanted.add(target)
            state = AclState.IN_STEP if target in observation.target else AclState.MISSING
            entries.append(
                AclEntry(
                    source=each.source,
                    target=target,
                    state=state,
                    rule=each.rule,
                    made_by_twinlog=target in made and state is AclState.IN_STEP,
                )
            )
    for target in sorted(observation.target - wanted):
        state = AclState.SURPLUS if target in made else AclState.FOREIGN
        entries.append(AclEntry(target=target, state=state, made_by_twinlog=target in made))
    return entries


def plan_acls(
    observation: AclObservation,
    translations: Sequence[TranslatedAcl],
    rules: AclRules,
    *,
    made: Collection[AclBinding],
    wanted_elsewhere: Collection[str] | None = frozenset(),
    hold: Hold | None = None,
) -> list[AclAction | SkipAcl]:
    """Plan the changes that sync the target's ACLs with the source's.

    `translations` are the source's ACLs with their translation; `made` are ACLs on the target that Twinlog
    created for this flow; `wanted_elsewhere` are the ids of those that another flow into the same target
    wants, which are not deleted, and None as long as this is not known; `hold` tells why nothing may be
    deleted now.
    """
    wanted = {target: each for each in translations for target in each.targets}
    creations = [
        CreateAcl(binding=target, rule=each.rule, drift=target in made)
        for target, each in sorted(wanted.items())
        if target not in observation.target
    ]
    surplus = sorted((observation.target & frozenset(made)) - wanted.keys())
    deletions, kept = _removals(surplus, rules, wanted_elsewhere, hold)
    kept += [SkipAcl(binding=each.source, rule=each.rule) for each in translations if not each.targets]
    return [
        *(action for action in creations if action.binding.permission == DENY),
        *(action for action in deletions if action.binding.permission != DENY),
        *(action for action in creations if action.binding.permission != DENY),
        *(action for action in deletions if action.binding.permission == DENY),
        *kept,
    ]


def wanted_acls(translations: Iterable[TranslatedAcl]) -> frozenset[AclBinding]:
    """Every ACL that the flow wants on the target."""
    return frozenset(target for each in translations for target in each.targets)


def _removals(
    surplus: Collection[AclBinding],
    rules: AclRules,
    wanted_elsewhere: Collection[str] | None,
    hold: Hold | None,
) -> tuple[list[DeleteAcl], list[SkipAcl]]:
    """ACLs that Twinlog created and the source no longer has."""
    deletions: list[DeleteAcl] = []
    kept: list[SkipAcl] = []
    for binding in surplus:
        if not rules.follows_removals:
            rule = f"the source no longer has it, but mode {rules.mode} never deletes"
        elif hold is not None:
            rule = f"kept, {hold.reason}: {hold.message}"
        elif wanted_elsewhere is None:
            rule = (
                "the source no longer has it; kept until it is known whether another flow into this target"
                " needs it"
            )
        elif acl_id(binding) in wanted_elsewhere:
            rule = "the source no longer has it, but another flow into this target needs it"
        else:
            rule = f"created by Twinlog, and the source no longer has it (mode {rules.mode})"
            deletions.append(DeleteAcl(binding=binding, rule=rule))
            continue
        kept.append(SkipAcl(binding=binding, rule=rule))
    return deletions, kept
