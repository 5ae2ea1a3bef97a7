"""Fences: ACLs by which a failover blocks writers of topics. Pure.

Kafka's ACLs allow no exception from a DENY, so a fence is only for topics to which no flow of Twinlog writes.
A fence belongs to one cluster: copied to the other (as other ACLs are), it would block the writers there.

Flows from one cluster may share topics, and then their fence. Beside it, each record of moves that holds it
has an ACL of its own, for a principal that does not exist: it names the flow, and the id of the cluster that
has the record. So the cluster itself tells every process, of whatever file, whose the fence is. A fence falls
with its last holder, a holder is void once somebody has removed the DENY, and a DENY that neither a holder
nor the flow's own record names is somebody else's.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from twinlog.kafka.ports import AclBinding
from twinlog.model import Flow

_HOLDER: Final = "User:twinlog-fence "
_MOST_REMOVED: Final = 5
"""Topics that one command names."""


def fence_of(topic: str) -> AclBinding:
    """Denies every principal but super users to write to the topic."""
    return AclBinding(
        resource_type="TOPIC",
        resource_name=topic,
        pattern_type="LITERAL",
        principal="User:*",
        host="*",
        operation="WRITE",
        permission="DENY",
    )


def is_fence(binding: AclBinding) -> bool:
    """Whether the binding equals the one that `fence_of` makes, by any creator."""
    return binding == fence_of(binding.resource_name)


def holder_name(flow: Flow, record_cluster_id: str) -> str:
    """Names a record of moves, which is on the flow's target. Other files may use these aliases for other
    clusters."""
    return f"{flow} {record_cluster_id}"


def holder_of(fence: AclBinding, holder: str) -> AclBinding:
    """Tells that the moves with this record hold the fence; denies nothing to anybody."""
    return replace(fence, principal=holder_principal(holder))


def holder_principal(holder: str) -> str:
    return f"{_HOLDER}{holder}"


def is_holder(binding: AclBinding) -> bool:
    """Whether the binding equals one that `holder_of` makes."""
    return binding.principal.startswith(_HOLDER) and is_fence(replace(binding, principal="User:*"))


def held_fences(bindings: Iterable[AclBinding]) -> Mapping[AclBinding, Collection[str]]:
    """The fences that moves hold, with the names of their holders, among all ACLs of a cluster's topics."""
    held = defaultdict[AclBinding, set[str]](set)
    for binding in bindings:
        if is_holder(binding):
            held[fence_of(binding.resource_name)].add(binding.principal.removeprefix(_HOLDER))
    return held


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherFence:
    """Topics that moves with other records keep fenced."""

    holders: Sequence[str]
    topics: Sequence[str]
    remedy: str
    """The command that removes it, or lists it if there are many topics."""


def other_fences(
    kept: Mapping[AclBinding, Collection[str]], recorded: Collection[AclBinding], servers: str
) -> list[OtherFence]:
    """What these holders keep fenced, with what to do about it if no such moves exist any more.
    `recorded`: the fences of the flow's own moves."""
    topics = defaultdict[tuple[tuple[str, ...], bool], list[str]](list)
    for fence in sorted(kept):
        topics[tuple(sorted(kept[fence])), fence in recorded].append(fence.resource_name)
    return [
        OtherFence(holders=holders, topics=names, remedy=_remedy(holders, names, servers, is_own=is_own))
        for (holders, is_own), names in sorted(topics.items())
    ]


def _remedy(holders: Sequence[str], topics: Sequence[str], servers: str, *, is_own: bool) -> str:
    """A fence that the flow's own moves hold, too, stays."""
    acls = f"kafka-acls --bootstrap-server {servers}"
    principals = list(map(holder_principal, holders))
    if len(topics) > _MOST_REMOVED:
        return " ".join([acls, "--list", *(f"--principal '{each}'" for each in principals)])
    denied = [*principals, *(() if is_own else ("User:*",))]
    names = (f"--topic {topic}" for topic in topics)
    principal_options = (f"--deny-principal '{each}'" for each in denied)
    return " ".join([acls, "--remove", *principal_options, "--operation Write", *names])
