"""Lists every ACL of a flow's two clusters, with what the flow does about it. Pure."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

from twinlog.kafka.ports import AclBinding
from twinlog_configsync.access.acl_rules import Translation
from twinlog_configsync.model.observation import AclObservation


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
    observation: AclObservation, translations: Iterable[Translation], *, made: Collection[AclBinding]
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
