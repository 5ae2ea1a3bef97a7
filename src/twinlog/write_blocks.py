"""Fences: ACLs by which a failover blocks writers of topics. Pure.

Kafka's ACLs allow no exception from a DENY, so a fence is only for topics to which no flow of Twinlog writes.
A fence belongs to one cluster: copied to the other (as other ACLs are), it would block the writers there.
"""

from twinlog.kafka.ports import AclBinding


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
