"""Fences: ACLs by which a failover blocks writers of topics. Pure.

Kafka's ACLs allow no exception from a DENY, so a fence is only for topics to which no flow of Twinlog writes.
A fence belongs to one cluster: copied to the other (as other ACLs are), it would block the writers there.

Flows from one cluster may share topics, and then their fence. Beside it, each flow that holds it has an ACL
of its own, for a principal that does not exist. So the cluster itself tells every process, of whatever file,
whose the fence is: it falls with its last holder, and a DENY without a holder is somebody else's.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

from twinlog.kafka.ports import AclBinding
from twinlog.model import Flow

_HOLDER: Final = "User:twinlog-fence "


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


def holder_of(fence: AclBinding, flow: Flow) -> AclBinding:
    """Tells that a move of the flow holds the fence; denies nothing to anybody."""
    return replace(fence, principal=f"{_HOLDER}{flow}")


def is_holder(binding: AclBinding) -> bool:
    """Whether the binding equals one that `holder_of` makes."""
    return binding.principal.startswith(_HOLDER) and is_fence(replace(binding, principal="User:*"))


def held_fences(bindings: Iterable[AclBinding]) -> Mapping[AclBinding, Collection[str]]:
    """The fences that moves hold, with the flows of these moves, among all ACLs of a cluster's topics."""
    held = defaultdict[AclBinding, set[str]](set)
    for binding in bindings:
        if is_holder(binding):
            held[fence_of(binding.resource_name)].add(binding.principal.removeprefix(_HOLDER))
    return held
