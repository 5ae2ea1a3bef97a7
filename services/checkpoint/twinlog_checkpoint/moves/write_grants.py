"""WRITE on the copies for those who may write the originals: granted by a failover when asked, taken back
by the failback.

Invariant (a property test holds it against Kafka's rules of evaluation): who may do something to a copy
because of a grant may do the same to its origin on the source.

An ALLOW is granted name by name, for copies that exist. One that any DENY of the source may limit is left out
as a whole: the copy would give more than the original. A fence of this move is no such DENY; one that looks
the same and was there before is.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from twinlog.acl_rights import ALL, ALLOW, DENY, LITERAL, acl_text, covers, limits
from twinlog.kafka.ports import AclBinding


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteGrants:
    missing: tuple[AclBinding, ...] = ()
    """What the copies lack, sorted."""
    left_out: tuple[str, ...] = ()
    """Which rights of the source are not granted, and why, in words."""


def write_grants(
    source: Collection[AclBinding], target: Collection[AclBinding], copies: Mapping[str, str]
) -> WriteGrants:
    """`source`: without the fences of this move; `copies`: the name on the target of each topic of the source
    that has a copy there. Pure."""
    denials = [each for each in source if each.permission == DENY]
    wanted: set[AclBinding] = set()
    left_out: list[str] = []
    for binding in sorted(source):
        given = replace(binding, operation="WRITE")
        names = [copy for topic, copy in copies.items() if covers(binding, topic)]
        if not lets_write(binding) or not names:
            continue
        denial = next((each for each in denials if limits(each, given)), None)
        if denial is not None:
            left_out.append(f"{acl_text(binding)}: the source limits it ({acl_text(denial)})")
            continue
        wanted |= {replace(given, resource_name=name, pattern_type=LITERAL) for name in names}
    return WriteGrants(missing=tuple(sorted(wanted.difference(target))), left_out=tuple(left_out))


def lets_write(binding: AclBinding) -> bool:
    """Whether a binding of the source lets somebody write topics."""
    return (binding.resource_type, binding.permission) == ("TOPIC", ALLOW) and binding.operation in (
        "WRITE",
        ALL,
    )
