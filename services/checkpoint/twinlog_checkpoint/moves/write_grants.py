"""WRITE on the copies for principals that may write to the originals: granted by a failover on request,
revoked by the failback.

Invariant (a property test checks it against Kafka's rules of evaluation): a grant never gives a principal a
right on a copy that it lacks on the original.

An ALLOW is granted name by name, for copies that exist. If a DENY of the source may limit it, it is left out
as a whole, because the copy would allow more than the original. A fence of this move does not count as such a
DENY; an identical DENY that existed before does.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from twinlog.acl_rights import ALL, ALLOW, DENY, LITERAL, WILDCARD, acl_text, covers, limits
from twinlog.kafka.ports import AclBinding


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteGrants:
    missing: tuple[AclBinding, ...] = ()
    """The missing ACLs of the copies, sorted."""
    left_out: tuple[str, ...] = ()
    """Rights of the source that are not granted, and why."""


def write_grants(
    source: Collection[AclBinding], target: Collection[AclBinding], copies: Mapping[str, str]
) -> WriteGrants:
    """Pure. `source` are the ACLs without the fences of this move; `copies` maps each copied topic of the
    source to its name on the target."""
    denials = [each for each in source if each.permission == DENY]
    wanted: set[AclBinding] = set()
    left_out: list[str] = []
    for binding in sorted(source):
        given = replace(binding, operation="WRITE")
        names = _covered(binding, copies) if lets_write(binding) else []
        if not names:
            continue
        denial = next((each for each in denials if limits(each, given)), None)
        if denial is not None:
            left_out.append(f"{acl_text(binding)}: a DENY of the source may limit it ({acl_text(denial)})")
            continue
        wanted |= {replace(given, resource_name=name, pattern_type=LITERAL) for name in names}
    return WriteGrants(missing=tuple(sorted(wanted.difference(target))), left_out=tuple(left_out))


def _covered(binding: AclBinding, copies: Mapping[str, str]) -> list[str]:
    """The copies of the topics that the ACL applies to."""
    if binding.pattern_type == LITERAL and binding.resource_name != WILDCARD:
        # Most ACLs name one topic; comparing each of them with all topics takes minutes in a large flow.
        copy = copies.get(binding.resource_name)
        return [] if copy is None else [copy]
    return [copy for topic, copy in copies.items() if covers(binding, topic)]


def lets_write(binding: AclBinding) -> bool:
    """Whether an ACL of the source allows writing to topics."""
    return (binding.resource_type, binding.permission) == ("TOPIC", ALLOW) and binding.operation in (
        "WRITE",
        ALL,
    )
